"""The server beside a daemon: started, and started again when it ends before it is up."""

from __future__ import annotations

import secrets
import select

import pytest

from weft.net.loop import Loop
from weft.store import server_process
from weft.store.served_store import ServedStore
from weft.store.server_shell import ServerConfig
from weft.store.state.chain_rows import Put


def test_a_server_that_can_not_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[None] = []
    command = server_process.python_command

    def failing_at_first(*words: str) -> list[str]:
        tried.append(None)
        return ["false"] if len(tried) == 1 else command(*words)

    monkeypatch.setattr(server_process, "python_command", failing_at_first)
    loop = Loop()
    store = ServedStore(loop, secrets.token_bytes(32), "127.0.0.1", lambda: None)
    written: list[str] = []

    def done(_: object, error: str) -> None:
        written.append(error)
        loop.stop()

    try:
        store.found(lambda: None)
        store.write([Put("kv", b"key", b"value")], done)
        loop.call_later(60, loop.stop)
        loop.run()
    finally:
        store.close()
        loop.close()
    assert written == [""] and len(tried) == 2
    assert "the control store's server of this node ended (1)" in capsys.readouterr().err


def test_a_server_whose_node_ends_before_it_has_heard_that_it_is_up_ends_in_peace() -> None:
    server = server_process.RunningServer(ServerConfig(server_process.new_name()), secrets.token_bytes(32))
    assert select.select([server], [], [], 60)[0]
    server.end()
    assert server.process.returncode == 0
