"""The small id types."""

from __future__ import annotations

import os
import pickle

import pytest

from weft import ids
from weft.ids import ActorClassID, ActorID, BaseID, ClusterID, FunctionID, JobID, NodeID, PlacementGroupID, WorkerID

SIZES = {JobID: 4, ActorID: 16, NodeID: 16, WorkerID: 28, FunctionID: 28, ActorClassID: 28, ClusterID: 28}


@pytest.mark.parametrize("cls", [*SIZES, PlacementGroupID, ids.TaskID])
def test_an_id_is_its_bytes(cls: type[BaseID]) -> None:
    size = SIZES.get(cls, cls.size())
    data = os.urandom(size)
    one = cls(data)
    assert cls.size() == one.size() == size
    assert one == cls.from_binary(data) == cls.from_hex(one.hex()) == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(cls(data))
    assert one.binary() == data
    assert not one.is_nil()
    assert cls.nil().is_nil()
    assert cls.nil().hex() == "ff" * size


def test_ids_of_two_kinds_are_never_equal() -> None:
    data = bytes(28)
    assert FunctionID(data) != WorkerID(data)
    assert len({FunctionID(data), WorkerID(data)}) == 2


def test_a_wrong_length_is_refused() -> None:
    with pytest.raises(ValueError, match="must have 4 bytes, but got 5"):
        JobID(b"12345")
    with pytest.raises(TypeError, match="made of bytes, but got str"):
        JobID("1234")  # type: ignore[arg-type]


def test_a_job_has_a_number() -> None:
    assert JobID.from_int(7).int() == 7
