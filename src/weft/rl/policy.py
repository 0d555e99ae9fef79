"""A policy to act with: weights and the way to use them, in NumPy alone. It can be pickled, saved, sent and served."""

from __future__ import annotations

import copy
import os
from pathlib import Path
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
        algorithm: str = "",
    ) -> None:
        self._behaviour = copy.deepcopy(behaviour)
        self._encoder = encoder
        self._decoder = decoder
        self._params = layout.unpack(weights)
        self._seed = seed
        self._generator: np.random.Generator | None = None
        self.algorithm = algorithm

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Policy:
        """The policy of a file that `save` wrote, or of a checkpoint's `policy.safetensors`. Takes NumPy alone."""
        policy = cls._read(path)
        if policy is None:
            from weft.rl.policy_file import PolicyFileError

            raise PolicyFileError(
                f"{path} has weights alone: its network is a program, or it has several policies; use "
                "Policy.from_checkpoint with the checkpoint's folder"
            )
        return policy

    @classmethod
    def from_checkpoint(cls, folder: str | os.PathLike[str], **settings: Any) -> Policy:
        """The policy of a checkpoint, of whatever algorithm: its `policy.safetensors` is read and nothing else.

        Where that cannot describe the policy (a network of your own, several agents) the algorithm is built, which
        takes JAX and the environment; the settings then replace the saved ones.
        """
        file = Path(folder) / "policy.safetensors"
        policy = cls._read(file) if file.exists() else None
        if policy is None:
            from weft.rl.registry import load

            with load(folder, **{**settings, "workers": 0}) as algorithm:
                policy = algorithm.policy
        return policy

    @classmethod
    def _read(cls, path: str | os.PathLike[str]) -> Policy | None:
        from weft.rl.policy_file import read_policy

        parts = read_policy(path)
        if parts is None:
            return None
        layout = WeightLayout(parts.params)
        weights = layout.pack(parts.params)
        return cls(parts.behaviour, parts.encoder, parts.decoder, layout, weights, parts.seed, parts.algorithm)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the policy to one safetensors file, which `weft.rl.load` and `Policy.load` read."""
        from weft.rl.policy_file import metadata_of, write_policy

        metadata = metadata_of(self.algorithm, self._behaviour, self._encoder, self._decoder, self._seed)
        return write_policy(path, self._params, metadata)

    @property
    def _rng(self) -> np.random.Generator:
        """Made at its first use: importing numpy.random takes longer than reading a policy."""
        if self._generator is None:
            self._generator = np.random.default_rng(self._seed)
        return self._generator

    def act(self, observation: Any, explore: bool = False) -> Any:
        """The action for one observation; with `explore` drawn as in training."""
        return self.act_batch([observation], explore)[0]

    def act_batch(self, observations: Any, explore: bool = False) -> Any:
        """Actions for several observations at once, a list of ints or an array."""
        encoded = self._encoded(observations)
        if not explore:
            return self._decoder.decode(self._behaviour.best(self._params, encoded))
        self._behaviour.begin(self._rng, 1, len(encoded), 0.0)
        return self._decoder.decode(self._behaviour.act(self._params, encoded, 0))

    @property
    def remembers(self) -> bool:
        """Whether it has a memory of its episode."""
        return self._behaviour.remembers

    def act_remembering(self, observations: Any, memories: list[Any], explore: bool = False) -> tuple[Any, list[Any]]:
        """Actions for the next observations of several episodes, and what is remembered of each then. `memories`: what
        was remembered of them before, None where one begins."""
        recall = getattr(self._behaviour, "recall", None)
        if recall is None:
            raise TypeError(f"the policy of {self.algorithm} has no memory that could be kept for it: use act_batch")
        recall(memories)
        actions = self.act_batch(observations, explore)
        return actions, [self._behaviour.memory_of(index) for index in range(len(memories))]

    def action_inputs(self, observations: Any) -> NDArray[np.float32] | None:
        """The numbers that the action distribution takes, for several observations: logits, or means and then
        logarithms of standard deviations. None for a policy that has a memory, or values of actions instead."""
        model: Any = getattr(self._behaviour, "model", None)
        if self._behaviour.remembers or not hasattr(model, "action_inputs"):
            return None
        inputs: NDArray[np.float32] = model.action_inputs(np, self._params, self._encoded(observations))
        return inputs

    def _encoded(self, observations: Any) -> NDArray[Any]:
        encoded = np.stack([self._encoder.encode(observation) for observation in observations])
        return encoded if self._encoder.dtype == encoded.dtype else encoded.astype(self._encoder.dtype)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> tuple[Any, None]:
        """`act`, as Stable-Baselines3 calls it: (action, None), drawn as in training unless `deterministic`.

        A batch of observations gives a batch of actions. A memory is kept here, so `state` is ignored; where
        `episode_start` says that one begins, what was seen before is forgotten.
        """
        if episode_start is not None and np.all(episode_start):
            self.reset()
        shape = self._encoder.space.shape
        if shape is not None and np.shape(observation) != shape and np.shape(observation)[1:] == shape:
            return np.asarray(self.act_batch(observation, not deterministic)), None
        return self.act(observation, not deterministic), None

    def export_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the policy without exploration as an ONNX file, which `weft.rl.export` describes; needs `onnx`."""
        from weft.rl.export import export_onnx

        export_onnx(path, self._behaviour, self._encoder, self._decoder, self._params)

    def reset(self) -> None:
        """Forget what a policy with a memory has seen: call it when an episode begins."""
        self._behaviour.begin(self._rng, 1, 0, 0.0)

    __call__ = act
