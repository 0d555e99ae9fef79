"""Clusters of real nodes on this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from clusters import TwoNodes

from weft.testing import Cluster


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Of a head alone."""
    made = Cluster(initialize_head=True)
    yield made
    made.shutdown()


@pytest.fixture
def two_nodes() -> Iterator[TwoNodes]:
    nodes = TwoNodes()
    try:
        yield nodes
    finally:
        nodes.close()


@pytest.fixture(scope="module")
def shared_two_nodes() -> Iterator[TwoNodes]:
    """For tests that leave the cluster as it was."""
    nodes = TwoNodes()
    try:
        yield nodes
    finally:
        nodes.close()
