"""Deployments called over gRPC, by real clients."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
import psutil
import pytest
from google.protobuf.wrappers_pb2 import Int64Value, StringValue
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_shop import NAME, add_ShopServicer_to_server

import weft
from weft import serve

DEADLINE_S = 30


@serve.deployment(max_ongoing_requests=4, max_queued_requests=0)
class Shop:
    def __init__(self) -> None:
        self.hold = asyncio.Event()

    async def Greet(self, request: StringValue) -> Any:
        if request.value == "fail":
            raise ValueError("a secret of the code")
        if request.value == "refuse":
            raise serve.GrpcError("FAILED_PRECONDITION", "the shop is closed")
        if request.value == "wrong":
            return 7
        if request.value == "hold":
            await self.hold.wait()
        if request.value == "die":
            os._exit(1)
        return StringValue(value=f"hello {request.value} {serve.get_request_id()} {serve.get_multiplexed_model_id()}")

    def Count(self, request: Int64Value) -> Iterator[Int64Value]:
        for number in range(request.value):
            yield Int64Value(value=number)
        if request.value == 3:
            raise ValueError("after the third")

    async def ongoing(self) -> bool:
        return True


@pytest.fixture
def channel(shared_weft_session: ModuleType) -> Iterator[grpc.Channel]:
    serve.run(Shop.bind(), name="shop", route_prefix=None)
    options = serve.GRPCOptions((add_ShopServicer_to_server,), port=0, max_message_bytes=1 << 20)
    with grpc.insecure_channel(serve.start_grpc(options)) as made:
        yield made
    serve.shutdown()


def greet(channel: grpc.Channel, name: str, metadata: Any = (), timeout: float = DEADLINE_S) -> Any:
    call = channel.unary_unary(
        f"/{NAME}/Greet",
        request_serializer=StringValue.SerializeToString,
        response_deserializer=StringValue.FromString,
    )
    return call(StringValue(value=name), metadata=metadata, timeout=timeout)


def raw(channel: grpc.Channel, method: str, body: bytes, metadata: Any = ()) -> Any:
    return channel.unary_unary(method)(body, metadata=metadata, timeout=DEADLINE_S)


def status_of(call: Any) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def test_a_method_answers_with_the_callers_request_id_and_model(channel: grpc.Channel) -> None:
    metadata = (("application", "shop"), ("request_id", "r-1"), ("multiplexed_model_id", "m"))
    assert greet(channel, "you", metadata).value == "hello you r-1 m"
    assert greet(channel, "you").value.startswith("hello you ")


def test_a_generator_answers_in_a_stream(channel: grpc.Channel) -> None:
    call = channel.unary_stream(
        f"/{NAME}/Count",
        request_serializer=Int64Value.SerializeToString,
        response_deserializer=Int64Value.FromString,
    )
    assert [one.value for one in call(Int64Value(value=5), timeout=DEADLINE_S)] == [0, 1, 2, 3, 4]
    code, details = status_of(lambda: list(call(Int64Value(value=3), timeout=DEADLINE_S)))
    assert code is grpc.StatusCode.INTERNAL and "third" not in details
    broken = call(Int64Value(value=1 << 40), timeout=DEADLINE_S)
    assert next(broken).value == 0
    broken.cancel()
    assert greet(channel, "still").value.startswith("hello still")


def test_what_a_deployment_raises_stays_inside_and_what_it_tells_goes_out(channel: grpc.Channel) -> None:
    code, details = status_of(lambda: greet(channel, "fail"))
    assert code is grpc.StatusCode.INTERNAL and "secret" not in details
    told = status_of(lambda: greet(channel, "refuse"))
    assert told == (grpc.StatusCode.FAILED_PRECONDITION, "the shop is closed")
    assert status_of(lambda: greet(channel, "wrong"))[0] is grpc.StatusCode.INTERNAL


def test_a_replica_that_dies_is_told_and_replaced(channel: grpc.Channel) -> None:
    assert status_of(lambda: greet(channel, "die"))[0] is grpc.StatusCode.ABORTED
    assert serve.run(Shop.bind(), name="shop", route_prefix=None).ongoing.remote().result(DEADLINE_S)
    assert greet(channel, "again").value.startswith("hello again")


def test_a_clients_deadline_ends_the_request_in_the_replica(channel: grpc.Channel) -> None:
    for _ in range(6):  # more than the replica takes at once: none of them is left there
        assert status_of(lambda: greet(channel, "hold", timeout=0.5))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
    assert greet(channel, "next").value.startswith("hello next")


def test_full_replicas_refuse_at_once(channel: grpc.Channel) -> None:
    call = channel.unary_unary(f"/{NAME}/Greet", request_serializer=StringValue.SerializeToString)
    held = [call.future(StringValue(value="hold"), timeout=DEADLINE_S) for _ in range(5)]
    with pytest.raises(grpc.RpcError) as refused:
        next(one for one in _as_they_end(held)).result()
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    for one in held:
        one.cancel()


def _as_they_end(futures: list[Any]) -> Iterator[Any]:
    import queue

    ended: queue.Queue[Any] = queue.Queue()
    for one in futures:
        one.add_done_callback(ended.put)
    while True:
        yield ended.get(timeout=DEADLINE_S)


@pytest.mark.parametrize(
    "body", [b"\xff", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x05ab", b"\x0a\x02\xff\xfe", os.urandom(1000)]
)
def test_a_malformed_message_reaches_no_replica(channel: grpc.Channel, body: bytes) -> None:
    assert status_of(lambda: raw(channel, f"/{NAME}/Greet", body))[0] is grpc.StatusCode.INVALID_ARGUMENT
    assert greet(channel, "on").value.startswith("hello on")


def test_strange_calls_are_refused_with_their_reason(channel: grpc.Channel) -> None:
    refused = {
        grpc.StatusCode.UNIMPLEMENTED: [
            lambda: raw(channel, "/weft.tests.Shop/Nothing", b""),
            lambda: raw(channel, "/other/Greet", b""),
            lambda: raw(channel, "/../Greet", b""),
            lambda: raw(channel, f"/{NAME}/Missing", b""),
            lambda: raw(channel, f"/{NAME}/ongoing", b""),
            lambda: channel.stream_unary(f"/{NAME}/MissingStream")(iter([b""]), timeout=DEADLINE_S),
        ],
        grpc.StatusCode.NOT_FOUND: [
            lambda: greet(channel, "x", (("application", "other"),)),
            lambda: raw(channel, "/grpc.health.v1.Health/Check", b"\x0a\x05other"),
        ],
        grpc.StatusCode.RESOURCE_EXHAUSTED: [lambda: greet(channel, "x" * (2 << 20))],
    }
    for code, calls in refused.items():
        for call in calls:
            assert status_of(call)[0] is code
    assert greet(channel, "x", (("request_id", "y" * 1000),)).value.startswith("hello x ")


@pytest.mark.parametrize("kind", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_a_compressed_message_is_bounded_by_what_it_is_unpacked(shared_weft_session: ModuleType, kind: Any) -> None:
    serve.run(Shop.bind(), name="shop", route_prefix=None)
    options = serve.GRPCOptions((add_ShopServicer_to_server,), port=0, max_message_bytes=1 << 20)
    with grpc.insecure_channel(serve.start_grpc(options), compression=kind) as made:
        assert greet(made, "a" * 10_000).value.startswith("hello aaa")
        code, reason = status_of(lambda: greet(made, "a" * (100 << 20)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "Decompressed message larger than max" in reason
    serve.shutdown()


def test_the_health_protocol_says_that_it_serves(channel: grpc.Channel) -> None:
    assert raw(channel, "/grpc.health.v1.Health/Check", b"") == b"\x08\x01"
    asked = bytes([0x0A, len(NAME)]) + NAME.encode()
    assert raw(channel, "/grpc.health.v1.Health/Check", asked) == b"\x08\x01"


def test_bytes_that_are_no_grpc_harm_nobody(channel: grpc.Channel) -> None:
    import socket

    host, _, port = serve.start_grpc(serve.GRPCOptions((add_ShopServicer_to_server,))).rpartition(":")
    for sent in (b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + os.urandom(512)):
        with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as client:
            client.sendall(sent)
            client.shutdown(socket.SHUT_WR)
            while client.recv(4096):
                pass
    assert greet(channel, "on").value.startswith("hello on")


def test_two_applications_are_told_apart_by_metadata(channel: grpc.Channel) -> None:
    serve.run(Shop.bind(), name="second", route_prefix=None)
    assert greet(channel, "x", (("application", "second"),)).value.startswith("hello x")
    assert status_of(lambda: greet(channel, "x"))[0] is grpc.StatusCode.NOT_FOUND
    serve.delete("second")
    assert greet(channel, "x").value.startswith("hello x")


def test_a_front_that_dies_comes_back_at_its_port(channel: grpc.Channel) -> None:
    from weft.serve.controller import NAME as CONTROLLER
    from weft.serve.controller import NAMESPACE

    (front,) = weft.get(weft.get_actor(CONTROLLER, namespace=NAMESPACE).fronts.remote("grpc"))
    before = weft.get([front.address.remote(), front.pid.remote()])
    os.kill(before[1], signal.SIGKILL)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(before[1]).wait(DEADLINE_S)
    assert weft.get(front.address.remote()) == before[0]
    with grpc.insecure_channel(before[0]) as again:
        assert greet(again, "x").value.startswith("hello x")


PROTO = """syntax = "proto3";
package bakery;
service Bakery { rpc Bake (Order) returns (Cake); }
message Order { string name = 1; repeated double amounts = 2; }
message Cake { string label = 1; double weight = 2; }
"""
PROGRAM = """
import grpc, bakery_pb2, bakery_pb2_grpc
from weft import serve

