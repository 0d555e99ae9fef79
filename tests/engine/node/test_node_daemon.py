"""The daemon's shell: records in, records out, with the segment and the zygote played by the test."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest
from fake_port import FakePort

from weft import _native
from weft.engine.node import daemon as daemon_module
from weft.engine.node import handshake, room, zygote
from weft.engine.node.config import NodeConfig, NodeOffer
from weft.engine.node.daemon import NodeDaemon
from weft.engine.wire import kinds, messages
from weft.engine.wire.kinds import ErrorCode

ACTOR = bytes(range(16))
Process = tuple[int, int]


class Node:
    """A daemon whose loop the test turns, one driver (the founder) and the zygote's end of its socket."""

    def __init__(self, slots: int = 50) -> None:
        self.port = FakePort(slots)
        ours, self.zygote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.zygote.setblocking(False)
        offer = NodeOffer({"CPU": 2.0}, (), 1 << 20, prestart=2, start_limit=8)
        self.daemon = NodeDaemon(NodeConfig(), offer, cast(_native.NodePort, self.port), ours)
        self.founder, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        handshake.ask(self.founder)
        self.daemon.start(theirs)
        self.pipes: dict[Process, list[int]] = {}
        self.turn()
        self.welcome, *fds = handshake.receive_answer(self.founder)
        for fd in fds:
            os.close(fd)
        self.driver = (self.welcome.slot, self.welcome.generation)
        self.control(self.driver, messages.DriverHello(os.getpid(), ["/lib"], "/", {}, "ns"))
        self.control(self.driver, messages.DefineShape(1, {"CPU": 1.0}))

    def turn(self) -> None:
        """Let the daemon do all that there is to do now."""
        for _ in range(12):
            self.daemon.loop.run_once(0)

    def control(self, process: Process, message: messages.Message) -> None:
        self.port.publish(process, kinds.CONTROL, msgspec.msgpack.encode(message))
        self.turn()

    def record(self, process: Process, kind: int, payload: bytes = b"") -> list[tuple[Process, int, bytes]]:
        """What the daemon sends for it."""
        self.port.sent.clear()
        self.port.publish(process, kind, payload)
        self.turn()
        return list(self.port.sent)

    def ask(self, method: str, process: Process | None = None, **params: object) -> messages.Reply:
        request = messages.Request(5, method, dict(params))
        sent = self.record(process or self.driver, kinds.CONTROL, msgspec.msgpack.encode(request))
        return msgspec.msgpack.decode(sent[-1][2], type=messages.Reply)

    def commands(self) -> list[tuple[int, Process]]:
        """What the zygote is told; the pipes that come with it are kept."""
        found = []
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self.zygote, 64, 2)
            except BlockingIOError:
                return found
            kind, slot, generation = zygote.COMMAND.unpack(data)
            found.append((kind, (slot, generation)))
            if fds:
                self.pipes[slot, generation] = fds

    def report(self, kind: int, process: Process, pid: int = 77, status: int = 0) -> list[tuple[Process, int, bytes]]:
        self.port.sent.clear()
        self.zygote.send(zygote.REPORT.pack(kind, *process, pid, status))
        self.turn()
        return list(self.port.sent)

    def lease(self) -> tuple[int, Process]:
        sent = self.record(self.driver, kinds.LEASE_REQUEST, kinds.LEASE_REQUEST_BODY.pack(1, 1))
        grant = next(payload for _, kind, payload in sent if kind == kinds.LEASE_GRANT)
        lease, _, slot, generation, _ = kinds.LEASE_GRANT_BODY.unpack(grant)
        return lease, (slot, generation)

    def close(self) -> None:
        if self.zygote.fileno() >= 0:
            self.commands()
        self.daemon.close()
        for one in (self.founder, self.zygote):
            one.close()
        for fds in self.pipes.values():
            for fd in fds:
                os.close(fd)
        self.port.close()


@pytest.fixture
def node() -> Iterator[Node]:
    made = Node()
    yield made
    made.close()


def of_kind(sent: list[tuple[Process, int, bytes]], kind: int) -> list[tuple[Process, bytes]]:
    return [(process, payload) for process, one, payload in sent if one == kind]


