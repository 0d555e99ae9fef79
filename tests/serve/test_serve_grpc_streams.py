"""RPCs whose clients stream, and gRPC over TLS, by real clients."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from queue import Queue
from types import ModuleType
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from grpc_shop import NAME, add_ShopServicer_to_server

from weft import serve

DEADLINE_S = 30


@serve.deployment(max_ongoing_requests=2)
class Shop:
    def __init__(self) -> None:
        self.ended = asyncio.Event()

    async def Collect(self, messages: serve.GrpcInputStream) -> StringValue:
        seen: list[str] = []
        async for message in messages:
            if message.value == "enough":
                return StringValue(value="had enough")
            if message.value == "refuse":
                raise serve.GrpcError("OUT_OF_RANGE", "too far")
            seen.append(message.value)
        assert messages.is_exhausted
        return StringValue(value=f"{len(seen)} {' '.join(seen[:3])} {serve.get_request_id()}")

    def CollectPlainly(self, messages: serve.GrpcInputStream) -> StringValue:
        return StringValue(value="+".join(message.value for message in messages))

    async def Talk(self, messages: serve.GrpcInputStream) -> AsyncIterator[StringValue]:
        try:
            self.ended.clear()
            async for message in messages:
                yield StringValue(value=message.value.upper())
            yield StringValue(value="bye")
        finally:
            self.ended.set()

    def TalkPlainly(self, messages: serve.GrpcInputStream) -> Iterator[StringValue]:
        for message in messages:
            yield StringValue(value=message.value[::-1])

    async def has_ended(self) -> bool:
        return await self.ended.wait()


@pytest.fixture(scope="module")
def shop(shared_weft_session: ModuleType) -> Iterator[tuple[str, serve.DeploymentHandle]]:
    handle = serve.run(Shop.bind(), name="shop", route_prefix=None)
    options = serve.GRPCOptions((add_ShopServicer_to_server,), port=0, request_timeout_s=2)
    yield serve.start_grpc(options), handle
    serve.shutdown()


@pytest.fixture
def channel(shop: tuple[str, serve.DeploymentHandle]) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(shop[0]) as made:
        yield made
        for _ in range(3):  # more than the replica takes at once: no call has kept its place
            assert collect(made, ["on"]).startswith("1 on")


_BOTH = {"request_serializer": StringValue.SerializeToString, "response_deserializer": StringValue.FromString}


def collect(channel: grpc.Channel, words: Any, method: str = "Collect", metadata: Any = ()) -> str:
    call: Any = channel.stream_unary(f"/{NAME}/{method}", **_BOTH)
    sent = (StringValue(value=word) for word in words)
    return str(call(sent, timeout=DEADLINE_S, metadata=metadata).value)


def talk(channel: grpc.Channel, said: Queue[str | None], method: str = "Talk") -> Any:
    """The answers to what is put into the queue, up to a None."""
    call: Any = channel.stream_stream(f"/{NAME}/{method}", **_BOTH)
    return call((StringValue(value=word) for word in iter(said.get, None)), timeout=DEADLINE_S)


def code_of(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    code: grpc.StatusCode = caught.value.code()
    return code


def test_a_clients_stream_is_read_to_its_end(channel: grpc.Channel) -> None:
    assert collect(channel, ["a", "b", "c"], metadata=(("request_id", "r-1"),)) == "3 a b c r-1"
    assert collect(channel, []).startswith("0 ")
    assert collect(channel, map(str, range(1000))).startswith("1000 0 1 2")
    assert collect(channel, ["a", "b"], "CollectPlainly") == "a+b"


def test_a_deployment_may_answer_before_the_stream_has_ended(channel: grpc.Channel) -> None:
    assert collect(channel, ("enough" for _ in range(10_000))) == "had enough"
    assert code_of(lambda: collect(channel, ["refuse", "more"])) is grpc.StatusCode.OUT_OF_RANGE


@pytest.mark.parametrize(("method", "last"), [("Talk", ["bye"]), ("TalkPlainly", [])])
def test_both_sides_talk_in_turns(channel: grpc.Channel, method: str, last: list[str]) -> None:
    said: Queue[str | None] = Queue()
    answers = talk(channel, said, method)
    for word in ("one", "two", "three"):
        said.put(word)
        assert next(answers).value in (word.upper(), word[::-1])
    said.put(None)
    assert [one.value for one in answers] == last


@pytest.mark.parametrize("method", ["Talk", "TalkPlainly"])
def test_a_client_that_leaves_in_the_midst_ends_the_call(
    channel: grpc.Channel, shop: tuple[str, serve.DeploymentHandle], method: str
) -> None:
    said: Queue[str | None] = Queue()
    answers = talk(channel, said, method)
    said.put("one")
    next(answers)
    answers.cancel()
    said.put(None)
    assert method != "Talk" or shop[1].has_ended.remote().result(DEADLINE_S)


def test_silence_ends_a_call(channel: grpc.Channel) -> None:
    said: Queue[str | None] = Queue()
    assert code_of(lambda: next(talk(channel, said))) is grpc.StatusCode.DEADLINE_EXCEEDED
    said.put(None)


def test_a_malformed_message_in_a_stream_ends_it(channel: grpc.Channel) -> None:
    raw: Any = channel.stream_unary(f"/{NAME}/Collect")
    sent = [StringValue(value="good").SerializeToString(), b"\xff"]
    assert code_of(lambda: raw(iter(sent), timeout=DEADLINE_S)) is grpc.StatusCode.INVALID_ARGUMENT


# ---- TLS ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority (ca.pem), and certificates of its for a server and a client, each with its key."""
    folder = tmp_path_factory.mktemp("pems")
    new = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
    commands = [f"{new} -x509 -subj /CN=authority -keyout ca.key -out ca.pem"]
    for name in ("server", "client"):
        commands.append(f"{new} -subj /CN={name} -keyout {name}.key -out {name}.csr")
        signing = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names"
        commands.append(f"openssl x509 -req -in {name}.csr {signing} -out {name}.pem")
    for command in commands:
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def no_front(shared_weft_session: ModuleType) -> Iterator[None]:
    """Fronts are started once a cluster."""
    serve.shutdown()
    yield
    serve.shutdown()


