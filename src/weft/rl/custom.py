"""Networks of users in the place of the built-in ones: Flax modules, or a pair of plain JAX functions.

    network = MyFlaxModule()                                   # a flax.linen module
    network = MyModule(rngs=nnx.Rngs(0))                       # a flax.nnx module, whose weights are the first ones
    network = lambda rngs: MyModule(rngs=rngs)                 # one that is made with the run's seed
    network = (init, apply)                                    # init(key, observations) -> parameters, any tree
                                                               # apply(parameters, observations) -> outputs

`observations` is a batch [N, ...] with the structure of the environment's space: an array for a Box, a dictionary for a
Dict, a tuple for a Tuple; choices are one-hot, images stay uint8. The outputs are features [N, k], on which the
algorithm puts its own heads, or for algorithms with a policy and a value the pair (inputs of the action distribution,
values), which replaces the heads too.

The learner calls the function inside its compiled update. A worker, which has NumPy arrays, jits it: such workers
import JAX, on the CPU.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.library.settings import SettingError
from weft.rl.names import named
from weft.rl.networks import MLP, Params
from weft.rl.nnx import nnx_functions
from weft.rl.spaces import ObservationEncoder


class CustomNetwork:
    """A user's network under a name: its parameters are called "<name><path in the tree>"."""

    def __init__(self, name: str, network: Any, encoder: ObservationEncoder) -> None:
        self.name = name
        self._encoder = encoder
        self._init, self._apply = _functions_of(named(network, "network"))
        self._structure: tuple[list[str], Any] | None = None
        self._jitted: Any = None
        self.outputs: Any = self._output_shapes()

    @property
    def is_whole(self) -> bool:
        """Whether it gives (inputs of the action distribution, values) instead of features."""
        return isinstance(self.outputs, tuple)

    @property
    def features(self) -> int:
        """How many features it gives; SettingError if it gives something else."""
        if self.is_whole or len(self.outputs) != 1:
            raise SettingError(
                f"network: here features [N, k] are needed, on which the algorithm puts its own heads, but for a batch "
                f"of N observations the network gives {self.outputs}"
            )
        return int(self.outputs[0])

    def init(self, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
        import jax

        tree = self._init(jax.random.key(int(rng.integers(2**31))), self._example())
        names, _ = self._names_and_tree()
        return {name: np.asarray(leaf, np.float32) for name, leaf in zip(names, jax.tree.leaves(tree), strict=True)}

    def apply(self, xp: Any, params: Params, encoded: Any) -> Any:
        """Outputs for encoded observations [..., *shape]."""
        leading = encoded.shape[: encoded.ndim - len(self._encoder.shape)]
        flat = encoded.reshape(-1, *self._encoder.shape)
        names, _ = self._names_and_tree()
        if hasattr(xp, "apply_jax"):  # an `xp` of our own, which writes a graph
            return xp.apply_jax(self._outputs, {name: params[name] for name in names}, flat)
        if xp is np:
            if self._jitted is None:
                self._jitted = _jit(self._outputs)
            outputs = self._jitted({name: params[name] for name in names}, flat)
        else:
            outputs = self._outputs(params, flat)
        parts = outputs if isinstance(outputs, tuple) else (outputs,)
        shaped = tuple(xp.asarray(part).reshape(*leading, *part.shape[1:]) for part in parts)
        return shaped if isinstance(outputs, tuple) else shaped[0]

    def _outputs(self, params: Params, flat: Any) -> Any:
        import jax

        names, tree = self._names_and_tree()
        own = jax.tree.unflatten(tree, [params[name] for name in names])
        outputs = self._apply(own, self._encoder.structured(flat))
        if not isinstance(outputs, tuple):
            return outputs
        inputs, values = outputs
        return inputs, values.reshape(values.shape[:1])

    def _names_and_tree(self) -> tuple[list[str], Any]:
        """The parameters' names in the order of the tree's leaves, and the tree's structure."""
        import jax

        if self._structure is None:
            shapes = jax.eval_shape(self._init, jax.random.key(0), self._example())
            leaves, tree = jax.tree_util.tree_flatten_with_path(shapes)
            for path, leaf in leaves:
                if not jax.numpy.issubdtype(leaf.dtype, np.floating):
                    raise SettingError(
                        f"network: its parameter {jax.tree_util.keystr(path)} is of {leaf.dtype}, but all parameters "
                        "are trained and must be floating-point numbers; keep constants in the function"
                    )
            self._structure = [f"{self.name}{jax.tree_util.keystr(path)}" for path, _ in leaves], tree
        return self._structure

    def _example(self) -> Any:
        return self._encoder.structured(np.zeros((1, *self._encoder.shape), self._encoder.dtype))

    def _output_shapes(self) -> Any:
        """Of one observation: a shape, or a tuple of two."""
        import jax

        def outputs() -> Any:
            return self._apply(self._init(jax.random.key(0), self._example()), self._example())

        shapes = jax.eval_shape(outputs)
        parts = shapes if isinstance(shapes, tuple) else (shapes,)
        if len(parts) > 2 or any(getattr(part, "shape", (0,))[:1] != (1,) for part in parts):
            raise SettingError(
                f"network: for a batch of one observation it must give features [1, k] or the pair (action inputs "
                f"[1, k], values [1]), but gives {shapes}"
            )
        return tuple(part.shape[1:] for part in parts) if isinstance(shapes, tuple) else list(parts[0].shape[1:])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_structure": None, "_jitted": None}


@dataclasses.dataclass(frozen=True)
class Headed:
    """A custom network with dense layers on its features, in the place of an MLP.

    The last `beside` columns of the inputs (an action) do not go through the network but straight to the layers.
    """

    network: CustomNetwork
    head: MLP
    beside: int = 0

    def init(self, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
        return {**self.network.init(rng), **self.head.init(rng)}

    def apply(self, xp: Any, params: Params, inputs: Any) -> Any:
        if not self.beside:
            return self.head.apply(xp, params, self.network.apply(xp, params, inputs))
        features = self.network.apply(xp, params, inputs[..., : -self.beside])
        return self.head.apply(xp, params, xp.concatenate([features, inputs[..., -self.beside :]], axis=-1))


def _functions_of(network: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """(init, apply) of what a user gave."""
    if isinstance(network, tuple | list) and len(network) == 2 and all(callable(part) for part in network):
        return network[0], network[1]
    found = nnx_functions(network)
    if found is not None:
        return found
    init, apply = getattr(network, "init", None), getattr(network, "apply", None)
    if not callable(init) or not callable(apply) or isinstance(network, type):
        raise SettingError(
            "network must be a Flax module (an instance; for NNX also a function of nnx.Rngs that makes one) or a pair "
            f"of functions (init, apply), but got {network!r}"
        )
    return _FlaxInit(network), apply


class _FlaxInit:
    """A Flax module's `init` that refuses what has more than parameters, such as running means."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __call__(self, key: Any, observations: Any) -> Any:
        variables = self._module.init(key, observations)
        if isinstance(variables, dict) and set(variables) - {"params"}:
            raise SettingError(
                f"network: {type(self._module).__name__} has the collections {sorted(variables)}, but only parameters "
                "are learnt and sent to workers; use layers without running statistics, such as LayerNorm"
            )
        return variables


def _jit(function: Callable[..., Any]) -> Callable[..., Any]:
    import jax

    return jax.jit(function)
