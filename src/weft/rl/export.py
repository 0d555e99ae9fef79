"""Policies as ONNX files, to act anywhere: `algo.policy.export_onnx("policy.onnx")`.

Networks are functions of `xp`, so they are run once with an `xp` that writes down what is computed. The file takes
encoded observations (`ObservationEncoder`): "observation" [N, features] of float32, or images of uint8; it gives
"action" [N, ...] as the environment takes it. A policy with a memory has "state" and "state_after" beside them; a state
of zeros begins an episode. Networks of users are JAX programs: `export_jax.py` writes them, operation by operation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.rl.export_jax import CannotExport, write_jax
from weft.rl.recurrent import RecurrentStochastic
from weft.rl.spaces import ActionDecoder, ObservationEncoder

__all__ = ["CannotExport", "export_onnx"]

OPSET = 17


def export_onnx(
    path: str | os.PathLike[str],
    behaviour: Any,
    encoder: ObservationEncoder,
    decoder: ActionDecoder,
    params: Mapping[str, NDArray[np.float32]],
) -> None:
    """Write the policy's best action as a graph."""
    import onnx

    graph = Graph()
    observation = graph.input("observation", np.zeros((1, *encoder.shape), encoder.dtype))
    constants = {name: graph.constant(np.asarray(value, np.float32)) for name, value in params.items()}
    outputs = {}
    if isinstance(behaviour, RecurrentStochastic):
        state = graph.input("state", np.zeros((1, behaviour.model.cell.state_size), np.float32))
        inputs, _, after = behaviour.model.step(graph, constants, observation, state)
        chosen = behaviour.model.distribution(graph, inputs).mode()
        outputs["state_after"] = after
    elif hasattr(behaviour, "behaviours"):
        raise CannotExport("several policies are no single graph: export policy_of(agent) for each")
    else:
        chosen = behaviour.best(constants, observation, graph)
    onnx.save(graph.model({"action": decoded(graph, decoder, chosen), **outputs}), os.fspath(path))


def decoded(graph: Graph, decoder: ActionDecoder, chosen: Traced) -> Traced:
    """What `ActionDecoder.decode` does."""
    shape = (0, *(decoder.space.shape or ()))
    if decoder.kind == "box":
        actions = chosen
        if decoder.bounded:
            actions = graph.clip(actions, -1.0, 1.0) * decoder.half + decoder.centre
        actions = graph.minimum(graph.maximum(actions, decoder.low), decoder.high)
        return actions.reshape(*shape).astype(decoder.space.dtype)
    return (chosen.astype(np.int64).reshape(*shape) + np.asarray(decoder.offsets, np.int64)).astype(np.int64)


class Shape(tuple[int, ...]):
    """A shape in which 0 stands for the number of rows, and which knows whose it is."""

    source: Traced


