"""`weft doctor --security`: how the nodes of this user on this machine stand: ports, who reaches them, tokens, secrets.

Looks from outside, as a stranger would, and at the files and processes of this user. Nothing is changed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from weft.cli.verdicts import FAILURE, OK, WARNING, Verdict
from weft.engine.cluster import launch, tokens
from weft.engine.node import launch as nodes
from weft.machine import secrets
from weft.net.credentials import connect_to_own, peer_pid
from weft.net.shown import printable

SHORTEST_TOKEN = 16
PROBE_S = 5.0
"""A dashboard is only started when somebody comes."""
_BESIDE = f"@weft-port-{os.getuid()}-"
"""How the names of local sockets beside ports begin."""
_LISTENS = "0A"
"""The state in /proc/net/tcp."""
_WHAT = {"weft-node": "node port", "weft-control": "control store", "weft-worker": "port of a task or actor"}


@dataclass(frozen=True)
class Port:
    """One that a process of a node listens on."""

    host: str
    number: int
    what: str

    @property
    def is_local(self) -> bool:
        return self.host.startswith("127.") or self.host == "::1"


def examine() -> Iterator[Verdict]:
    running = nodes.find_nodes()
    if not running:
        yield Verdict("nodes", OK, "no node of this user runs on this machine")
    for name in running:
        pid = _daemon_of(name)
        if pid is None:
            continue
        yield Verdict("node", OK, f"{launch.cluster_of(name) or name} (pid {pid})")
        family = _family(pid)
        for port in sorted(_ports(family), key=lambda one: one.number):
            yield port_verdict(port, _seen_by_a_stranger(port))
        yield environment_verdict(_secrets_shown(family))
    yield from files(tokens.folder())
    yield names_verdict(set(_names_like_ours()) - set(running))
    for variable, what in (("WEFT_TRAIN_ENCRYPT", "groups of weft.train between machines"),):
        if os.environ.get(variable) == "0":
            yield Verdict("encryption", WARNING, f"{variable}=0: {what} are plain", "only on a fabric that you trust")


def port_verdict(port: Port, answer: bytes) -> Verdict:
    where = f"{port.host}:{port.number}"
    seen = (
        f"to a stranger it says {printable(answer.decode('latin-1'), 40)!r}"
        if answer
        else "it tells a stranger nothing"
    )
    reach = "this machine's users reach it" if port.is_local else "other machines reach it"
    if port.what in ("node port", "control store"):
        return Verdict(port.what, OK, f"{where}: {reach}; TLS, asks for the token; {seen}")
    if port.what == "dashboard":
        finding = f"{where}: {reach}; plain HTTP, asks for its token; {seen}"
        advice = (
            ""
            if port.is_local
            else "who listens on that network reads the token: use loopback and ssh -L, or a proxy with TLS"
        )
        return Verdict(port.what, OK if port.is_local else WARNING, finding, advice)
    advice = "" if port.is_local else "whatever listens there must check by itself who asks"
    return Verdict(port.what, OK if port.is_local else WARNING, f"{where}: {reach}; {seen}", advice)


def environment_verdict(found: Mapping[str, int]) -> Verdict:
    """`found`: the processes of the node by the secrets that their environment shows."""
    if found:
        shown = ", ".join(f"{name} (pid {pid})" for name, pid in found.items())
        return Verdict("environment", WARNING, f"tasks can read {shown}", "start the node again with this version")
    return Verdict("environment", OK, "no secret is in the environment of its processes")


def files(folder: Path) -> Iterator[Verdict]:
    """The folder of tokens and logs, and what lies in it."""
    if (mode := stat.S_IMODE(folder.stat().st_mode)) & 0o077:
        yield Verdict("state folder", WARNING, f"{folder} has mode {mode:o}", f"chmod 700 {folder}")
    found = sorted(folder.glob("token-*"))
    for path in found:
        status = path.stat()
        mode = stat.S_IMODE(status.st_mode)
        if mode & 0o077 or status.st_uid != os.getuid():
            why = f"has mode {mode:o}" if mode & 0o077 else f"belongs to user {status.st_uid}"
            advice = f"others may have it: end the cluster, chmod 600 {path}, and start it with another token"
            yield Verdict("token", FAILURE, f"{path} {why}", advice)
        else:
            yield Verdict("token", OK, f"{path} is readable by this user only")
            yield from _strength(path)
    if not found:
        yield Verdict("token", OK, f"there is none in {folder}")


def _strength(path: Path) -> Iterator[Verdict]:
    """Who stands between two nodes cannot use what he hears, but can try guesses on it at home."""
    if len(path.read_bytes().strip()) < SHORTEST_TOKEN:
        advice = "use the one that `weft start --head` makes, or 32 random characters"
        yield Verdict("token", WARNING, f"{path} has fewer than {SHORTEST_TOKEN} characters", advice)


def names_verdict(strange: set[str]) -> Verdict:
    if strange:
        shown = ", ".join(printable(name) for name in sorted(strange)[:5])
        return Verdict(
            "local sockets", WARNING, f"another user has bound {shown}", "they are ignored; ask who does that"
        )
    return Verdict("local sockets", OK, "nobody else has sockets under names of this user")


# ---- looking ---------------------------------------------------------------------------------------


def _daemon_of(name: str) -> int | None:
    with contextlib.suppress(OSError), connect_to_own(name, socket.SOCK_SEQPACKET, PROBE_S) as connection:
        return peer_pid(connection)
    return None


def _family(pid: int) -> list[int]:
    """The process and all below it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                # A process chooses its name: any bytes, also brackets.
                fields = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def _ports(family: list[int]) -> set[Port]:
    listening: dict[str, tuple[str, int]] = {}
    for table, is_six in (("/proc/net/tcp", False), ("/proc/net/tcp6", True)):
        with contextlib.suppress(OSError), open(table) as lines:
            for line in lines.readlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENS:
                    listening[f"socket:[{fields[9]}]"] = _address(fields[1], is_six)
    found: dict[tuple[str, int], str] = {}
    for pid in family:
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
            if b"weft.dashboard" in Path(f"/proc/{pid}/cmdline").read_bytes():
                name = "dashboard"
            for entry in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    address = listening.get(os.readlink(f"/proc/{pid}/fd/{entry}"))
                    if address is not None:
                        found.setdefault(address, name)
    return {Port(*address, _what(address, name)) for address, name in found.items()}


