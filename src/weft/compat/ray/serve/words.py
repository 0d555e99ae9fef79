"""Words of Ray 2.60 on Weft's handles and responses; put there when `ray.serve` is imported."""

from __future__ import annotations

from typing import Any

import weft
from weft.serve import DeploymentHandle, DeploymentResponse

_options = DeploymentHandle.options
_WITHOUT_EFFECT = frozenset(
    "_by_reference _prefer_local_routing use_new_handle_api request_serialization response_serialization".split()
)


def teach() -> None:
    """Once per process."""
    DeploymentHandle.options = _ray_options  # type: ignore[method-assign]
    DeploymentResponse._to_object_ref = _to_object_ref  # type: ignore[attr-defined]
    DeploymentResponse._to_object_ref_sync = _to_object_ref_sync  # type: ignore[attr-defined]


def _ray_options(self: DeploymentHandle, **given: Any) -> DeploymentHandle:
    """The same with other options. How values travel is Weft's affair."""
    return _options(self, **{name: value for name, value in given.items() if name not in _WITHOUT_EFFECT})


async def _to_object_ref(self: DeploymentResponse) -> Any:
    """A ref of the value, once it is there."""
    return weft.put(await self)


def _to_object_ref_sync(self: DeploymentResponse, timeout_s: float | None = None, **_: Any) -> Any:
    return weft.put(self.result(timeout_s))