class Traced:
    """A value of the graph: its name, and what it is for one row of zeros, which gives its shape and dtype."""

    __array_ufunc__ = None  # NumPy arrays on the left leave operators to this class

    def __init__(self, graph: Graph, name: str, sample: NDArray[Any], has_rows: bool) -> None:
        self.graph, self.name, self.sample, self.has_rows = graph, name, sample, has_rows

    @property
    def shape(self) -> Shape:
        sizes = list(self.sample.shape)
        shape = Shape([0, *sizes[1:]] if self.has_rows else sizes)
        shape.source = self
        return shape

    @property
    def ndim(self) -> int:
        return self.sample.ndim

    def __add__(self, other: Any) -> Traced:
        return self.graph.node("Add", [self, other], np.add)

    def __radd__(self, other: Any) -> Traced:
        return self.graph.node("Add", [other, self], np.add)

    def __sub__(self, other: Any) -> Traced:
        return self.graph.node("Sub", [self, other], np.subtract)

    def __rsub__(self, other: Any) -> Traced:
        return self.graph.node("Sub", [other, self], np.subtract)

    def __mul__(self, other: Any) -> Traced:
        return self.graph.node("Mul", [self, other], np.multiply)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Traced:
        return self.graph.node("Div", [self, other], np.divide)

    def __neg__(self) -> Traced:
        return self.graph.node("Neg", [self], np.negative)

    def __matmul__(self, other: Any) -> Traced:
        return self.graph.node("MatMul", [self, other], np.matmul)

    def __gt__(self, other: Any) -> Traced:
        return self.graph.node("Greater", [self, other], np.greater)

    def __getitem__(self, index: Any) -> Traced:
        """[..., a:b] or [..., i] of the last axis."""
        _, last = index
        start, stop = (last.start or 0, last.stop) if isinstance(last, slice) else (last, last + 1)
        stop = np.iinfo(np.int64).max if stop is None else stop
        bounds = [np.asarray([number], np.int64) for number in (start, stop, self.ndim - 1)]
        part = self.graph.node("Slice", [self, *bounds], lambda array, *_: array[..., start:stop])
        return part if isinstance(last, slice) else part.reshape(*self.shape[:-1])

    def reshape(self, *shape: Any) -> Traced:
        wanted = [int(size) for size in (shape[0] if isinstance(shape[0], tuple) else shape)]
        concrete = [1 if size == 0 or (size == -1 and place == 0) else size for place, size in enumerate(wanted)]
        return self.graph.node(
            "Reshape", [self, np.asarray(wanted, np.int64)], lambda array, _: array.reshape(concrete)
        )

    def astype(self, dtype: Any) -> Traced:
        kind = self.graph.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        return self.graph.node("Cast", [self], lambda array: array.astype(dtype), to=kind)

    def argmax(self, axis: int) -> Traced:
        return self.graph.node("ArgMax", [self], lambda array: array.argmax(axis=axis), axis=axis, keepdims=0)

    def max(self, axis: int, keepdims: bool = False) -> Traced:
        found = lambda array: array.max(axis=axis, keepdims=keepdims)  # noqa: E731
        return self.graph.node("ReduceMax", [self], found, axes=[axis], keepdims=int(keepdims))

    def sum(self, axis: int, keepdims: bool = False) -> Traced:
        found = lambda array, _: array.sum(axis=axis, keepdims=keepdims)  # noqa: E731
        return self.graph.node("ReduceSum", [self, np.asarray([axis], np.int64)], found, keepdims=int(keepdims))

    def mean(self, axis: int, keepdims: bool = False) -> Traced:
        found = lambda array: array.mean(axis=axis, keepdims=keepdims)  # noqa: E731
        return self.graph.node("ReduceMean", [self], found, axes=[axis], keepdims=int(keepdims))


