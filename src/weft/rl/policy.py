"""A policy to act with: weights and the way to use them, in NumPy alone. It can be pickled, sent and served."""

from __future__ import annotations

import copy
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.rl.behaviours import Behaviour
from weft.rl.networks import WeightLayout
from weft.rl.spaces import ActionDecoder, ObservationEncoder


class Policy:
    """Chooses actions for observations as the environment gives them.

    >>> policy = PPO(env="CartPole-v1").policy           # doctest: +SKIP
    >>> policy.act(observation)                          # doctest: +SKIP
    1
    """

    def __init__(
        self,
        behaviour: Behaviour,
        encoder: ObservationEncoder,
        decoder: ActionDecoder,
        layout: WeightLayout,
        weights: NDArray[np.float32],
        seed: int = 0,
    ) -> None:
        self._behaviour = copy.deepcopy(behaviour)
        self._encoder = encoder
        self._decoder = decoder
        self._params = layout.unpack(weights)
        self._rng = np.random.default_rng(seed)

    @classmethod
    def from_checkpoint(cls, folder: str | os.PathLike[str], **settings: Any) -> Policy:
        """The policy of a checkpoint, of whatever algorithm; the settings replace the saved ones."""
        from weft.rl.registry import load

        with load(folder, **{**settings, "workers": 0}) as algorithm:
            policy: Policy = algorithm.policy
        return policy

    def act(self, observation: Any, explore: bool = False) -> Any:
        """The action for one observation; with `explore` drawn as in training."""
        return self.act_batch([observation], explore)[0]

    def act_batch(self, observations: Any, explore: bool = False) -> Any:
        """Actions for several observations at once, a list of ints or an array."""
        encoded = np.stack([self._encoder.encode(observation) for observation in observations])
        if self._encoder.dtype != encoded.dtype:
            encoded = encoded.astype(self._encoder.dtype)
        if not explore:
            return self._decoder.decode(self._behaviour.best(self._params, encoded))
        self._behaviour.begin(self._rng, 1, len(encoded), 0.0)
        return self._decoder.decode(self._behaviour.act(self._params, encoded, 0))

    def export_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the policy without exploration as an ONNX file, which `weft.rl.export` describes; needs `onnx`."""
        from weft.rl.export import export_onnx

        export_onnx(path, self._behaviour, self._encoder, self._decoder, self._params)

    def reset(self) -> None:
        """Forget what a policy with a memory has seen: call it when an episode begins."""
        self._behaviour.begin(self._rng, 1, 0, 0.0)

    __call__ = act