def test_the_first_workers_are_forked_at_once_with_their_pipes(node: Node) -> None:
    commands = node.commands()
    assert [kind for kind, _ in commands] == [zygote.FORK, zygote.FORK]
    assert set(node.pipes) == {process for _, process in commands}
    assert node.welcome.job == 1 and node.welcome.node_id == node.daemon.node_id


def test_a_lease_request_binds_a_worker_and_grants_it(node: Node) -> None:
    node.commands()
    sent = node.record(node.driver, kinds.LEASE_REQUEST, kinds.LEASE_REQUEST_BODY.pack(1, 1))
    assert [kind for _, kind, _ in sent] == [kinds.BIND_JOB, kinds.LEASE_GRANT]
    bind = msgspec.msgpack.decode(sent[0][2], type=messages.BindJob)
    assert (bind.job, bind.sys_path, bind.namespace, bind.num_cpus) == (1, ["/lib"], "ns", 1.0)
    assert [kind for kind, _ in node.commands()].count(zygote.FORK) == 1  # the spare store is topped up


def test_a_refused_shape_carries_an_error_value(node: Node) -> None:
    node.control(node.driver, messages.DefineShape(2, {"GPU": 1.0}, name="g"))
    sent = node.record(node.driver, kinds.LEASE_REQUEST, kinds.LEASE_REQUEST_BODY.pack(2, 1))
    ((process, payload),) = of_kind(sent, kinds.SHAPE_REFUSED)
    assert process == node.driver
    assert payload[8:9] == b"S" and b"task g can never be placed: 1 GPU is asked for" in payload


def test_a_dead_workers_peers_are_told_and_its_slot_waits_for_them(node: Node) -> None:
    _, worker = node.lease()
    node.port.peers[worker] = [(0, 1), node.driver]
    node.port.linked.add(worker)
    sent = node.report(zygote.EXITED, worker, pid=123, status=-9)
    assert of_kind(sent, kinds.PEER_DIED) == [
        (node.driver, kinds.PEER_DIED_BODY.pack(*worker, kinds.DeathCause.ENDED, 0) + b"killed by SIGKILL (pid 123)")
    ]
    assert worker in node.port.dead and worker not in node.port.released
    node.record(node.driver, kinds.PEER_DETACHED, kinds.PROCESS_BODY.pack(*worker))
    assert worker not in node.port.released
    node.port.linked.clear()
    node.record(node.driver, kinds.PEER_DETACHED, kinds.PROCESS_BODY.pack(*worker))
    assert node.port.released == [worker]
    node.record(node.driver, kinds.PEER_DETACHED, kinds.PROCESS_BODY.pack(*worker))
    assert node.port.released == [worker]


def test_a_slot_that_nobody_reports_is_tried_again_later(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_module, "TICK_S", 0.001)
    _, worker = node.lease()
    node.port.peers[worker] = [node.driver]
    node.port.linked.add(worker)
    node.report(zygote.EXITED, worker)
    node.port.linked.clear()
    while not node.port.released:
        node.daemon.loop.run_once(0.01)
    assert node.port.released == [worker]


def test_what_the_dead_had_published_still_counts(node: Node) -> None:
    _, worker = node.lease()
    spec = messages.ActorSpec(ACTOR, "Counter", 7, {}, {}, name="last", namespace="ns", detached=True, handle=b"h")
    body = msgspec.msgpack.encode(spec)
    node.port.late = [(*worker, kinds.CREATE_ACTOR, len(body).to_bytes(4, "little") + body + b"record")]
    node.report(zygote.EXITED, worker, status=0)
    assert node.ask("get_actor", name="last", namespace="ns").value == b"h"


def test_an_actor_gets_its_class_and_creation_and_its_row_in_the_store(node: Node) -> None:
    function = (7).to_bytes(8, "little") + b"pickled class"
    node.record(node.driver, kinds.FUNCTION, function)
    body = msgspec.msgpack.encode(messages.ActorSpec(ACTOR, "Counter", 7, {}, {"CPU": 1.0}))
    sent = node.record(node.driver, kinds.CREATE_ACTOR, len(body).to_bytes(4, "little") + body + b"record")
    assert [kind for _, kind, _ in sent] == [kinds.BIND_JOB, kinds.FUNCTION, kinds.TASK, kinds.ACTOR_UP]
    assert (sent[1][2], sent[2][2]) == (function, b"record")
    worker = sent[2][0]
    node.record(worker, kinds.ACTOR_CREATED, kinds.ACTOR_STATE_BODY.pack(ACTOR, 1, 0))
    assert node.ask("actor_info", actor=ACTOR).value["state"] == "ALIVE"  # type: ignore[index]
    row = msgspec.msgpack.decode(node.daemon.tables.scan("actors")[0][1])
    assert (row["state"], row["class_name"]) == ("ALIVE", "Counter")
    sent = node.report(zygote.EXITED, worker, pid=9, status=-9)
    ((_, payload),) = of_kind(sent, kinds.ACTOR_DOWN)
    assert b"its process was killed by SIGKILL; it has max_restarts=0" in payload


