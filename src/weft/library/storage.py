"""Where a run lies: a folder of this machine or an fsspec URL. Used by drivers and by processes of runs.

STORE-1  What `write` and a local `put_folder` make is there whole or not at all, whenever the writer is killed: it
         comes by a rename, and what it replaces goes by one. Behind a URL that holds for each file; a folder there
         counts when the ledger names it, which is after its last file.
STORE-2  `append` adds to a log. A local log is one file; behind a URL, where files cannot grow, it is numbered parts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["LocalStorage", "Storage", "UrlStorage", "new_folder", "open_storage", "pack", "unpack"]


class Storage:
    """Names are relative paths with slashes."""

    root: str

    def write(self, name: str, data: bytes) -> None:
        raise NotImplementedError

    def append(self, name: str, data: bytes) -> None:
        raise NotImplementedError

    def read(self, name: str) -> bytes | None:
        """The bytes of a file, None when there is none."""
        raise NotImplementedError

    def read_log(self, name: str) -> bytes | None:
        """All that was appended."""
        raise NotImplementedError

    def cut_log(self, name: str, length: int) -> None:
        """Drop what lies after so many bytes: the torn end of a killed writer."""
        raise NotImplementedError

    def sync_log(self, name: str) -> None:
        """Until the log is on the disk."""

    def put_folder(self, source: Path, name: str) -> None:
        """Move a local folder to its place."""
        raise NotImplementedError

    def folder(self, name: str) -> contextlib.AbstractContextManager[Path]:
        """A local folder with what lies under a name, to read."""
        raise NotImplementedError

    def staging(self) -> str | None:
        """Where folders should be made so that `put_folder` is a rename; None for anywhere."""
        return None

    def exists(self, name: str) -> bool:
        raise NotImplementedError

    def delete_folder(self, name: str) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Let go of files."""


class LocalStorage(Storage):
    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(os.path.expanduser(root))
        self._logs: dict[str, int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalStorage, (self.root,)

    def path(self, name: str) -> str:
        return os.path.join(self.root, name)

    def write(self, name: str, data: bytes) -> None:
        target = self.path(name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        partial = f"{target}.{os.getpid()}.partial"
        with open(partial, "wb") as file:
            file.write(data)
        os.replace(partial, target)

    def append(self, name: str, data: bytes) -> None:
        descriptor = self._log(name)
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]

    def _log(self, name: str) -> int:
        descriptor = self._logs.get(name)
        if descriptor is None:
            target = self.path(name)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            descriptor = self._logs[name] = os.open(
                target, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
            )
        return descriptor

    def read(self, name: str) -> bytes | None:
        try:
            with open(self.path(name), "rb") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def read_log(self, name: str) -> bytes | None:
        return self.read(name)

    def cut_log(self, name: str, length: int) -> None:
        os.truncate(self.path(name), length)

    def sync_log(self, name: str) -> None:
        if name in self._logs:
            os.fdatasync(self._logs[name])

    def delete_log(self, name: str) -> None:
        """Close and delete it, if it is there."""
        descriptor = self._logs.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(name))

    def put_folder(self, source: Path, name: str) -> None:
        target = self.path(name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        spare = tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=self.staging())
        if source.stat().st_dev != os.stat(spare).st_dev:  # another file system: copy beside the target first
            copied = Path(shutil.copytree(source, os.path.join(spare, "new")))
            shutil.rmtree(source, ignore_errors=True)
            source = copied
        if os.path.exists(target):  # nobody knows of it: its writer was killed before the ledger named it
            os.rename(target, os.path.join(spare, "old"))
        os.rename(source, target)
        shutil.rmtree(spare, ignore_errors=True)

    @contextlib.contextmanager
    def folder(self, name: str) -> Iterator[Path]:
        yield Path(self.path(name))

    def staging(self) -> str | None:
        os.makedirs(self.path(".staging"), exist_ok=True)
        return self.path(".staging")

    def exists(self, name: str) -> bool:
        return os.path.exists(self.path(name))

    def delete_folder(self, name: str) -> None:
        shutil.rmtree(self.path(name), ignore_errors=True)

    def close(self) -> None:
        for descriptor in self._logs.values():
            os.close(descriptor)
        self._logs.clear()


class UrlStorage(Storage):
    """Through fsspec: s3://, gs://, memory://, …"""

    def __init__(self, root: str) -> None:
        try:
            import fsspec
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                f"storage at {root} needs fsspec: pip install 'weft[tune]'", name="fsspec"
            ) from error
        self.root = root.rstrip("/")
        self._files: Any
        self._files, self._base = fsspec.core.url_to_fs(self.root)
        self._parts: dict[str, int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return UrlStorage, (self.root,)

    def path(self, name: str) -> str:
        return f"{self._base}/{name}"

    def write(self, name: str, data: bytes) -> None:
        self._files.makedirs(self.path(name).rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(self.path(name), data)

    def append(self, name: str, data: bytes) -> None:
        if name not in self._parts:
            self._parts[name] = len(self._part_names(name))
        self.write(f"{name}.parts/{self._parts[name]:08d}", data)
        self._parts[name] += 1

    def _part_names(self, name: str) -> list[str]:
        self._files.invalidate_cache()
        folder = self.path(f"{name}.parts")
        return sorted(self._files.ls(folder, detail=False)) if self._files.exists(folder) else []

    def read(self, name: str) -> bytes | None:
        try:
            return bytes(self._files.cat_file(self.path(name)))
        except FileNotFoundError:
            return None

    def read_log(self, name: str) -> bytes | None:
        parts = self._part_names(name)
        return b"".join(bytes(self._files.cat_file(part)) for part in parts) if parts else None

    def cut_log(self, name: str, length: int) -> None:
        """A part is whole or not there, so there is no torn end."""

    def put_folder(self, source: Path, name: str) -> None:
        for path in sorted(source.rglob("*")):
            if path.is_file():
                self.write(f"{name}/{path.relative_to(source).as_posix()}", path.read_bytes())
        shutil.rmtree(source, ignore_errors=True)

    @contextlib.contextmanager
    def folder(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="weft-tune-") as local:
            base = self.path(name)
            self._files.invalidate_cache()
            for remote in self._files.find(base):
                target = Path(local, remote[len(base) :].lstrip("/"))
                if ".." in target.parts:
                    raise PermissionError(f"{remote} is not taken: its name leads out of the folder {name}")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(self._files.cat_file(remote))
            yield Path(local)

    def exists(self, name: str) -> bool:
        self._files.invalidate_cache()
        return bool(self._files.exists(self.path(name)))

    def delete_folder(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.rm(self.path(name), recursive=True)


def open_storage(path: str | os.PathLike[str]) -> Storage:
    """A folder, or what fsspec knows by the URL's scheme."""
    text = os.fspath(path)
    if text.startswith("file://"):
        text = text[len("file://") :]
    return UrlStorage(text) if "://" in text else LocalStorage(text)


def pack(folder: Path) -> dict[str, bytes]:
    """The files of a folder, to send."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def unpack(files: Mapping[str, bytes], folder: Path) -> None:
    for name, data in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def new_folder(storage: Storage | None) -> Path:
    """An empty folder for a checkpoint in the making."""
    staging = storage.staging() if storage is not None else None
    return Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=staging))
