"""What others have named, written or answered reaches no terminal with control characters in it."""

from __future__ import annotations

import contextlib
import os
import pty
import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Head, runner

import weft
from waiting import wait_until
from weft.job_submission import JobSubmissionClient
from weft.net.auth import _OPENING, MAGIC, VERSION
from weft.net.tls import Certificate

HOSTILE = "evil\x1b]0;owned\x07\x1b[2J\x9b31m"


@weft.remote(num_cpus=0)
class Doomed:
    def die(self) -> None:
        os._exit(1)


@weft.remote
def never() -> None: ...


def test_no_command_shows_the_control_characters_of_names_that_others_chose(head: Head) -> None:
    client = JobSubmissionClient(head.address)
    with pytest.raises(ValueError, match="all of them visible"):
        client.submit_job(entrypoint="true", submission_id=HOSTILE)
    job = client.submit_job(entrypoint=f"echo '{HOSTILE}'; exit 3", metadata={HOSTILE: HOSTILE})
    client.wait_until_over(job)
    actor = Doomed.options(name=HOSTILE, namespace=HOSTILE).remote()
    with contextlib.suppress(weft.exceptions.WeftError):
        weft.get(actor.die.remote())
    waiting = never.options(name=HOSTILE, resources={HOSTILE: 1}).remote()
    wait_until(lambda: "evil" in head.cli("demand").stdout)
    for words in (
        ["status"],
        ["demand"],
        ["job", "list"],
        ["job", "status", job],
        ["job", "status", f"no {HOSTILE}"],
        ["list", "actors"],
        ["list", "cluster-events"],
        ["explain", waiting.task_id().hex()],
    ):
        ended = head.cli(*words)
        shown = ended.stdout + ended.stderr
        assert shown and not set(shown) & {"\x1b", "\x07", "\x9b"}, (words, shown)
    weft.cancel(waiting)


def test_a_terminal_gets_the_colours_of_a_job_and_no_other_sequence(head: Head) -> None:
    client = JobSubmissionClient(head.address)
    job = client.submit_job(entrypoint=r"printf '\033[31mred\033[0m \033]0;owned\007\033[2J\n'")
    client.wait_until_over(job)
    ours, theirs = pty.openpty()
    environment = {**os.environ, "XDG_STATE_HOME": str(head.state_folder), "WEFT_ADDRESS": head.address}
    command = [sys.executable, "-m", "weft.cli", "job", "logs", job]
    subprocess.run(command, stdout=theirs, env=environment, check=True, timeout=280)
    os.close(theirs)
    assert os.read(ours, 1000) == b"\x1b[31mred\x1b[0m ?]0;owned??[2J\r\n"
    os.close(ours)
    assert "\x1b]0;owned\x07" in head.cli("job", "logs", job).stdout, "files get what was written"


@pytest.fixture
def impostor() -> Iterator[str]:
    """One without the token, who refuses whoever comes with a reason of his own choice."""
    context = Certificate().context
    reason = HOSTILE.encode()

    def refuse(connection: socket.socket) -> None:
        with contextlib.suppress(OSError, ssl.SSLError), context.wrap_socket(connection, server_side=True) as link:
            link.recv(100)
            link.sendall(_OPENING.pack(MAGIC, VERSION, bytes(32)))
            link.recv(100)
            link.sendall(b"N" + struct.pack("<H", len(reason)) + reason)
            link.recv(1)

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                refuse(listener.accept()[0])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("command", ["status", "start"])
def test_the_reason_of_an_impostor_draws_nothing(impostor: str, command: str, tmp_path: Path) -> None:
    ended = runner(tmp_path)(command, "--address", impostor, WEFT_TOKEN="x" * 32)
    assert ended.returncode and "evil" in ended.stderr and not set(ended.stderr) & {"\x1b", "\x07", "\x9b"}