def test_clients_are_served_over_tls_and_must_show_their_certificate_if_wanted(no_front: None, pems: Path) -> None:
    def read(name: str) -> bytes:
        return (pems / name).read_bytes()

    serve.run(Shop.bind(), name="shop", route_prefix=None)
    tls = {"ssl_certfile": str(pems / "server.pem"), "ssl_keyfile": str(pems / "server.key")}
    options = {"servicers": [add_ShopServicer_to_server], "port": 0, **tls, "ssl_ca_certs": str(pems / "ca.pem")}
    address = serve.start_grpc(options)
    known = grpc.ssl_channel_credentials(read("ca.pem"), read("client.key"), read("client.pem"))
    with grpc.secure_channel(address, known) as channel:
        assert collect(channel, ["secret"]).startswith("1 secret")
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(read("ca.pem"))) as nobody:
        assert code_of(lambda: collect(nobody, ["x"])) is grpc.StatusCode.UNAVAILABLE
    with grpc.insecure_channel(address) as plain:
        assert code_of(lambda: collect(plain, ["x"])) is grpc.StatusCode.UNAVAILABLE


def test_wrong_certificates_are_told_where_they_are_given(no_front: None, tmp_path: Path) -> None:
    servicers = (add_ShopServicer_to_server,)
    with pytest.raises(ValueError, match="ssl_certfile and ssl_keyfile belong together"):
        serve.GRPCOptions(servicers, ssl_certfile="x.pem")
    with pytest.raises(ValueError, match="ssl_ca_certs is for checking"):
        serve.GRPCOptions(servicers, ssl_ca_certs="x.pem")
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(Exception, match=r"gRPC cannot be served at 127.0.0.1:0: .*missing.pem"):
        serve.start_grpc(serve.GRPCOptions(servicers, port=0, ssl_certfile=missing, ssl_keyfile=missing))
