"""Several results of one graph."""

from __future__ import annotations

from typing import Any

from weft.compat.ray.dag.dag_node import DAGNode, Run


class MultiOutputNode(DAGNode):
    """Its result is the list of theirs."""

    def __init__(self, args: Any, other_args_to_resolve: Any = None) -> None:
        super().__init__(tuple(args))

    def run(self, run: Run) -> Any:
        return [run.resolve(entry) for entry in self._args]
