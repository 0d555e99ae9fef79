"""Networks of users, which are JAX programs, as nodes of an ONNX graph.

The program is traced for a number of rows that no other size is a multiple of, so that in the trace every size that
depends on the number of rows can be told from the others; in the file it is computed from the input's shape. What has
no counterpart here (loops, sorts, gathers, ...) raises CannotExport and names the operation.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from weft.rl.export import Graph, Traced

ROWS = 7919

SAME = {
    "abs": "Abs",
    "add": "Add",
    "add_any": "Add",
    "and": "And",
    "ceil": "Ceil",
    "copy": "Identity",
    "copy_p": "Identity",
    "cos": "Cos",
    "div": "Div",
    "eq": "Equal",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "le": "LessOrEqual",
    "log": "Log",
    "logistic": "Sigmoid",
    "lt": "Less",
    "max": "Max",
    "min": "Min",
    "mul": "Mul",
    "neg": "Neg",
    "not": "Not",
    "or": "Or",
    "pow": "Pow",
    "sign": "Sign",
    "sin": "Sin",
    "sqrt": "Sqrt",
    "stop_gradient": "Identity",
    "sub": "Sub",
    "tanh": "Tanh",
}
REDUCTIONS = {"reduce_max": "ReduceMax", "reduce_min": "ReduceMin", "reduce_prod": "ReduceProd"}
CALLS = ("jaxpr", "call_jaxpr", "fun_jaxpr")


class CannotExport(ValueError):
    """The policy has something that ONNX cannot say."""


def write_jax(graph: Graph, function: Callable[..., Any], params: Mapping[str, Traced], inputs: Traced) -> Any:
    """What `function(params, inputs)` gives, as values of the graph."""
    import jax

    described: Any = jax.ShapeDtypeStruct
    shapes = {name: described(value.sample.shape, value.sample.dtype) for name, value in params.items()}
    rows = described((ROWS, *inputs.sample.shape[1:]), inputs.sample.dtype)
    program, outputs = jax.make_jaxpr(function, return_shape=True)(shapes, rows)
    names = [params[name].name for name in sorted(params)]  # the order of a dictionary's leaves
    writer = _Writer(graph, inputs.name)
    found = writer.write(program.jaxpr, program.consts, [*names, inputs.name])
    leaves, tree = jax.tree.flatten(outputs)
    for leaf in leaves:
        if leaf.shape[:1] != (ROWS,):
            raise CannotExport(f"the network gives an array of shape {leaf.shape} that is not one row an observation")
    traced = type(inputs)
    values = [
        traced(graph, name, np.zeros((1, *leaf.shape[1:]), leaf.dtype), True)
        for name, leaf in zip(found, leaves, strict=True)
    ]
    return jax.tree.unflatten(tree, values)


class _Writer:
    """Writes the operations of a traced program, one after the other."""

    def __init__(self, graph: Graph, inputs: str) -> None:
        self._graph = graph
        shape = graph.raw("Shape", [inputs])
        self._rows = graph.raw("Slice", [shape, self._constant([0]), self._constant([1])])

    def write(self, program: Any, constants: list[Any], inputs: list[str]) -> list[str]:
        """The names of the outputs."""
        names: dict[Any, str] = dict(zip(program.invars, inputs, strict=True))
        for variable, value in zip(program.constvars, constants, strict=True):
            names[variable] = self._graph.constant(np.asarray(value)).name

        def name_of(atom: Any) -> str:
            if hasattr(atom, "val"):
                return self._graph.constant(np.asarray(atom.val, atom.aval.dtype)).name
            return names[atom]

        for equation in program.eqns:
            given = [name_of(atom) for atom in equation.invars]
            made = self._operation(equation, given)
            names.update(zip(equation.outvars, made, strict=True))
        return [name_of(atom) for atom in program.outvars]

    def _operation(self, equation: Any, given: list[str]) -> list[str]:
        kind, settings = equation.primitive.name, equation.params
        inner = next((settings[name] for name in CALLS if name in settings), None)
        if inner is not None and kind not in ("scan", "while", "cond"):
            closed = hasattr(inner, "jaxpr")
            program, constants = (inner.jaxpr, inner.consts) if closed else (inner, [])
            return self.write(program, constants, given)
        if kind in SAME:
            return [self._graph.raw(SAME[kind], given)]
        if kind in REDUCTIONS:
            return [self._graph.raw(REDUCTIONS[kind], given, axes=list(settings["axes"]), keepdims=0)]
        write = getattr(self, f"_{kind}", None)
        if write is None:
            raise CannotExport(f"the network uses JAX's {kind!r}, which has no counterpart in ONNX here")
        made = write(equation, given)
        return made if isinstance(made, list) else [made]

    # ---- operations that are not one node of the same meaning ----

    def _rsqrt(self, equation: Any, given: list[str]) -> str:
        return self._graph.raw("Reciprocal", [self._graph.raw("Sqrt", given)])

    def _square(self, equation: Any, given: list[str]) -> str:
        return self._graph.raw("Mul", given * 2)

    def _expm1(self, equation: Any, given: list[str]) -> str:
        return self._graph.raw("Sub", [self._graph.raw("Exp", given), self._number(1, equation)])

    def _log1p(self, equation: Any, given: list[str]) -> str:
        return self._graph.raw("Log", [self._graph.raw("Add", [*given, self._number(1, equation)])])

    def _exp2(self, equation: Any, given: list[str]) -> str:
        return self._graph.raw("Pow", [self._number(2, equation), *given])

    def _integer_pow(self, equation: Any, given: list[str]) -> str:
        return self._graph.raw("Pow", [*given, self._number(equation.params["y"], equation)])

    def _ne(self, equation: Any, given: list[str]) -> str:
        return self._graph.raw("Not", [self._graph.raw("Equal", given)])

    def _clamp(self, equation: Any, given: list[str]) -> str:
        low, value, high = given
        return self._graph.raw("Min", [self._graph.raw("Max", [value, low]), high])

    def _select_n(self, equation: Any, given: list[str]) -> str:
        which, *cases = given
        if len(cases) != 2 or equation.invars[0].aval.dtype != np.bool_:
            raise CannotExport("the network chooses among more than two arrays (select_n)")
        return self._graph.raw("Where", [which, cases[1], cases[0]])

    def _convert_element_type(self, equation: Any, given: list[str]) -> str:
        return self._cast(given[0], equation.params["new_dtype"])

    def _reshape(self, equation: Any, given: list[str]) -> str:
        return self._reshaped(given[0], equation.outvars[0].aval.shape)

    _squeeze = _expand_dims = _reshape

    def _broadcast_in_dim(self, equation: Any, given: list[str]) -> str:
        shape, places = equation.params["shape"], equation.params["broadcast_dimensions"]
        sizes = dict(zip(places, equation.invars[0].aval.shape, strict=True))
        widened = self._reshaped(given[0], tuple(sizes.get(place, 1) for place in range(len(shape))))
        return self._graph.raw("Expand", [widened, self._sizes(shape)])

    def _transpose(self, equation: Any, given: list[str]) -> str:
        return self._graph.raw("Transpose", given, perm=list(equation.params["permutation"]))

    def _concatenate(self, equation: Any, given: list[str]) -> str:
        return self._graph.raw("Concat", given, axis=equation.params["dimension"])

    def _split(self, equation: Any, given: list[str]) -> list[str]:
        sizes, axis = equation.params["sizes"], equation.params["axis"]
        starts = np.cumsum([0, *sizes])
        bounds = zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)
        return [self._sliced(given[0], [axis], [start], [stop], [1]) for start, stop in bounds]

    def _slice(self, equation: Any, given: list[str]) -> str:
        starts, stops = equation.params["start_indices"], equation.params["limit_indices"]
        strides = equation.params["strides"] or (1,) * len(starts)
        shape = equation.invars[0].aval.shape
        axes = [axis for axis, size in enumerate(shape) if (starts[axis], stops[axis], strides[axis]) != (0, size, 1)]
        if any(shape[axis] % ROWS == 0 for axis in axes):
            raise CannotExport("the network takes some rows of the batch apart from others (slice)")
        parts = ([values[axis] for axis in axes] for values in (starts, stops, strides))
        return self._sliced(given[0], axes, *parts)

    def _reduce_sum(self, equation: Any, given: list[str]) -> str:
        return self._graph.raw("ReduceSum", [given[0], self._constant(equation.params["axes"])], keepdims=0)

    def _argmax(self, equation: Any, given: list[str]) -> str:
        (axis,) = equation.params["axes"]
        return self._cast(self._graph.raw("ArgMax", given, axis=axis, keepdims=0), equation.params["index_dtype"])

    def _iota(self, equation: Any, given: list[str]) -> str:
        shape, dimension = equation.params["shape"], equation.params["dimension"]
        if shape[dimension] % ROWS == 0:
            raise CannotExport("the network numbers the rows of the batch (iota)")
        small = [size if place == dimension else 1 for place, size in enumerate(shape)]
        numbers = np.arange(shape[dimension], dtype=equation.params["dtype"]).reshape(small)
        return self._graph.raw("Expand", [self._graph.constant(numbers).name, self._sizes(shape)])

    def _dot_general(self, equation: Any, given: list[str]) -> str:
        (contracted, contracted_right), (shared, shared_right) = equation.params["dimension_numbers"]
        letters = iter(string.ascii_lowercase)
        left = [next(letters) for _ in equation.invars[0].aval.shape]
        right = [next(letters) for _ in equation.invars[1].aval.shape]
        for ours, theirs in zip([*contracted, *shared], [*contracted_right, *shared_right], strict=True):
            right[theirs] = left[ours]
        free = [letter for place, letter in enumerate(left) if place not in (*contracted, *shared)]
        free += [letter for place, letter in enumerate(right) if place not in (*contracted_right, *shared_right)]
        result = [left[place] for place in shared] + free
        return self._graph.raw("Einsum", given, equation=f"{''.join(left)},{''.join(right)}->{''.join(result)}")

    def _conv_general_dilated(self, equation: Any, given: list[str]) -> str:
        settings = equation.params
        if any(size != 1 for size in settings["lhs_dilation"]) or settings["batch_group_count"] != 1:
            raise CannotExport("the network has a transposed convolution, which is not written as ONNX")
        spec = settings["dimension_numbers"]
        images = self._graph.raw("Transpose", [given[0]], perm=list(spec.lhs_spec))
        kernel = self._graph.raw("Transpose", [given[1]], perm=list(spec.rhs_spec))
        made = self._graph.raw(
            "Conv",
            [images, kernel],
            strides=list(settings["window_strides"]),
            dilations=list(settings["rhs_dilation"]),
            pads=[low for low, _ in settings["padding"]] + [high for _, high in settings["padding"]],
            group=settings["feature_group_count"],
        )
        return self._graph.raw("Transpose", [made], perm=np.argsort(spec.out_spec).tolist())

    # ---- parts of these ----

    def _constant(self, numbers: Any) -> str:
        return self._graph.constant(np.asarray(numbers, np.int64)).name

    def _number(self, number: float, equation: Any) -> str:
        return self._graph.constant(np.asarray(number, equation.outvars[0].aval.dtype)).name

    def _cast(self, name: str, dtype: Any) -> str:
        return self._graph.raw("Cast", [name], to=self._graph.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def _sliced(self, name: str, axes: list[int], starts: list[int], stops: list[int], strides: list[int]) -> str:
        return self._graph.raw("Slice", [name, *map(self._constant, (starts, stops, axes, strides))])

    def _reshaped(self, name: str, shape: tuple[int, ...]) -> str:
        return self._graph.raw("Reshape", [name, self._sizes(shape)], allowzero=0)

    def _sizes(self, shape: tuple[int, ...]) -> str:
        """A shape as the file computes it: sizes that depend on the number of rows from the input's."""
        if not any(size and size % ROWS == 0 for size in shape):
            return self._constant(shape)
        parts = []
        for size in shape:
            is_rows = bool(size) and size % ROWS == 0
            times = self._constant([size // ROWS if is_rows else size])
            parts.append(self._graph.raw("Mul", [self._rows, times]) if is_rows else times)
        return self._graph.raw("Concat", parts, axis=0)
