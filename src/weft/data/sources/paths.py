"""Paths: globs, folders and fsspec URLs, to files with their sizes; opening and reading them."""

from __future__ import annotations

import contextlib
import glob
import io
import os
from collections.abc import Iterator, Sequence
from typing import IO, Any

from weft.data.errors import ReadError


def is_remote(path: str) -> bool:
    return "://" in path and not path.startswith("file://")


def local_path(path: str) -> str:
    return os.path.expanduser(path.removeprefix("file://"))


def expand(given: Any, extensions: Sequence[str]) -> list[tuple[str, int]]:
    """(path, bytes) of all files that are meant, sorted within each glob or folder. In a folder only files with one of
    the extensions count, and none whose name begins with a dot or an underscore."""
    paths = [given] if isinstance(given, str | os.PathLike) else list(given)
    if not paths:
        raise ValueError("paths must name at least one file, but is empty")
    found: list[tuple[str, int]] = []
    for path in [str(os.fspath(path)) for path in paths]:
        files = _remote_files(path, extensions) if is_remote(path) else _local_files(local_path(path), extensions)
        if not files:
            raise FileNotFoundError(f"no file matches {path}")
        found.extend(files)
    return found


def _local_files(path: str, extensions: Sequence[str]) -> list[tuple[str, int]]:
    if os.path.isdir(path):
        files = []
        for folder, folders, names in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
            files += [os.path.join(folder, name) for name in sorted(names) if _counts(name, extensions)]
    elif os.path.exists(path):
        files = [path]
    else:
        files = sorted(name for name in glob.glob(path, recursive=True) if os.path.isfile(name))
    return [(file, os.path.getsize(file)) for file in files]


def _remote_files(url: str, extensions: Sequence[str]) -> list[tuple[str, int]]:
    import fsspec

    system, path = fsspec.core.url_to_fs(url)
    if system.isdir(path):
        names = [name for name in sorted(system.find(path)) if _counts(os.path.basename(name), extensions)]
    elif system.exists(path):
        names = [path]
    else:
        names = sorted(system.glob(path))
    return [(str(system.unstrip_protocol(name)).removeprefix("file://"), int(system.size(name) or 0)) for name in names]


def _counts(name: str, extensions: Sequence[str]) -> bool:
    return not name.startswith((".", "_")) and (not extensions or name.endswith(tuple(extensions)))


@contextlib.contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """The file for reading bytes; ReadError if it cannot be opened."""
    with contextlib.ExitStack() as stack:
        try:
            if is_remote(path):
                import fsspec

                file: IO[bytes] = stack.enter_context(fsspec.open(path, "rb"))
            else:
                file = stack.enter_context(open(path, "rb"))
        except OSError as error:
            raise ReadError(path, f"{type(error).__name__}: {error}") from None
        yield file


def scannable(path: str) -> str | io.BytesIO:
    """What Polars can scan: a local path, or the bytes of a remote file."""
    if not is_remote(path):
        return path
    with opened(path) as file:
        return io.BytesIO(file.read())
