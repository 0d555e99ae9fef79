"""A node of a lazy graph, and how a graph is run: each node once, what it depends on first."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

_numbers = itertools.count()


class Run:
    """One execution of a graph: its input, and what its nodes have given so far."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args = args
        self.kwargs = kwargs
        self._results: dict[int, Any] = {}

    def result(self, node: DAGNode) -> Any:
        """Of that node, which runs the first time that it is asked for."""
        pending = [node]
        while pending:  # not by recursion: a chain of calls may be longer than Python's stack
            last = pending[-1]
            missing = [other for other in last.upstream() if other.number not in self._results]
            if missing:
                pending += reversed(missing)
                continue
            pending.pop()
            if last.number not in self._results:
                self._results[last.number] = last.run(self)
        return self._results[node.number]

    def resolve(self, value: Any) -> Any:
        """With the results of nodes in their places."""
        return _replaced(value, self.result)


class DAGNode:
    """What `.bind(...)` returns; subclasses say what it does when it is run."""

    def __init__(self, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> None:
        self.number = next(_numbers)
        self._args = args
        self._kwargs = kwargs or {}

    def run(self, run: Run) -> Any:
        """Do what this node stands for; all that it depends on has been done."""
        raise NotImplementedError

    def upstream(self) -> list[DAGNode]:
        """The nodes that come before this one."""
        found: list[DAGNode] = []
        _replaced((self._args, self._kwargs), found.append)
        return found

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph up to this node: the ref of its result, the handle of an actor, or a list for several."""
        kwargs = {name: value for name, value in kwargs.items() if not name.startswith("_ray_")}
        return Run(args, kwargs).result(self)

    def experimental_compile(self, *args: Any, **options: Any) -> CompiledDAG:
        """The same graph; it runs by plain calls, so that nothing is gained by it but that the program runs."""
        return CompiledDAG(self)

    def with_tensor_transport(self, *args: Any, **kwargs: Any) -> DAGNode:
        """Without effect: tensors stay on their device by themselves."""
        return self

    def get_args(self) -> tuple[Any, ...]:
        """What it was bound to."""
        return self._args

    def get_kwargs(self) -> dict[str, Any]:
        """What it was bound to by name."""
        return dict(self._kwargs)

    def get_stable_uuid(self) -> str:
        """Different for each node of this process."""
        return f"{self.number:032x}"

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} belongs to the process that made it: send the refs of its results")


class CompiledDAG:
    """A graph that is run again and again."""

    def __init__(self, node: DAGNode) -> None:
        self._node: DAGNode | None = node

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        """As the graph's own."""
        if self._node is None:
            raise RuntimeError("this compiled graph has been torn down")
        return self._node.execute(*args, **kwargs)

    async def execute_async(self, *args: Any, **kwargs: Any) -> Any:
        """The same, for `await`; what it gives is awaited once more."""
        return self.execute(*args, **kwargs)

    def teardown(self, kill_actors: bool = False) -> None:
        """It is not run any more. The actors stay, unless `kill_actors`."""
        if kill_actors and self._node is not None:
            import weft

            for handle in set(_actors(self._node)):
                weft.kill(handle)
        self._node = None

    def visualize(self, *args: Any, **kwargs: Any) -> str:
        """Without effect."""
        return ""


def _actors(last: DAGNode) -> list[Any]:
    """Those of all nodes up to this one that lived before the graph ran."""
    seen: dict[int, DAGNode] = {}
    pending = [last]
    while pending:
        node = pending.pop()
        if node.number not in seen:
            seen[node.number] = node
            pending += node.upstream()
    return [handle for node in seen.values() if (handle := vars(node).get("actor")) is not None]


def _replaced(value: Any, replace: Callable[[DAGNode], Any]) -> Any:
    """A copy of what holds nodes, with others in their places."""
    if isinstance(value, DAGNode):
        return replace(value)
    kind = type(value)
    if kind in (list, tuple, set):
        return kind([_replaced(entry, replace) for entry in value])
    if kind is dict:
        return {_replaced(key, replace): _replaced(entry, replace) for key, entry in value.items()}
    return value
