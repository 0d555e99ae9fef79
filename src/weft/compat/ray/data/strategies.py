"""How Ray Data runs functions and chooses files, as arguments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TaskPoolStrategy:
    """In tasks."""

    size: int | None = None


@dataclass(frozen=True)
class ActorPoolStrategy:
    """In actors: so many, or as many as `min_size`."""

    size: int | None = None
    min_size: int | None = None
    max_size: int | None = None
    initial_size: int | None = None
    max_tasks_in_flight_per_actor: int | None = None

    @property
    def actors(self) -> int:
        """A number that does not change while it runs."""
        return self.size or self.max_size or self.min_size or 2


class FileExtensionFilter:
    """A filter of paths: those with one of the endings."""

    def __init__(self, file_extensions: str | Sequence[str], allow_if_no_extension: bool = False) -> None:
        given = [file_extensions] if isinstance(file_extensions, str) else list(file_extensions)
        self.file_extensions = tuple("." + name.lstrip(".").lower() for name in given)
        self.allow_if_no_extension = allow_if_no_extension

    def __call__(self, paths: Sequence[str]) -> list[str]:
        """Those of them."""
        return [path for path in paths if self._fits(path.rpartition("/")[2].lower())]

    def _fits(self, name: str) -> bool:
        return name.endswith(self.file_extensions) or (self.allow_if_no_extension and "." not in name)
