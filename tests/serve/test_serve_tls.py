"""HTTP and gRPC over TLS: certificates of the server, which may be replaced, and of clients."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit

import grpc
import httpx
import pytest
from google.protobuf.wrappers_pb2 import StringValue
from grpc_shop import NAME, add_ShopServicer_to_server
from starlette.requests import Request

import weft
from waiting import wait_until
from weft import serve

DEADLINE_S = 30


@serve.deployment
async def scheme(request: Request) -> str:
    return str(request.url.scheme)


@pytest.fixture(scope="module")
def pems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two certificates of the same name that sign themselves, each with its key."""
    folder = tmp_path_factory.mktemp("pems")
    new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    for name in ("first", "second"):
        command = f"{new} -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout {name}.key -out {name}.pem"
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder


@pytest.fixture
def used(pems: Path, tmp_path: Path, shared_weft_session: ModuleType) -> Iterator[Path]:
    """A folder with the pair that fronts use, at first the first."""
    put(pems, tmp_path, "first", "pem")
    put(pems, tmp_path, "first", "key")
    yield tmp_path
    serve.shutdown()


def put(pems: Path, used: Path, name: str, kind: str) -> None:
    """`kind` "ca": as the authority of clients."""
    (used / f"new.{kind}").write_bytes((pems / f"{name}.{kind.replace('ca', 'pem')}").read_bytes())
    os.replace(used / f"new.{kind}", used / f"used.{kind}")


def started(used: Path, **others: str | float) -> str:
    certificate = {"ssl_certfile": str(used / "used.pem"), "ssl_keyfile": str(used / "used.key")}
    address = serve.start({"port": 0, "host": "127.0.0.1", **certificate, **others})
    serve.run(scheme.bind(), route_prefix="/scheme")
    return address


def shown(address: str) -> bytes:
    """The certificate that a new connection is shown."""
    where = urlsplit(address)
    assert where.hostname is not None and where.port is not None
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((where.hostname, where.port), timeout=DEADLINE_S))


