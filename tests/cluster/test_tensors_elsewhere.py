"""Tensors on another node, and made again after it died."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from clusters import THERE, TwoNodes

import weft

SIZE = 200_000


@weft.remote
def weights(number: int) -> Any:
    import torch

    return {"w": torch.full((SIZE,), number, dtype=torch.bfloat16), "n": np.full(SIZE, number)}


def test_tensors_come_from_another_node_and_are_made_again_when_it_dies(two_nodes: TwoNodes) -> None:
    torch = pytest.importorskip("torch")
    read, lost = weights.options(**THERE).remote(3), weights.options(**THERE).remote(4)
    weft.wait([read, lost], num_returns=2, fetch_local=False)
    value = weft.get(read)
    assert value["w"].dtype is torch.bfloat16
    assert (value["w"] == 3).all()
    value["w"].fill_(0)
    assert (weft.get(read)["w"] == 3).all()
    two_nodes.cluster.add_node(num_cpus=2, resources={"there": 9})
    two_nodes.cluster.remove_node(two_nodes.other, allow_graceful=False)
    again = weft.get(lost, timeout=60, writable=True)
    assert (again["w"] == 4).all()
    again["n"][:] = 0
    assert (weft.get(lost)["n"] == 4).all()
