"""Programs that show what Weft is for: `weft demo`, `weft demo NAME`, `weft demo --list`.

Each module here is one program on the public API with a `main(options)`; reading it is as good as running it. Nothing
here is imported by the engine or the libraries.
"""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from pathlib import Path

DEFAULT = "loop"


@dataclasses.dataclass(frozen=True)
class Options:
    """What all demos can be told."""

    short: bool = False
    """Some seconds instead of the whole story."""
    plot: Path = Path("weft-demo.svg")
    """Where a demo that draws something puts it."""


@dataclasses.dataclass(frozen=True)
class Demo:
    name: str
    summary: str
    needs: tuple[str, ...] = ()
    """Packages beside Weft's own dependencies."""
    extra: str = ""
    """Which extra of Weft brings them."""

    @property
    def missing(self) -> list[str]:
        """Those packages that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]

    def run(self, options: Options) -> None:
        if self.missing:
            raise RuntimeError(
                f"the demo {self.name} needs {' and '.join(self.missing)}, not installed here: "
                f"pip install 'weft[{self.extra}]'"
            )
        importlib.import_module(f"weft.demos.{self.name}").main(options)


ALL = (
    Demo(
        "loop",
        "simulate, train and serve in one program, while a worker is killed; about two minutes",
        ("gymnasium", "jax", "optax", "safetensors"),
        "rl",
    ),
    Demo("engine", "a tour of tasks, actors and objects"),
    Demo("tune", "weft.tune: a search that stops bad trials early", ("optuna",), "tune"),
    Demo("rl", "weft.rl: PPO learns to balance a pole", ("gymnasium", "jax", "optax", "safetensors"), "rl"),
    Demo("serve", "weft.serve: replicas, batches and new weights while requests come in"),
    Demo("train", "weft.train: data-parallel training, a worker killed in mid-run"),
    Demo("data", "weft.data: two million rows of Parquet, grouped on all cores", ("polars", "pyarrow"), "data"),
    Demo("pandas", "weft.pandas: one changed import line", ("pandas", "pyarrow"), "pandas"),
)
BY_NAME = {demo.name: demo for demo in ALL}
