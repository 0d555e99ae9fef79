"""Results of batches that an earlier run has made: `map_batches(function, checkpoint=folder)`. Runs in workers.

RES-1 A result is found by all that it was made of: the rows of its batch, the function's own code, and the plain values
      that it is called with, closes over or names. What has changed in these is another batch. What the function calls
      is not looked at.
RES-2 A result counts when its file is whole: it comes by a rename, and one that cannot be read is made again.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import CodeType
from typing import Any

import pyarrow as pa

from weft.data.block import concatenate
from weft.library.storage import open_storage


@dataclass(frozen=True)
class Checkpoint:
    """Where results are kept, and of which function."""

    folder: str
    made_by: str

    def results(self, batch: pa.Table, make: Callable[[], Iterator[pa.Table]]) -> pa.Table:
        """What `make` gives of the batch, or gave in an earlier run."""
        storage, name = open_storage(self.folder), self._name(batch)
        found = _read(storage.read(name))
        if found is None:
            found = concatenate(list(make()))
            storage.write(name, _written(found))
        return found

    def _name(self, batch: pa.Table) -> str:
        digest = hashlib.blake2b(self.made_by.encode(), digest_size=16)
        digest.update(_written(batch.combine_chunks()))
        number = digest.hexdigest()
        return f"{number[:2]}/{number}.arrow"


def checkpoint_of(folder: str, callee: Any, given: Any) -> Checkpoint:
    """For a function or a class, and what it is called with. A folder is that which its name says here."""
    made_by = hashlib.blake2b("\0".join([_plain(given), *_told(callee)]).encode())
    return Checkpoint(open_storage(folder).root, made_by.hexdigest())


def _told(callee: Any) -> Iterator[str]:
    """What is known of a function, a method, a class or an object that is called."""
    if isinstance(callee, partial):
        yield _plain([callee.args, callee.keywords])
        yield from _told(callee.func)
        return
    function = inspect.unwrap(getattr(callee, "__func__", callee))
    yield f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"
    if inspect.isfunction(function):
        found = inspect.getclosurevars(function)
        yield _plain([function.__defaults__, function.__kwdefaults__, found.nonlocals, found.globals])
        yield from _code(function.__code__)
        return
    if not isinstance(function, type):
        yield _plain(getattr(function, "__dict__", {}))
    methods = vars(function if isinstance(function, type) else type(function))
    for name in sorted(methods):
        if inspect.isfunction(methods[name]):
            yield from _told(methods[name])


def _code(code: CodeType) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:  # a set has another order in each process
            yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


def _plain(given: Any) -> str:
    return json.dumps(given, default=lambda one: type(one).__qualname__, skipkeys=True, sort_keys=True)


def _written(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _read(written: bytes | None) -> pa.Table | None:
    try:
        return None if written is None else pa.ipc.open_stream(written).read_all()
    except (pa.ArrowException, OSError):
        return None
