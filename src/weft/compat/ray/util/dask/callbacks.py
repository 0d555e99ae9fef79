"""Callbacks of Dask on Ray: before and after a task is submitted, in its worker, and at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from dask.callbacks import Callback

_HOOKS = (
    "ray_presubmit",
    "ray_postsubmit",
    "ray_pretask",
    "ray_posttask",
    "ray_postsubmit_all",
    "ray_finish",
)
_active: set[RayDaskCallback] = set()


class RayDaskCallback(Callback):  # type: ignore[misc]
    """A base class: a subclass has `_ray_presubmit(task, key, deps)` and so on, or they are given as arguments.

    `ray_active` are those of the `with` statements around a call.
    """

    ray_active = _active

    def __init__(self, **kwargs: Any) -> None:
        for hook in _HOOKS:
            if (given := kwargs.pop(hook, None)) is not None:
                setattr(self, f"_{hook}", given)
        super().__init__(**kwargs)

    @property
    def _ray_callback(self) -> tuple[Any, ...]:
        return tuple(getattr(self, f"_{hook}", None) for hook in _HOOKS)

    def __enter__(self) -> RayDaskCallback:
        _active.add(self)
        super().__enter__()
        return self

    def __exit__(self, *args: object) -> None:
        _active.discard(self)
        super().__exit__(*args)

    def register(self) -> None:
        """For all calls from now on."""
        _active.add(self)
        super().register()

    def unregister(self) -> None:
        """The opposite."""
        _active.discard(self)
        super().unregister()


class Hooks:
    """The callbacks of a call, by what they are for."""

    def __init__(self, callbacks: list[Any]) -> None:
        for index, name in enumerate(_HOOKS):
            setattr(self, name, [callback[index] for callback in callbacks if callback[index] is not None])

    ray_presubmit: list[Any]
    ray_postsubmit: list[Any]
    ray_pretask: list[Any]
    ray_posttask: list[Any]
    ray_postsubmit_all: list[Any]
    ray_finish: list[Any]

    def of_tasks(self) -> tuple[list[Any], list[Any]]:
        """Those that run in the worker."""
        return self.ray_pretask, self.ray_posttask


def unpack_ray_callbacks(callbacks: Any) -> Hooks:
    """By what they are for."""
    return Hooks([getattr(callback, "_ray_callback", callback) for callback in callbacks or ()])


@contextlib.contextmanager
def local_ray_callbacks(callbacks: Any = None) -> Iterator[list[Any]]:
    """Those that are given, else those of the `with` statements around it."""
    if callbacks is not None and (
        isinstance(callbacks, RayDaskCallback) or not isinstance(callbacks, list | tuple | set)
    ):
        callbacks = [callbacks]
    yield list(callbacks) if callbacks is not None else list(_active)


class ProgressBarCallback(RayDaskCallback):
    """Shows how many tasks have been submitted, and that all have ended."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: Any = None

    def _ray_postsubmit_all(self, object_refs: list[Any], dsk: Any) -> None:
        from weft.compat.ray.experimental import tqdm_ray

        self._bar = tqdm_ray.tqdm(desc="dask", total=len(object_refs))

    def _ray_finish(self, result: Any) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.total or 0)
            self._bar.close()