def test_killing_an_actor_goes_through_the_zygote(node: Node) -> None:
    body = msgspec.msgpack.encode(messages.ActorSpec(ACTOR, "Counter", 7, {}, {}))
    sent = node.record(node.driver, kinds.CREATE_ACTOR, len(body).to_bytes(4, "little") + body + b"record")
    worker = of_kind(sent, kinds.TASK)[0][0]
    node.commands()
    node.control(node.driver, messages.KillActor(ACTOR))
    assert (zygote.KILL, worker) in node.commands()


def test_output_reaches_the_driver_of_the_job_with_the_last_words(node: Node) -> None:
    node.commands()
    _, worker = node.lease()
    node.commands()
    node.report(zygote.FORKED, worker, pid=321)
    out, err = node.pipes[worker]
    os.write(out, b"\x1ef\x1fhello\n")
    node.port.sent.clear()
    node.turn()
    ((_, payload),) = of_kind(node.port.sent, kinds.CONTROL)
    assert msgspec.msgpack.decode(payload, type=messages.LogLines) == messages.LogLines(321, "stdout", [("f", "hello")])
    os.write(err, b"Segmentation fault")
    sent = node.report(zygote.EXITED, worker, pid=321, status=-11)
    lines = [msgspec.msgpack.decode(payload, type=messages.LogLines) for _, payload in of_kind(sent, kinds.CONTROL)]
    assert lines == [messages.LogLines(321, "stderr", [("", "Segmentation fault")])]


def test_the_node_stops_when_its_founder_leaves(node: Node) -> None:
    node.founder.close()
    node.daemon.loop.run()
    assert node.daemon.error == ""


def test_the_node_stops_with_an_error_when_the_zygote_dies(node: Node) -> None:
    node.zygote.close()
    node.daemon.loop.run()
    assert "the zygote died" in node.daemon.error


