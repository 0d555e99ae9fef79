"""`Class.bind(...)`: an actor that is made when the graph runs; and calls of its methods, or of a living actor's.

Calls of one ClassNode run in the order in which they were bound: each depends on the one before.
"""

from __future__ import annotations

from typing import Any

from weft.actor import ActorHandle, ActorMethod
from weft.compat.ray.dag.dag_node import DAGNode, Run


class ClassNode(DAGNode):
    """Its result is the handle of a new actor."""

    def __init__(self, actor_class: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__(args, kwargs)
        self._class = actor_class
        self.last_call: DAGNode | None = None

    def run(self, run: Run) -> Any:
        return self._class.remote(*run.resolve(self._args), **run.resolve(self._kwargs))

    def __getattr__(self, name: str) -> UnboundMethod:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return UnboundMethod(self, name, {})


class UnboundMethod:
    """`node.method`, before it is bound."""

    def __init__(self, node: ClassNode, name: str, options: dict[str, Any]) -> None:
        self._node, self._name, self._options = node, name, options

    def options(self, **options: Any) -> UnboundMethod:
        """With options for the call."""
        return UnboundMethod(self._node, self._name, {**self._options, **options})

    def bind(self, *args: Any, **kwargs: Any) -> Any:
        """A call that comes after all that were bound before."""
        call = ClassMethodNode(self._node, self._name, self._options, args, kwargs)
        self._node.last_call = call
        return _outputs(call, self._options.get("num_returns"))


class ClassMethodNode(DAGNode):
    """A call of an actor that the graph makes."""

    def __init__(
        self, node: ClassNode, name: str, options: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        super().__init__(args, kwargs)
        self._node, self._name, self._options, self._before = node, name, options, node.last_call

    def upstream(self) -> list[DAGNode]:
        before = [] if self._before is None else [self._before]
        return [self._node, *before, *super().upstream()]

    def run(self, run: Run) -> Any:
        method = getattr(run.result(self._node), self._name)
        if self._options:
            method = method.options(**self._options)
        return method.remote(*run.resolve(self._args), **run.resolve(self._kwargs))


class LivingMethodNode(ClassMethodNode):
    """A call of an actor that lives already."""

    def __init__(self, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        DAGNode.__init__(self, args, kwargs)
        self._method = method
        self.actor: ActorHandle[Any] | None = (
            ActorHandle(method._token, method._description) if isinstance(method, ActorMethod) else None
        )

    def upstream(self) -> list[DAGNode]:
        return DAGNode.upstream(self)

    def run(self, run: Run) -> Any:
        return self._method.remote(*run.resolve(self._args), **run.resolve(self._kwargs))


class OutputNode(DAGNode):
    """One of the results of a call that has several."""

    def __init__(self, call: DAGNode, index: int) -> None:
        super().__init__((call,))
        self._call, self._index = call, index

    def run(self, run: Run) -> Any:
        return run.result(self._call)[self._index]


def _outputs(call: DAGNode, num_returns: Any) -> Any:
    if isinstance(num_returns, int) and num_returns > 1:
        return tuple(OutputNode(call, index) for index in range(num_returns))
    return call


def bind_class(self: Any, *args: Any, **kwargs: Any) -> ClassNode:
    """A node of a lazy graph: the actor is made when the graph is executed."""
    return ClassNode(self, args, kwargs)


def bind_method(self: Any, *args: Any, **kwargs: Any) -> Any:
    """A node of a lazy graph: the call is made when the graph is executed."""
    call = LivingMethodNode(self, args, kwargs)
    return _outputs(call, self._method.num_returns if isinstance(self, ActorMethod) else 1)
