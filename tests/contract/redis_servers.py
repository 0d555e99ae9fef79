"""Redis servers for tests: real ones, on unix sockets, started and stopped by the tests themselves."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

INSTALL = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "redis-server"]


def redis_program() -> str:
    """The server's program, installed where that is possible; the test is skipped otherwise."""
    pytest.importorskip("redis", reason="the package redis is not installed")
    for name in ("valkey-server", "redis-server"):
        if (found := shutil.which(name)) is not None:
            return found
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-qq"], env=environment, capture_output=True, timeout=90, check=False)
        subprocess.run(INSTALL, env=environment, capture_output=True, timeout=110, check=False)
    found = shutil.which("redis-server")
    if found is None:
        pytest.skip("there is no redis-server, and it could not be installed: apt-get install redis-server")
    return found


class RedisServer:
    """One server in a folder of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.program = redis_program()
        self.folder = folder
        self.options = options
        folder.mkdir(exist_ok=True)
        self.socket = folder / "redis.sock"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis+unix://{self.socket}"

    def start(self) -> None:
        command = [self.program, "--port", "0", "--unixsocket", str(self.socket), "--dir", str(self.folder)]
        command += ["--save", "", "--appendonly", "yes", "--appendfsync", "no", "--daemonize", "no", *self.options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        import redis

        client = redis.Redis(unix_socket_path=str(self.socket))
        tick = threading.Event()
        deadline = time.monotonic() + 30
        while True:
            try:
                client.ping()
                break
            except redis.RedisError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise
                tick.wait(0.01)
        client.close()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
