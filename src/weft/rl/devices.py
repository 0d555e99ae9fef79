"""A learner on several devices: the batch is split among them, the parameters are the same on all.

XLA adds up the gradients by itself once it is told how arrays lie (`jax.sharding`), so an update computes on several
devices what it computes on one, up to the order of additions.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from weft.library.settings import SettingError


class Devices:
    """Some devices of this process; with one, arrays are left as they are."""

    def __init__(self, count: int = 1) -> None:
        available = jax.devices()
        if count > len(available):
            raise SettingError(
                f"devices is {count}, but JAX has {len(available)} of the kind {available[0].platform!r}; "
                "XLA_FLAGS=--xla_force_host_platform_device_count=N makes N of a CPU"
            )
        self.count = count
        self._mesh = Mesh(available[:count], ("data",)) if count > 1 else None

    def split(self, arrays: Any, axis: int) -> Any:
        """Inside a compiled function: each device has its part along this axis."""
        return self._laid(arrays, PartitionSpec(*[None] * axis, "data"))  # type: ignore[no-untyped-call]

    def whole(self, arrays: Any) -> Any:
        """Inside a compiled function: each device has all of it."""
        return self._laid(arrays, PartitionSpec())  # type: ignore[no-untyped-call]

    def _laid(self, arrays: Any, spec: PartitionSpec) -> Any:
        if self._mesh is None:
            return arrays
        return jax.lax.with_sharding_constraint(arrays, NamedSharding(self._mesh, spec))  # type: ignore[no-untyped-call]