def _what(address: tuple[str, int], name: str) -> str:
    """The daemon has its own port, with a local socket beside it, and, until somebody comes, the dashboard's."""
    if name != "weft-node":
        return _WHAT.get(name, name)
    is_node = any(local.startswith(_BESIDE) and local.endswith(f":{address[1]}") for local in _local_names())
    return "node port" if is_node else "dashboard"


def _address(text: str, is_six: bool) -> tuple[str, int]:
    host, _, port = text.partition(":")
    raw = bytes.fromhex(host)
    words = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    return socket.inet_ntop(socket.AF_INET6 if is_six else socket.AF_INET, words), int(port, 16)


def _seen_by_a_stranger(port: Port) -> bytes:
    """The first line of what it answers to HTTP without a token."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(port.host, port.host)
    with contextlib.suppress(OSError), socket.create_connection((host, port.number), PROBE_S) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return connection.recv(200).partition(b"\r\n")[0]
    return b""


def _secrets_shown(family: list[int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for pid in family:
        with contextlib.suppress(OSError):
            given = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            for name in secrets.NAMES:
                if any(one.startswith(f"{name}=".encode()) and len(one) > len(name) + 1 for one in given):
                    found.setdefault(name, pid)
    return found


def _names_like_ours() -> Iterator[str]:
    prefixes = (f"@weft-{os.getuid()}-", _BESIDE)
    return (name for name in _local_names() if name.startswith(prefixes) and nodes.is_foreign(name))


def _local_names() -> Iterator[str]:
    with contextlib.suppress(OSError), open("/proc/net/unix", encoding="utf-8", errors="replace") as table:
        for line in table:
            if len(fields := line.split()) == 8:
                yield fields[7]
