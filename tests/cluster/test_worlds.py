"""Five machines, one of which has trouble: nobody ends but that one. `make worlds` runs all that `cut_worlds` knows."""

from __future__ import annotations

import cut_worlds
import pytest

from weft.testing.network import is_available


@pytest.fixture(scope="module", autouse=True)
def _needs_namespaces() -> None:
    """Not asked when the module is imported: workers in namespaces import what a driver does."""
    if not is_available():
        pytest.skip("namespaces and bridges need root and iproute2")


@pytest.mark.parametrize("name", ["cut-node-6.5s", "stop-head-7s", "kill-zygote-of-head", "drop-large", "find-again"])
def test_one_machines_trouble_is_no_other_machines(name: str) -> None:
    with cut_worlds.machines() as world:
        cut_worlds.WORLDS[name](world)
