"""`f.bind(...)`: a call of a remote function."""

from __future__ import annotations

from typing import Any

from weft.compat.ray.dag.dag_node import DAGNode, Run


class FunctionNode(DAGNode):
    """Its result is the task's ref."""

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__(args, kwargs)
        self._function = function

    def run(self, run: Run) -> Any:
        return self._function.remote(*run.resolve(self._args), **run.resolve(self._kwargs))


def bind(self: Any, *args: Any, **kwargs: Any) -> FunctionNode:
    """A node of a lazy graph: the call is made when the graph is executed."""
    return FunctionNode(self, args, kwargs)