def der(pems: Path, name: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert((pems / f"{name}.pem").read_text())


def test_tls_agrees_on_http_2_with_who_speaks_it(pems: Path, used: Path) -> None:
    context = ssl.create_default_context(cafile=str(pems / "first.pem"))
    address = started(used)
    for http2, version in ((True, "HTTP/2"), (False, "HTTP/1.1")):
        with httpx.Client(http2=http2, verify=context, timeout=DEADLINE_S) as client:
            answer = client.get(f"{address}/scheme")
            assert (answer.text, answer.http_version) == ("https", version)


def test_a_certificate_that_is_replaced_is_used_for_new_connections_and_old_ones_go_on(pems: Path, used: Path) -> None:
    address = started(used)
    assert address.startswith("https://127.0.0.1:") and shown(address) == der(pems, "first")
    trusting = ssl.create_default_context(cafile=str(pems / "first.pem"))
    with httpx.Client(verify=trusting, base_url=address, timeout=DEADLINE_S) as client:
        assert client.get("/scheme").text == "https"
        assert client.get("/-/nothing").status_code == 404
        put(pems, used, "second", "key")  # which does not fit the certificate yet: nothing changes
        assert shown(address) == der(pems, "first")
        put(pems, used, "second", "pem")
        wait_until(lambda: shown(address) == der(pems, "second"))
        assert client.get("/scheme").text == "https", "the connection that there was"
    trusting = ssl.create_default_context(cafile=str(pems / "second.pem"))
    assert httpx.get(f"{address}/scheme", verify=trusting, timeout=DEADLINE_S).text == "https"


def test_clients_must_show_a_certificate_if_it_is_wanted(pems: Path, used: Path) -> None:
    address = started(used, ssl_ca_certs=str(pems / "second.pem"))
    trusting = ssl.create_default_context(cafile=str(pems / "first.pem"))
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{address}/scheme", verify=trusting, timeout=DEADLINE_S)
    trusting.load_cert_chain(pems / "second.pem", pems / "second.key")
    assert httpx.get(f"{address}/scheme", verify=trusting, timeout=DEADLINE_S).text == "https"


def test_an_authority_that_is_replaced_lets_its_own_clients_in_and_no_others(pems: Path, used: Path) -> None:
    put(pems, used, "first", "ca")
    address = started(used, ssl_ca_certs=str(used / "used.ca"))
    where = urlsplit(address)

    def is_let_in(name: str) -> bool:
        client = ssl.create_default_context(cafile=str(pems / "first.pem"))
        client.load_cert_chain(pems / f"{name}.pem", pems / f"{name}.key")
        try:
            with (
                socket.create_connection((where.hostname, where.port), timeout=DEADLINE_S) as plain,
                client.wrap_socket(plain, server_hostname="localhost") as wire,
            ):
                wire.sendall(b"GET /scheme HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
                return wire.recv(12) == b"HTTP/1.1 200"
        except OSError:
            return False

    assert is_let_in("first") and not is_let_in("second")
    put(pems, used, "second", "ca")
    wait_until(lambda: is_let_in("second"))
    assert not is_let_in("first"), "the authority that was there is no more"


def test_who_does_not_begin_to_encrypt_is_closed_and_gives_way_to_others(pems: Path, used: Path) -> None:
    address = started(used, head_timeout_s=1.0, max_connections=20)
    where = urlsplit(address)
    strangers = [socket.create_connection((where.hostname, where.port), timeout=DEADLINE_S) for _ in range(50)]
    try:
        trusting = ssl.create_default_context(cafile=str(pems / "first.pem"))
        assert httpx.get(f"{address}/scheme", verify=trusting, timeout=DEADLINE_S).text == "https"
        for one in strangers:
            assert is_cut(one)
    finally:
        for one in strangers:
            one.close()


def is_cut(wire: socket.socket) -> bool:
    try:
        return wire.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_pair_that_does_not_fit_is_refused_at_once(pems: Path, used: Path) -> None:
    put(pems, used, "second", "key")
    with pytest.raises(weft.exceptions.ActorDiedError, match="KEY_VALUES_MISMATCH"):
        started(used)
    with pytest.raises(ValueError, match="belong together"):
        serve.HTTPOptions(ssl_certfile="only.pem")


@serve.deployment
class Shop:
    def Greet(self, request: StringValue) -> StringValue:
        return StringValue(value=f"hello {request.value}")


def started_grpc(used: Path) -> str:
    certificate = {"ssl_certfile": str(used / "used.pem"), "ssl_keyfile": str(used / "used.key")}
    serve.run(Shop.bind(), name="shop", route_prefix=None)
    return serve.start_grpc(serve.GRPCOptions((add_ShopServicer_to_server,), port=0, **certificate))


def greeted(channel: grpc.Channel) -> str:
    greet = channel.unary_unary(f"/{NAME}/Greet", StringValue.SerializeToString, StringValue.FromString)
    return str(greet(StringValue(value="you"), timeout=DEADLINE_S, wait_for_ready=False).value)


def trusting(pems: Path, name: str) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials((pems / f"{name}.pem").read_bytes())


def test_grpc_shows_a_certificate_that_was_replaced_and_old_connections_go_on(pems: Path, used: Path) -> None:
    address = started_grpc(used)
    assert shown(f"https://{address}") == der(pems, "first")
    with grpc.secure_channel(address, trusting(pems, "first")) as channel:
        assert greeted(channel) == "hello you"
        put(pems, used, "second", "key")  # which does not fit the certificate yet: nothing changes
        assert shown(f"https://{address}") == der(pems, "first")
        put(pems, used, "second", "pem")
        wait_until(lambda: shown(f"https://{address}") == der(pems, "second"))
        assert greeted(channel) == "hello you", "the connection that there was"
    with grpc.secure_channel(address, trusting(pems, "second")) as channel:
        assert greeted(channel) == "hello you"
    with grpc.secure_channel(address, trusting(pems, "first")) as channel, pytest.raises(grpc.RpcError):
        greeted(channel)
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError):
        greeted(channel)
