"""Identifiers of jobs, tasks, actors, nodes and workers: small, immutable, comparable byte strings.

They are for people and for dictionaries; the engine itself passes plain bytes. An object's identifier is its
`weft.ObjectRef`. Nothing here talks to a running session.

>>> JobID.from_int(7).hex()
'07000000'
>>> JobID.nil().is_nil()
True
"""

from __future__ import annotations

import builtins
import hashlib
import os
from typing import Any, ClassVar, TypeVar

__all__ = [
    "ActorClassID",
    "ActorID",
    "BaseID",
    "ClusterID",
    "FunctionID",
    "JobID",
    "NodeID",
    "PlacementGroupID",
    "TaskID",
    "UniqueID",
    "WorkerID",
]

AnyID = TypeVar("AnyID", bound="BaseID")


class BaseID:
    """Bytes of a fixed length with a type, so that a node's id never equals a worker's."""

    __slots__ = ("_binary",)
    _size: ClassVar[int] = 28

    def __init__(self, binary: bytes) -> None:
        if not isinstance(binary, bytes):
            raise TypeError(f"{type(self).__name__} must be made of bytes, but got {type(binary).__name__}")
        if len(binary) != self._size:
            raise ValueError(f"{type(self).__name__} must have {self._size} bytes, but got {len(binary)}")
        self._binary = binary

    @classmethod
    def from_binary(cls: type[AnyID], binary: bytes) -> AnyID:
        """Of bytes that `binary()` gave."""
        return cls(binary)

    @classmethod
    def from_hex(cls: type[AnyID], text: str) -> AnyID:
        """Of text that `hex()` gave."""
        return cls(bytes.fromhex(text))

    @classmethod
    def from_random(cls: type[AnyID]) -> AnyID:
        """A new one."""
        return cls(os.urandom(cls._size))

    @classmethod
    def nil(cls: type[AnyID]) -> AnyID:
        """The id that stands for none: all bits set."""
        return cls(b"\xff" * cls._size)

    @classmethod
    def size(cls) -> int:
        """How many bytes it has."""
        return cls._size

    def binary(self) -> bytes:
        """Its bytes."""
        return self._binary

    def hex(self) -> str:
        """As text; `from_hex()` is the way back."""
        return self._binary.hex()

    def is_nil(self) -> bool:
        """Whether it stands for none."""
        return self._binary == b"\xff" * self._size

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._binary == self._binary

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._binary))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._binary.hex()})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._binary,)


class UniqueID(BaseID):
    """Of a thing that has no shorter id of its own kind."""

    __slots__ = ()


class JobID(BaseID):
    """One driver's run: four bytes, or eight where a node has had more drivers than two bytes can count.

    >>> JobID.from_int(1 << 40).hex()
    '0000000000010000'
    """

    __slots__ = ()
    _size = 4
    _long = 8

    def __init__(self, binary: bytes) -> None:
        if isinstance(binary, bytes) and len(binary) == self._long:
            self._binary = binary
        else:
            super().__init__(binary)

    @classmethod
    def from_int(cls, number: builtins.int) -> JobID:
        """Of the job's number."""
        return cls(number.to_bytes(cls._size if number < 1 << 8 * cls._size else cls._long, "little"))

    def int(self) -> builtins.int:
        """The job's number."""
        return builtins.int.from_bytes(self._binary, "little")


class TaskID(BaseID):
    """One task; its attempts share it."""

    __slots__ = ()
    _size = 12


class ActorID(BaseID):
    """One actor; its incarnations share it."""

    __slots__ = ()
    _size = 16


class NodeID(BaseID):
    """One node of the cluster."""

    __slots__ = ()
    _size = 16


class WorkerID(UniqueID):
    """One worker process."""

    __slots__ = ()


def worker_id(node_id: str, slot: int, generation: int) -> WorkerID:
    """Of the process that a node has in that slot; the same for all who ask, the process itself included."""
    text = f"{node_id} {slot} {generation}"
    return WorkerID(hashlib.blake2b(text.encode(), digest_size=WorkerID.size()).digest())


class FunctionID(UniqueID):
    """One remote function."""

    __slots__ = ()


class ActorClassID(UniqueID):
    """One actor class."""

    __slots__ = ()


class ClusterID(UniqueID):
    """One cluster."""

    __slots__ = ()


class PlacementGroupID(BaseID):
    """One placement group."""

    __slots__ = ()
    _size = 18
