"""What a node of its own says of itself."""

from __future__ import annotations

import os
from typing import Any

from weft.engine.cluster.client import Client


def test_a_node_alone_can_be_asked_too(weft_session: Any) -> None:
    found = Client(weft_session.init(ignore_reinit_error=True)["address"]).ask("status")
    (node,) = found["nodes"]
    assert node["total"]["CPU"] == 2
    assert [job["pid"] for job in found["jobs"]] == [os.getpid()]