def test_a_second_driver_joins_by_the_address_and_leaves_alone(node: Node) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as guest:
        guest.connect("\0" + node.daemon.address.removeprefix("@"))
        handshake.ask(guest)
        node.turn()
        welcome, *fds = handshake.receive_answer(guest)
        for fd in fds:
            os.close(fd)
        assert welcome.job == 2
    node.turn()
    assert node.port.dead == [(welcome.slot, welcome.generation)]
    assert node.ask("statistics").value["jobs"] == 1  # type: ignore[index]


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (msgspec.msgpack.encode(handshake.Join(999, 1)), "both must run the same version"),
        (b"GET / HTTP/1.1", "not one of Weft's"),
    ],
)
def test_a_stranger_is_refused_with_the_reason(node: Node, hello: bytes, reason: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as guest:
        guest.connect("\0" + node.daemon.address.removeprefix("@"))
        guest.send(hello)
        node.turn()
        with pytest.raises(ConnectionRefusedError, match=reason):
            handshake.receive_answer(guest)


def test_another_user_is_turned_away_before_anything_is_read(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as guest:
        guest.connect("\0" + node.daemon.address.removeprefix("@"))
        handshake.ask(guest)
        node.turn()
        with pytest.raises((EOFError, ConnectionError)):
            handshake.receive_answer(guest)


def test_a_full_node_refuses_drivers_and_waits_with_workers() -> None:
    node = Node(slots=3)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as guest:
        guest.connect("\0" + node.daemon.address.removeprefix("@"))
        handshake.ask(guest)
        node.turn()
        with pytest.raises(ConnectionRefusedError, match="no room"):
            handshake.receive_answer(guest)
    _, worker = node.lease()
    node.commands()
    node.report(zygote.EXITED, worker, status=-9)
    node.record(node.driver, kinds.LEASE_REQUEST, kinds.LEASE_REQUEST_BODY.pack(1, 2))
    assert [kind for kind, _ in node.commands()] == [zygote.FORK]
    node.close()


def test_malformed_records_are_noted_and_do_no_harm(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    for kind in (kinds.LEASE_REQUEST, kinds.CREATE_ACTOR, kinds.CONTROL, kinds.NEED_SPACE, 999):
        node.record(node.driver, kind, b"\xc1")
    assert capsys.readouterr().err.count("malformed record") == 5
    assert node.ask("cluster_resources").value == {"CPU": 2.0}


def space(wanted: int) -> bytes:
    return kinds.SPACE_BODY.pack(wanted, 7)


def test_space_is_made_or_the_largest_holders_are_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.port.spillable = 100
    node.port.largest_owner = node.driver[0]
    ((_, payload),) = of_kind(node.record(node.driver, kinds.NEED_SPACE, space(100)), kinds.SPACE)
    assert payload == space(100)
    ((_, payload),) = of_kind(node.record(node.driver, kinds.NEED_SPACE, space(1 << 20)), kinds.SPACE)
    assert payload.startswith(space(0))
    text = payload[kinds.SPACE_BODY.size :].decode()
    assert "1.0 MiB do not fit: the object store is full (512.0 MiB of 1.0 GiB are in use)" in text
    assert f"300.0 MiB of the driver (pid {os.getpid()}), read by 2; 5.0 KiB of a process that has ended" in text
    node.port.spill_error = OSError(28, "No space left on device")
    assert not of_kind(node.record(node.driver, kinds.NEED_SPACE, space(1)), kinds.SPACE), "it may come"
    monkeypatch.setattr(room, "WAIT_S", 0.0)
    ((_, payload),) = of_kind(node.record(node.driver, kinds.NEED_SPACE, space(1)), kinds.SPACE)
    assert b"No space left on device" in payload


def test_the_daemon_goes_on_while_the_disk_is_busy(node: Node) -> None:
    node.port.spillable, node.port.is_disk_busy = 100, True
    assert not of_kind(node.record(node.driver, kinds.NEED_SPACE, space(100)), kinds.SPACE)
    assert node.ask("cluster_resources").value == {"CPU": 2.0}
    node.port.is_disk_busy = False
    node.port.sent.clear()
    node.daemon.spilling.completed()
    assert [payload for _, payload in of_kind(node.port.sent, kinds.SPACE)] == [space(100)]


def test_a_full_object_table_is_named_and_nothing_is_spilled_for_it(node: Node) -> None:
    node.port.spillable, node.port.free_entries = 10_000, 0
    ((_, payload),) = of_kind(node.record(node.driver, kinds.NEED_SPACE, space(100)), kinds.SPACE)
    assert payload.startswith(space(0))
    assert b"its object table is full: 2 objects, in memory and on disk, are as many as it holds. Drop refs" in payload
    assert node.port.spillable == 10_000


def test_who_wants_room_waits_while_others_read_what_could_make_room(node: Node) -> None:
    node.port.is_read = True
    assert not of_kind(node.record(node.driver, kinds.NEED_SPACE, space(100)), kinds.SPACE)
    assert not of_kind(node.record(node.driver, kinds.RESTORE, kinds.PROCESS_BODY.pack(500, 2)), kinds.RESTORED)
    ((_, payload),) = of_kind(node.record(node.driver, kinds.NEED_SPACE, space(2 << 30)), kinds.SPACE)
    assert b"2.0 GiB do not fit" in payload, "what could never fit is refused at once"


def test_who_asks_for_an_object_that_was_removed_meanwhile_is_told_that_it_is_lost_and_has_it_made_again(
    node: Node,
) -> None:
    """A node that had it is dead, say. Were the store called full, the task that reads it would fail."""
    node.port.gone.add(5)
    ((_, payload),) = of_kind(node.record(node.driver, kinds.RESTORE, kinds.PROCESS_BODY.pack(5, 2)), kinds.RESTORED)
    assert payload[:16] == kinds.RESTORED_BODY.pack(5, 2, 0, 0)
    assert payload[16:].startswith(_native.error_value(ErrorCode.OBJECT_LOST, ""))


def test_a_spilled_object_comes_back_even_if_others_must_go_first(node: Node) -> None:
    node.port.spillable = 10_000
    ((_, payload),) = of_kind(node.record(node.driver, kinds.RESTORE, kinds.PROCESS_BODY.pack(5, 2)), kinds.RESTORED)
    assert payload == kinds.RESTORED_BODY.pack(5, 2, 1, 0)
    ((_, payload),) = of_kind(node.record(node.driver, kinds.RESTORE, kinds.PROCESS_BODY.pack(500, 2)), kinds.RESTORED)
    assert (
        payload[:16] == kinds.RESTORED_BODY.pack(500, 2, 0, 0)
        and b"a spilled object does not fit back: the object store is full" in payload
    )


# ---- requests --------------------------------------------------------------------------------------


def test_the_node_is_described_in_rays_shape(node: Node) -> None:
    (described,) = cast(list[dict[str, Any]], node.ask("nodes").value)
    assert described["Alive"] and described["NodeID"] == node.daemon.node_id
    assert described["Resources"] == {"CPU": 2.0}
    assert {"NodeManagerAddress", "NodeManagerHostname", "Labels"} <= set(described)


def test_resources_held_and_left(node: Node) -> None:
    _, worker = node.lease()
    assert node.ask("available_resources").value == {"CPU": 1.0}
    assert node.ask("assigned_resources", process=worker).value == {"CPU": 1.0}
    assert node.ask("assigned_resources").value == {}
    assert node.ask("job_info", process=worker).value["job"] == 1  # type: ignore[index]
    states = [worker["state"] for worker in cast(list[dict[str, Any]], node.ask("workers").value)]
    assert sorted(states) == ["idle", "idle", "leased"]


def test_a_claimed_name_is_taken_until_its_owner_is_gone(node: Node) -> None:
    claim = {"actor": ACTOR, "name": "n", "namespace": "ns", "handle": b"h"}
    assert node.ask("get_actor", name="n", namespace="ns").value is None
    assert node.ask("claim_actor_name", **claim).value is None
    assert node.ask("get_actor", name="n", namespace="ns").value == b"h"
    other = claim | {"actor": b"x" * 16, "handle": b"i"}
    taken = node.ask("claim_actor_name", **other)
    assert taken.error_kind == "ValueError" and "already taken" in taken.error
    assert node.ask("claim_actor_name", **other, get_if_exists=True).value == b"h"
    assert node.ask("list_named_actors").value == [{"name": "n", "namespace": "ns"}]
    assert node.ask("list_named_actors", namespace="elsewhere").value == []
    assert node.ask("list_named_actors", all_namespaces=True).value == [{"name": "n", "namespace": "ns"}]


def test_keys_and_values(node: Node) -> None:
    assert node.ask("kv_put", key="a/1", value=b"x").value is True
    assert node.ask("kv_put", key="a/1", value=b"y", overwrite=False).value is False
    assert node.ask("kv_put", key="a/1", value=b"z", namespace="other").value is True
    assert node.ask("kv_get", key="a/1").value == b"x"
    assert node.ask("kv_keys", prefix="a/").value == [b"a/1"]
    assert node.ask("kv_del", key="a/1").value is True
    assert node.ask("kv_del", key="a/1").value is False
    assert node.ask("kv_get", key="a/1", namespace="other").value == b"z"


def test_an_unknown_method_and_a_failing_one_answer_with_an_error(node: Node) -> None:
    assert "no method 'dance'" in node.ask("dance").error
    refused = node.ask("get_actor")
    assert refused.error_kind == "ValueError" and refused.error == "get_actor: Object missing required field `name`"
    assert "Expected `bytes`, got `str` - at `$.actor`" in node.ask("actor_info", actor="no id").error
    assert "unknown field `colour`" in node.ask("get_actor", name="a", colour="red").error


def test_output_can_be_flushed_before_the_answer(node: Node) -> None:
    node.commands()
    _, worker = node.lease()
    node.commands()
    os.write(node.pipes[worker][0], b"done\n")
    request = msgspec.msgpack.encode(messages.Request(5, "flush_output"))
    sent = node.record(node.driver, kinds.CONTROL, request)
    decoded = [msgspec.msgpack.decode(payload) for _, payload in of_kind(sent, kinds.CONTROL)]
    assert [one["type"] for one in decoded] == ["LogLines", "Reply"]