class Graph:
    """An `xp` that writes down what networks compute: the part of NumPy that they use."""

    def __init__(self) -> None:
        from onnx import helper, numpy_helper

        self.helper, self._numpy_helper = helper, numpy_helper
        self._nodes: list[Any] = []
        self._inputs: list[Traced] = []
        self._constants: list[Any] = []

    def input(self, name: str, sample: NDArray[Any]) -> Traced:
        traced = Traced(self, name, sample, True)
        self._inputs.append(traced)
        return traced

    def constant(self, value: NDArray[Any]) -> Traced:
        name = f"constant{len(self._constants)}"
        self._constants.append(
            self._numpy_helper.from_array(np.ascontiguousarray(value).reshape(np.shape(value)), name)
        )
        return Traced(self, name, np.asarray(value), False)

    def node(self, kind: str, inputs: Sequence[Any], compute: Any, **attributes: Any) -> Traced:
        floats = next((value.sample.dtype for value in inputs if isinstance(value, Traced)), np.dtype(np.float32))
        given = [value if isinstance(value, Traced) else self.constant(_like(value, floats)) for value in inputs]
        with np.errstate(all="ignore"):
            sample = np.asarray(compute(*(value.sample for value in given)))
        name = self.raw(kind, [value.name for value in given], **attributes)
        return Traced(self, name, sample, any(value.has_rows for value in given))

    def raw(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        """A node of values that are known by name; the name of what it gives."""
        name = f"value{len(self._nodes)}"
        self._nodes.append(self.helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def apply_jax(self, function: Callable[..., Any], params: Mapping[str, Traced], inputs: Traced) -> Any:
        """What a JAX program gives: what networks of users are."""
        return write_jax(self, function, params, inputs)

    def model(self, outputs: Mapping[str, Traced]) -> Any:
        import onnx

        for name, traced in outputs.items():
            self._nodes.append(self.helper.make_node("Identity", [traced.name], [name]))
        used = {name for node in self._nodes for name in node.input}  # a critic's weights are not
        graph = self.helper.make_graph(
            self._nodes,
            "policy",
            [self._described(traced.name, traced) for traced in self._inputs],
            [self._described(name, traced) for name, traced in outputs.items()],
            [constant for constant in self._constants if constant.name in used],
        )
        made = self.helper.make_model(graph, opset_imports=[self.helper.make_opsetid("", OPSET)], ir_version=8)
        onnx.checker.check_model(made, full_check=True)
        return made

    def _described(self, name: str, traced: Traced) -> Any:
        kind = self.helper.np_dtype_to_tensor_dtype(traced.sample.dtype)
        return self.helper.make_tensor_value_info(name, kind, ["N", *traced.sample.shape[1:]])

    # ---- the part of NumPy that networks use ----

    def tanh(self, value: Any) -> Traced:
        return self.node("Tanh", [value], np.tanh)

    def exp(self, value: Any) -> Traced:
        return self.node("Exp", [value], np.exp)

    def expm1(self, value: Any) -> Traced:
        return self.exp(value) - 1.0

    def log(self, value: Any) -> Traced:
        return self.node("Log", [value], np.log)

    def maximum(self, value: Any, other: Any) -> Traced:
        return self.node("Max", [value, other], np.maximum)

    def minimum(self, value: Any, other: Any) -> Traced:
        return self.node("Min", [value, other], np.minimum)

    def clip(self, value: Any, low: float, high: float) -> Traced:
        return self.minimum(self.maximum(value, low), high)

    def where(self, condition: Any, value: Any, other: Any) -> Traced:
        given = [
            part if isinstance(part, Traced) else self.constant(np.asarray(part, np.float32)) for part in (value, other)
        ]
        return self.node("Where", [condition, *given], np.where)

    def concatenate(self, values: Sequence[Any], axis: int) -> Traced:
        return self.node("Concat", values, lambda *arrays: np.concatenate(arrays, axis=axis), axis=axis)

    def stack(self, values: Sequence[Any], axis: int) -> Traced:
        widened = [value.reshape(*value.shape, 1) for value in values]
        return self.concatenate(widened, axis)

    def broadcast_to(self, value: Any, shape: Shape) -> Traced:
        return shape.source * 0.0 + value

    def linspace(self, low: float, high: float, count: int, dtype: Any) -> Traced:
        return self.constant(np.linspace(low, high, count, dtype=dtype))

    def convolve(self, images: Traced, kernel: Traced, stride: int) -> Traced:
        """Images [N, height, width, channels], a kernel [size, size, channels, filters]."""
        turned = self.node("Transpose", [images], lambda array: array.transpose(0, 3, 1, 2), perm=[0, 3, 1, 2])
        weights = self.constant(kernel.sample.transpose(3, 2, 0, 1))
        size, _, _, filters = kernel.sample.shape
        height, width = ((length - size) // stride + 1 for length in images.sample.shape[1:3])
        made = self.node(
            "Conv",
            [turned, weights],
            lambda array, _: np.zeros((len(array), filters, height, width), np.float32),
            strides=[stride, stride],
        )
        return self.node("Transpose", [made], lambda array: array.transpose(0, 2, 3, 1), perm=[0, 2, 3, 1])


def _like(value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A constant beside values of this dtype; numbers of places keep theirs."""
    array = np.asarray(value)
    return array if array.dtype == np.int64 and isinstance(value, np.ndarray) else array.astype(dtype)
