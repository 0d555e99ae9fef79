"""How long the dashboard's server lives, and where there is none."""

from __future__ import annotations

import os

import psutil
from dashboard_site import Site

import weft
from waiting import children_named


def test_the_server_ends_with_its_node_however_that_ends() -> None:
    context = weft.init(num_cpus=1)
    url = context.dashboard_url
    assert url is not None
    Site(url).get("/")
    children = psutil.Process().children(recursive=True)
    (daemon,) = children_named(os.getpid(), "weft-node")
    daemon.kill()
    assert not psutil.wait_procs(children, timeout=30)[1]
    weft.shutdown()


def test_without_a_session_of_processes_there_is_no_dashboard() -> None:
    context = weft.init(local_mode=True)
    try:
        assert context.dashboard_url is None
    finally:
        weft.shutdown()
