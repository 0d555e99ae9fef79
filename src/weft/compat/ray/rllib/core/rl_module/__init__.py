"""`RLModule`: a policy of `weft.rl`, asked for the numbers that its action distribution takes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from weft.rl import Policy

__all__ = ["RLModule"]

_FILE = "policy.safetensors"


class RLModule:
    """Of `Algorithm.get_module()`, or of a checkpoint. There is no network of PyTorch's in it."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    @classmethod
    def from_checkpoint(cls, path: str | os.PathLike[str]) -> RLModule:
        """Of an algorithm's checkpoint, or of the place in it at which RLlib keeps the module."""
        given = Path(path)
        folder = next((each for each in (given, *given.parents) if (each / _FILE).exists()), None)
        if folder is None:
            raise FileNotFoundError(f"{given} is no checkpoint of an algorithm: there is no {_FILE} in it or above it")
        return cls(Policy.from_checkpoint(folder))

    def forward_inference(self, batch: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        """`actions` without exploration and, for policies that draw from a distribution, its `action_dist_inputs`
        (logits, or means and logarithms of standard deviations). Of PyTorch where the observations are."""
        seen = batch["obs"]
        observations = np.asarray(seen)
        told: dict[str, Any] = {"actions": np.asarray(self.policy.act_batch(observations))}
        inputs = self.policy.action_inputs(observations)
        if inputs is not None:
            told["action_dist_inputs"] = inputs
        if isinstance(seen, np.ndarray):
            return told
        import torch

        return {name: torch.from_numpy(np.array(value)) for name, value in told.items()}
