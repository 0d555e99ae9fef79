"""The node daemon's entry: import little, make the segment, fork the zygote while there is one thread, then serve.

    python -P -c "..." PACKAGE_FOLDER CONFIG

CONFIG is config.NodeConfig as JSON. Exits 0 when it was asked to end; otherwise with the reason on standard error, 1, 3
when its cluster has ended, or 4 when that goes on without it (`state.instructions.Ending`). In the last case a node of
`weft start` comes back by itself instead (`cluster/returning`).
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys

import msgspec

from weft import _native
from weft.engine.node import zygote
from weft.engine.node.config import NodeConfig, NodeOffer, decide
from weft.machine import own_log, secrets, strays
from weft.machine.start_error import StartError
from weft.observe import event_records


def main() -> None:
    """Be a node until its founder leaves or a signal says so. Never returns."""
    status = 1
    try:
        status = serve(msgspec.json.decode(sys.argv[1], type=NodeConfig))
    except StartError as error:
        print(f"weft: {error}", file=sys.stderr, flush=True)
    except BaseException as error:
        sys.__excepthook__(type(error), error, error.__traceback__)
    finally:
        os._exit(status)


def serve(config: NodeConfig) -> int:
    """The node's whole life; the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    secrets.take()
    founder = socket.socket(fileno=config.founder_fd) if config.founder_fd >= 0 else None
    offer = decide(config)
    kept = event_records.kept(os.environ.get(event_records.KEPT_VARIABLE))
    port = _native.NodePort(offer.object_store_bytes, kept, offer.processes)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    daemon_pid = os.getpid()
    zygote_pid = os.fork()
    if zygote_pid == 0:
        ours.close()
        secrets.forget()
        if founder is not None:
            founder.close()
        if config.cluster is not None:
            os.close(config.cluster.launcher_fd)
        zygote.main(theirs, port.segment_fd, port.event_fd, daemon_pid)
    theirs.close()
    return _serve_as_daemon(config, offer, port, ours, founder, zygote_pid)


def _serve_as_daemon(
    config: NodeConfig,
    offer: NodeOffer,
    port: _native.NodePort,
    ours: socket.socket,
    founder: socket.socket | None,
    zygote_pid: int,
) -> int:
    from weft.engine.node.daemon import NodeDaemon

    zygote.set_process_name("weft-node")
    own_log.never_fail()
    raise_descriptor_limit()
    entry = None
    if config.cluster is not None:
        from weft.engine.cluster.entry import Entry

        entry = Entry(config.cluster)
    place = () if entry is None else (entry.suffix, entry.host)
    daemon = NodeDaemon(config, offer, port, ours, *place)
    try:
        daemon.loop.on_signal(signal.SIGTERM, daemon.asked_to_end)
        daemon.start(founder)
        if entry is not None:
            entry.join(daemon, config, offer)
        gc.enable()
        gc.freeze()
        daemon.loop.run()
        if daemon.error:
            print(f"weft: the node ends: {daemon.error}", file=sys.stderr, flush=True)
    except BaseException as error:
        daemon.error = daemon.error or f"its daemon failed: {error!r}"  # what the other nodes are told
        raise
    finally:
        end_family(zygote_pid, [worker.pid for worker in daemon.state.workers if worker.pid])
        daemon.close()
    if entry is not None and entry.comes_back(daemon):
        from weft.engine.cluster.returning import come_back

        come_back(config, entry.token, entry.name, entry.known)
    return int(daemon.ending)


def end_family(zygote_pid: int, worker_pids: list[int]) -> None:
    """Kill the zygote, which may be busy importing; the kernel kills its workers, and they are waited for here. What
    tasks have started goes with them."""
    own: set[int] | None = None
    with contextlib.suppress(OSError):  # no descriptor is left: workers die all the same
        own = strays.children() - {zygote_pid}
        strays.adopt()
    os.kill(zygote_pid, signal.SIGKILL)
    for pid in (zygote_pid, *worker_pids):
        with contextlib.suppress(ChildProcessError):  # the zygote had buried it already
            os.waitpid(pid, 0)
    if own is not None:
        strays.end_adopted(own)


def raise_descriptor_limit() -> None:
    """Each worker's output takes two descriptors of the daemon."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
