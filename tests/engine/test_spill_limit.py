"""What may be spilled to disk can be limited."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest

import weft
from weft.exceptions import ObjectStoreFullError

MIB = 1 << 20


def test_no_more_is_spilled_than_the_limit_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("WEFT_SPILL_LIMIT", str(32 * MIB))
    weft.init(num_cpus=1, object_store_memory=64 * MIB)
    try:
        refs = [weft.put(np.full(8 * MIB, fill, dtype=np.uint8)) for fill in range(9)]
        with pytest.raises(ObjectStoreFullError, match="WEFT_SPILL_LIMIT lets no more than 33554432 bytes be spilled"):
            refs += [weft.put(np.full(8 * MIB, fill, dtype=np.uint8)) for fill in range(9, 20)]
        assert all(int(weft.get(ref)[-1]) == fill for fill, ref in enumerate(refs[:2]))
        del refs
        again = [weft.put(np.full(8 * MIB, fill, dtype=np.uint8)) for fill in range(9)]
        assert int(weft.get(again[8])[0]) == 8, "what was given back may be used again"
    finally:
        weft.shutdown()


def test_who_must_spill_waits_for_a_disk_that_is_full() -> None:
    weft.init(num_cpus=1, object_store_memory=64 * MIB)
    try:
        refs = [weft.put(np.full(8 * MIB, fill, dtype=np.uint8)) for fill in range(7)]
        [daemon] = psutil.Process().children()
        before = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (0, before[1]))
        timer = threading.Timer(0.5, resource.prlimit, (daemon.pid, resource.RLIMIT_FSIZE, before))
        timer.start()
        refs += [weft.put(np.full(8 * MIB, fill, dtype=np.uint8)) for fill in range(7, 10)]
        timer.join()
        assert [int(weft.get(ref)[-1]) for ref in refs] == list(range(10))
    finally:
        weft.shutdown()


def test_a_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_SPILL_LIMIT", "lots")
    with pytest.raises(RuntimeError, match="WEFT_SPILL_LIMIT must be a number of bytes, but got 'lots'"):
        weft.init(num_cpus=1)