@serve.deployment
class Baker:
    def Bake(self, order):
        return bakery_pb2.Cake(label=order.name.upper(), weight=sum(order.amounts))

serve.run(Baker.bind())
address = serve.start_grpc({"servicers": ["bakery_pb2_grpc:add_BakeryServicer_to_server"], "port": 0})
with grpc.insecure_channel(address) as channel:
    cake = bakery_pb2_grpc.BakeryStub(channel).Bake(bakery_pb2.Order(name="tart", amounts=[0.5, 1]), timeout=30)
print(cake.label, cake.weight)
serve.shutdown()
"""


def test_a_service_generated_by_protoc_is_served_from_a_plain_program(tmp_path: Path) -> None:
    (tmp_path / "bakery.proto").write_text(PROTO)
    (tmp_path / "program.py").write_text(PROGRAM)
    made = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "--python_out=.", "--grpc_python_out=.", "bakery.proto"]
    subprocess.run(made, cwd=tmp_path, check=True, timeout=280)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["TART 1.5"], done.stderr


def test_options_are_checked_where_they_are_written() -> None:
    with pytest.raises(ValueError, match="servicers must be a list"):
        serve.GRPCOptions(())
    with pytest.raises(ValueError, match="max_message_bytes must be positive, but got 0"):
        serve.GRPCOptions((add_ShopServicer_to_server,), max_message_bytes=0)


@pytest.mark.parametrize("sent", [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\4" + bytes(5)])
def test_who_connects_and_asks_nothing_is_sent_away(shared_weft_session: ModuleType, sent: bytes) -> None:
    serve.run(Shop.bind(), route_prefix=None)
    address = serve.start_grpc(serve.GRPCOptions((add_ShopServicer_to_server,), port=0))
    host, port = address.split(":")
    try:
        with (
            socket.create_connection((host, int(port)), timeout=DEADLINE_S) as stranger,
            contextlib.suppress(ConnectionError),
        ):
            stranger.sendall(sent)
            while stranger.recv(1 << 16):
                pass
        with grpc.insecure_channel(address) as made:
            assert greet(made, "you").value.startswith("hello you")
    finally:
        serve.shutdown()


def test_clients_can_ask_which_services_and_methods_there_are(channel: grpc.Channel) -> None:
    told = ProtoReflectionDescriptorDatabase(channel)
    assert NAME in told.get_services()
    found = told.FindFileContainingSymbol(NAME)
    assert [method.name for method in found.service[0].method] == ["Greet"]
    assert greet(channel, "you").value, "the services themselves are answered as before"


@pytest.mark.parametrize("asked", [b"\x1a\x04Shop" * 20_000, b"", b"\xff"])
def test_who_asks_for_services_does_not_ask_without_end(channel: grpc.Channel, asked: bytes) -> None:
    ask: Any = channel.stream_stream(REFLECTION)
    with pytest.raises(grpc.RpcError) as refused:
        for _ in ask((asked for _ in range(200_000)), timeout=DEADLINE_S):
            pass
    wanted = grpc.StatusCode.INVALID_ARGUMENT if asked == b"\xff" else grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused.value.code() is wanted
    assert greet(channel, "you").value.startswith("hello you ")


def test_what_services_there_are_can_be_kept_to_oneself(shared_weft_session: ModuleType) -> None:
    options = serve.GRPCOptions((add_ShopServicer_to_server,), port=0, reflection=False)
    with grpc.insecure_channel(serve.start_grpc(options)) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            ProtoReflectionDescriptorDatabase(channel).get_services()
        assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    serve.shutdown()


TRAILERS = b"\0\x02te\x08trailers"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
    return len(body).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + body


def half_call(stream: int, path: str) -> bytes:
    """A call whose message is announced with 100 bytes, of which two come."""
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x"}
    fields["content-type"] = "application/grpc"
    head = b"".join(
        b"\0%c%b%c%b" % (len(name), name.encode(), len(value), value.encode()) for name, value in fields.items()
    )
    return frame(1, 4, stream, head + TRAILERS) + frame(0, 0, stream, bytes((0, 0, 0, 0, 100)) + b"ab")


REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


@pytest.mark.parametrize("path", [f"/{NAME}/Greet", "/grpc.health.v1.Health/Check", REFLECTION])
def test_calls_whose_message_does_not_come_give_way_to_others(shared_weft_session: ModuleType, path: str) -> None:
    serve.run(Shop.bind(), name="shop", route_prefix=None)
    options = serve.GRPCOptions((add_ShopServicer_to_server,), port=0, max_concurrent_rpcs=8)
    address = serve.start_grpc(options)
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as stranger:
        calls = b"".join(half_call(2 * number + 1, path) for number in range(40))
        stranger.sendall(PREFACE + frame(4, 0, 0, b"") + frame(4, 1, 0, b"") + calls)
        told = b""
        while b"grpc-status" not in told:  # one that was refused, or has given way: there are as many as may be
            told += stranger.recv(1 << 16)
        with grpc.insecure_channel(address) as channel:
            for _ in range(5):
                assert greet(channel, "you").value.startswith("hello you ")
    serve.shutdown()
