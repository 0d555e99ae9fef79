"""What `tune_quality.py` searches: learning curves with known truth, a surrogate of real ones, and one for PBT.

A problem is a class like `tune.Trainable` with a `space`, a `max_t` and a `tally`, which notes every step of every
trial: what was reported, and what is true.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from weft import tune

HARTMANN_A = ((3.0, 10, 30), (0.1, 10, 35), (3.0, 10, 30), (0.1, 10, 35))
HARTMANN_C = (1.0, 1.2, 3.0, 3.2)
HARTMANN_P = (
    (0.3689, 0.1170, 0.2673),
    (0.4699, 0.4387, 0.7470),
    (0.1091, 0.8732, 0.5547),
    (0.0381, 0.5743, 0.8828),
)


class Tally:
    """The incumbent after any number of steps of all trials together: who reported the lowest loss, noise included;
    and its true loss, without noise. So nobody is better for having drawn more noise."""

    def __init__(self) -> None:
        self.steps = 0
        self._lowest = math.inf
        self._trace: list[tuple[int, float]] = []

    def note(self, reported: float, true: float) -> None:
        self.steps += 1
        if reported < self._lowest:
            self._lowest = reported
            self._trace.append((self.steps, true))

    def at(self, steps: int) -> float:
        return next(true for when, true in reversed(self._trace) if when <= steps)


class Problem(tune.Trainable):
    space: dict[str, Any]
    max_t = 81
    tally = Tally()

    @classmethod
    def with_tally(cls, tally: Tally) -> type[Problem]:
        return type(cls.__name__, (cls,), {"tally": tally})


class Curve(Problem):
    """loss(t) = floor + (1 - floor) * exp(-t / tau) + noise, where floor and tau depend on the configuration."""

    def setup(self, config: dict[str, Any]) -> None:
        self.t = 0
        self.floor, self.tau = self.shape(config)
        self.noise = random.Random(repr(sorted(config.items())))

    def shape(self, config: dict[str, Any]) -> tuple[float, float]:
        raise NotImplementedError

    def step(self) -> dict[str, Any]:
        self.t += 1
        loss = self.floor + (1 - self.floor) * math.exp(-self.t / self.tau)
        reported = loss + self.noise.gauss(0, 0.005)
        self.tally.note(reported, loss)
        return {"loss": reported}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"t": self.t, "noise": self.noise.getstate()}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.t = checkpoint["t"]
        self.noise.setstate(checkpoint["noise"])


class Crossing(Curve):
    """Fast learners end high. The lowest loss is 0.05."""

    space: dict[str, Any] = {"lr": tune.loguniform(1e-4, 1), "decay": tune.uniform(0, 1)}  # noqa: RUF012

    def shape(self, config: dict[str, Any]) -> tuple[float, float]:
        speed = (math.log10(config["lr"]) + 4) / 4  # 0 slow … 1 fast
        return 0.05 + 0.3 * (speed - 0.6) ** 2 + 0.2 * (config["decay"] - 0.4) ** 2, 2 + 30 * (1 - speed)


class Hartmann(Curve):
    """Curves fall to the 3-dimensional Hartmann function, scaled; speed differs. The lowest loss is 0.02."""

    space: dict[str, Any] = {key: tune.uniform(0, 1) for key in "abc"}  # noqa: RUF012

    def shape(self, config: dict[str, Any]) -> tuple[float, float]:
        x = [config[key] for key in "abc"]
        value = sum(
            c * math.exp(-sum(a * (xi - p) ** 2 for a, xi, p in zip(row_a, x, row_p, strict=True)))
            for c, row_a, row_p in zip(HARTMANN_C, HARTMANN_A, HARTMANN_P, strict=True)
        )
        return max(0.02, (3.8628 - value) / 4), 5 + 25 * x[0]


class LCBench(Problem):
    """Real learning curves, of networks on OpenML's data sets: YAHPO Gym's surrogate of LCBench (Zimmer et al. 2021,
    Pfisterer et al. 2022). The loss is the share of validation examples that are wrong, in percent."""

    max_t = 52
    space: dict[str, Any] = {  # noqa: RUF012
        "batch_size": tune.lograndint(16, 513),
        "learning_rate": tune.loguniform(1e-4, 0.1),
        "momentum": tune.uniform(0.1, 0.99),
        "weight_decay": tune.uniform(1e-5, 0.1),
        "num_layers": tune.randint(1, 6),
        "max_units": tune.lograndint(64, 1025),
        "max_dropout": tune.uniform(0, 1),
    }
    surrogate: Any
    task_code: int

    def setup(self, config: dict[str, Any]) -> None:
        self.t = 0
        self._rest = tuple(float(config[key]) for key in self.space)
        self._losses: list[float] = []

    def _loss_at(self, epoch: int) -> float:
        """Predicted in pieces that grow: most trials end early."""
        while len(self._losses) < epoch:
            self._losses += self._predicted(len(self._losses) + 1, min(max(3 * len(self._losses), 1), self.max_t))
        return self._losses[epoch - 1]

    def _predicted(self, first: int, last: int) -> list[float]:
        import numpy as np

        numbers = np.array([[epoch, *self._rest] for epoch in range(first, last + 1)], np.float32)
        codes = np.full((len(numbers), 1), self.task_code, np.int32)
        (predicted,) = self.surrogate.run(None, {"x_cat": codes, "x_cont": numbers})
        return [100.0 - float(row[1]) for row in predicted]  # row[1] is val_accuracy

    def step(self) -> dict[str, Any]:
        self.t += 1
        loss = self._loss_at(self.t)
        self.tally.note(loss, loss)
        return {"loss": loss}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"t": self.t, "losses": self._losses}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.t, self._losses = checkpoint["t"], checkpoint["losses"]


def lcbench_problems(folder: str, tasks: tuple[str, ...] = ("167168", "189873", "189906")) -> list[type[Problem]]:
    """The tasks that YAHPO's own suite has. `folder` is `lcbench` of the repository slds-lmu/yahpo_data."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    surrogate = onnxruntime.InferenceSession(str(Path(folder, "model.onnx")), options)
    codes = json.loads(Path(folder, "encoding.json").read_text())["OpenML_task_id"]
    return [
        type(f"LCBench {task}", (LCBench,), {"surrogate": surrogate, "task_code": codes[task]})  # type: ignore[misc]
        for task in tasks
    ]


class Drifting(Problem):
    """A problem that wants a schedule: the loss falls fastest at a learning rate that sinks from 0.1 to 0.001."""

    max_t = 200
    space: dict[str, Any] = {"lr": tune.loguniform(1e-4, 1), "decay": tune.uniform(0, 1)}  # noqa: RUF012

    def setup(self, config: dict[str, Any]) -> None:
        self.t, self.loss = 0, 1.0
        self.noise = random.Random(repr(sorted(config.items())))

    def step(self) -> dict[str, Any]:
        off = math.log10(self.config["lr"]) + 1 + 2 * self.t / self.max_t
        self.loss *= 1 - 0.04 * math.exp(-2 * off**2 - 4 * (self.config["decay"] - 0.3) ** 2)
        self.t += 1
        reported = self.loss * (1 + self.noise.gauss(0, 0.02))
        self.tally.note(reported, self.loss)
        return {"loss": reported}

    def save_checkpoint(self, checkpoint_dir: str) -> dict[str, Any]:
        return {"t": self.t, "loss": self.loss}

    def load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.t, self.loss = checkpoint["t"], checkpoint["loss"]
