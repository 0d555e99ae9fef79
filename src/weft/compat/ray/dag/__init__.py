"""`ray.dag` of Ray 2.60: graphs of calls that are written first and run later, each time with another input."""

from weft.compat.ray.dag.class_node import ClassMethodNode, ClassNode
from weft.compat.ray.dag.dag_node import CompiledDAG, DAGNode
from weft.compat.ray.dag.function_node import FunctionNode
from weft.compat.ray.dag.input_node import InputAttributeNode, InputNode
from weft.compat.ray.dag.output_node import MultiOutputNode

__all__ = [
    "ClassMethodNode",
    "ClassNode",
    "CompiledDAG",
    "DAGNode",
    "FunctionNode",
    "InputAttributeNode",
    "InputNode",
    "MultiOutputNode",
]
