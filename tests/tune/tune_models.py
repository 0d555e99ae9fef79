"""Small things to tune."""

from __future__ import annotations

import math
from typing import Any

from weft.tune import Trainable


class Curve(Trainable):
    """A loss that falls from 1 to (x - 0.3)², the faster the nearer x is."""

    def setup(self, config: dict[str, Any]) -> None:
        self.t = 0

    def step(self) -> dict[str, Any]:
        self.t += 1
        floor = (self.config["x"] - 0.3) ** 2
        return {"loss": floor + (1 - floor) * math.exp(-self.t / 10)}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"t": self.t}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.t = checkpoint["t"]


class Walker(Trainable):
    """Goes `speed` a step; what it has walked is its state."""

    def setup(self, config: dict[str, Any]) -> None:
        self.distance = 0.0

    def step(self) -> dict[str, Any]:
        self.distance += self.config["speed"]
        return {"distance": self.distance}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"distance": self.distance}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.distance = checkpoint["distance"]
