"""Copies of local folders and archives, named by their content, so that later edits change nothing that runs.

Runs in the process that submits. A copy lies in the job's folder; two that are equal are one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator

from weft.environments import archives, ignore

MOST_BYTES = 512 << 20
"""More is hardly code; WEFT_RUNTIME_ENV_MOST_BYTES changes it."""
DEFAULT_EXCLUDES = ".git,.venv,venv,__pycache__"
_DEFAULTS_BY = ("WEFT_RUNTIME_ENV_DEFAULT_EXCLUDES", "RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES")
"""Variables that hold others; the first that is set counts."""
_CHUNK = 1 << 20


def most_bytes() -> int:
    """Of one folder or archive."""
    return int(os.environ.get("WEFT_RUNTIME_ENV_MOST_BYTES", MOST_BYTES))


class Copy:
    """One copy being made: counts its bytes and names it by them."""

    def __init__(self, source: str, target: str) -> None:
        self._source = source
        self._target = target
        self._hash = hashlib.blake2b(digest_size=16)
        self._bytes = 0
        self._most = most_bytes()

    @property
    def name(self) -> str:
        return self._hash.hexdigest()

    def add(self, source: str, inner: str) -> None:
        """One file, at `inner` in the copy."""
        path = os.path.join(self._target, inner)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        mode = os.stat(source).st_mode & 0o777
        self._hash.update(f"{inner}\0{mode:o}\0{os.path.getsize(source)}\0".encode("utf-8", "surrogateescape"))
        with open(source, "rb") as reader, open(path, "wb") as writer:
            while chunk := reader.read(_CHUNK):
                self._hash.update(chunk)
                self._count(len(chunk))
                writer.write(chunk)
        os.chmod(path, mode | 0o600)

    def add_folder(self, inner: str) -> None:
        """An empty one is a part of the content too."""
        self._hash.update(f"{inner}/\0".encode("utf-8", "surrogateescape"))
        os.makedirs(os.path.join(self._target, inner), exist_ok=True)

    def unpack(self, archive: str) -> None:
        """A .zip or .whl file."""
        with open(archive, "rb") as reader:
            while chunk := reader.read(_CHUNK):
                self._hash.update(chunk)
        self._count(archives.unpack(archive, self._target, self._most))

    def _count(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._most:
            raise ValueError(
                f"{self._source} is larger than {self._most >> 20} MiB, too large to be copied for a runtime "
                "environment. Leave files out with runtime_env['excludes'] or a .gitignore file, or set "
                "WEFT_RUNTIME_ENV_MOST_BYTES."
            )


def copy_working_dir(source: str, excludes: list[str], job_folder: str) -> str:
    """The copy of a folder or of what a .zip file holds."""
    with _making(source, job_folder) as made:
        copy, _ = made
        if os.path.isdir(source):
            _copy_folder(source, "", excludes, copy)
        else:
            copy.unpack(source)
    return _settle(made, job_folder)


def copy_module(source: str, excludes: list[str], job_folder: str) -> str:
    """The folder to put on the path so that a package's folder, a .py file or an archive's content can be imported."""
    with _making(source, job_folder) as made:
        copy, _ = made
        name = os.path.basename(source)
        if os.path.isdir(source):
            copy.add_folder(name)
            _copy_folder(source, name, excludes, copy)
        elif source.endswith(".py"):
            copy.add(source, name)
        else:
            copy.unpack(source)
    return _settle(made, job_folder)


@contextlib.contextmanager
def _making(source: str, job_folder: str) -> Iterator[tuple[Copy, str]]:
    target = tempfile.mkdtemp(prefix=".new-", dir=job_folder)
    try:
        yield Copy(source, target), target
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _settle(made: tuple[Copy, str], job_folder: str) -> str:
    copy, target = made
    final = os.path.join(job_folder, copy.name)
    try:
        os.rename(target, final)
    except OSError:
        shutil.rmtree(target, ignore_errors=True)
        if not os.path.isdir(final):
            raise
    return final


def _copy_folder(source: str, prefix: str, excludes: list[str], copy: Copy) -> None:
    defaults = next((os.environ[name] for name in _DEFAULTS_BY if name in os.environ), DEFAULT_EXCLUDES)
    first = ignore.parse([*(f"{name.strip()}/" for name in defaults.split(",") if name.strip()), *excludes])
    for path, inner in sorted(_walk(source, "", [("", first)], frozenset()), key=lambda pair: pair[1]):
        if os.path.isdir(path):
            copy.add_folder(os.path.join(prefix, inner))
        else:
            copy.add(path, os.path.join(prefix, inner))


def _walk(
    folder: str, inner: str, levels: list[tuple[str, list[ignore.Rule]]], above: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """(path, path inside) of all that is not left out. Links are followed, but not round in a circle."""
    real = os.path.realpath(folder)
    if real in above:
        return
    with contextlib.suppress(OSError), open(os.path.join(folder, ".gitignore"), encoding="utf-8") as file:
        # The patterns that were asked for are the last word.
        levels = [(inner, ignore.parse(file)), *levels] if not inner else [*levels, (inner, ignore.parse(file))]
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{inner}/{entry.name}" if inner else entry.name
            is_folder = entry.is_dir()
            if ignore.decide(levels, name, is_folder):
                continue
            if is_folder:
                yield entry.path, name
                yield from _walk(entry.path, name, levels, above | {real})
            elif entry.is_file():  # no sockets, pipes or dangling links
                yield entry.path, name
