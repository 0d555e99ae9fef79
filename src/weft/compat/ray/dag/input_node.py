"""The input of a graph, and parts of it: what `execute(...)` is given."""

from __future__ import annotations

from typing import Any

from weft.compat.ray.dag.dag_node import DAGNode, Run


class InputData:
    """Several inputs: positional ones by number, the others by name."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._args, self._kwargs = args, kwargs

    def __getitem__(self, key: int | str) -> Any:
        return self._args[key] if isinstance(key, int) else self._kwargs[key]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_kwargs"][name]
        except KeyError:
            raise AttributeError(f"the graph has no input named {name!r}") from None


class InputNode(DAGNode):
    """Stands for the input. With one positional argument it is that, else all of them.

    >>> with InputNode() as given:
    ...     pass
    >>> given.execute(7), given["x"].execute(x=1), given[1].execute(5, 6)
    (7, 1, 6)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def run(self, run: Run) -> Any:
        if len(run.args) == 1 and not run.kwargs:
            return run.args[0]
        if not run.args and not run.kwargs:
            raise ValueError("the graph has an InputNode: give execute() its input")
        return InputData(run.args, run.kwargs)

    def __enter__(self) -> InputNode:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __getitem__(self, key: int | str) -> InputAttributeNode:
        return InputAttributeNode(self, key, False)

    def __getattr__(self, name: str) -> InputAttributeNode:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return InputAttributeNode(self, name, True)


class InputAttributeNode(DAGNode):
    """A part of the input, by its number, its name, or as an attribute."""

    def __init__(self, node: InputNode, key: int | str, is_attribute: bool) -> None:
        super().__init__((node,))
        self._node, self._key, self._is_attribute = node, key, is_attribute

    def run(self, run: Run) -> Any:
        given = run.result(self._node)
        return getattr(given, str(self._key)) if self._is_attribute else given[self._key]
