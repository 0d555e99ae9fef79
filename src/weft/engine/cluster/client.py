"""Asks a cluster to do something, from any process of its user or of whoever has its token.

A node on this machine that belongs to this user is asked over its local socket, which needs no token. Any other is
asked over its port, with the token (`tokens`). One connection a question; nothing stays open. Runs on the caller's
thread.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import msgspec

from weft.engine.cluster import launch, tokens
from weft.engine.node import handshake
from weft.engine.node import launch as nodes
from weft.engine.node.operations import Outcome, value_of
from weft.engine.wire import link_messages as lm
from weft.net.auth import Refused
from weft.net.credentials import connect_to_own

ADDRESS_VARIABLES = ("WEFT_ADDRESS", "RAY_ADDRESS")
TIMEOUT_S = 60.0
_outcomes = msgspec.msgpack.Decoder(Outcome)


class Client:
    """Finds the cluster once; ConnectionError, with what to do, when there is none."""

    def __init__(self, address: str | None = None, token_file: str | None = None) -> None:
        address = named_address() or "auto" if address is None else address
        self._local, self.address = "", address
        self._token = b""
        if address == "auto":
            found = launch.newest()
            if found is None:
                raise ConnectionError(
                    "no Weft node of this user runs on this machine: start one with `weft start --head`, or name the "
                    "cluster with --address HOST:PORT"
                )
            self._local = found
            self.address = launch.cluster_of(found) or found
        elif address.startswith("@"):
            self._local = address
            self.address = launch.cluster_of(address) or address
        elif not launch.is_cluster_address(address):
            raise ValueError(f"an address is HOST:PORT, such as 10.0.0.1:6379, but got {address!r}")
        else:
            self.address = launch.normal(address)
            here = [name for name in nodes.find_nodes() if launch.cluster_of(name) == self.address]
            if here and token_file is None:
                self._local = launch.local_node(self.address)
            else:
                self._token = _token(self.address, token_file)

    def ask(self, method: str, timeout_s: float | None = TIMEOUT_S, **params: Any) -> Any:
        """The operation's value. Raises what the daemon names, or ConnectionError, or TimeoutError."""
        if self._local:
            return value_of(self._ask_here(method, params, timeout_s))
        try:
            answer = launch.exchange(self.address, self._token, lm.Call(1, method, params), timeout_s)
        except Refused as error:
            raise ConnectionError(f"the cluster at {self.address} refuses: {error}") from error
        except TimeoutError as error:
            raise TimeoutError(f"the cluster at {self.address} did not answer {method!r} in time") from error
        except OSError as error:
            raise ConnectionError(
                f"the cluster at {self.address} cannot be reached: {error.strerror or error}. Does its head run, and "
                "does it listen there (`weft start --head --host ... --port ...`)?"
            ) from error
        if not isinstance(answer, lm.CallAnswer):
            raise ConnectionError(f"the node at {self.address} answered with a {type(answer).__name__}")
        return value_of(Outcome(answer.value, answer.error, answer.error_kind))

    def still_answers(self) -> bool:
        """False once the node of this machine that it asks has ended."""
        return not self._local or nodes.is_own_node(self._local) is not False

    def _ask_here(self, method: str, params: dict[str, Any], timeout_s: float | None) -> Outcome:
        try:
            with connect_to_own(self._local, socket.SOCK_SEQPACKET, timeout_s) as connection:
                return _outcomes.decode(handshake.ask_operation(connection, method, params))
        except TimeoutError as error:
            raise TimeoutError(f"the node at {self.address} did not answer {method!r} in time") from error
        except (OSError, EOFError) as error:
            raise ConnectionError(f"the node at {self.address} cannot be asked: {error}") from error


def named_address() -> str | None:
    """The cluster that the environment names."""
    named = next(filter(None, map(os.environ.get, ADDRESS_VARIABLES)), "auto")
    return None if named in ("auto", "local") else named


def meant_address(address: str | None) -> str:
    """Where to change something: the address that is given, or named by the environment, else of the only cluster here.

    ConnectionError, with their names, where there are several."""
    return address or named_address() or launch.the_only()


def _token(cluster: str, file: str | None) -> bytes:
    try:
        return tokens.find(cluster, file)
    except LookupError as error:
        missing = f"no node of the cluster {cluster} runs on this machine as this user; {error}"
    try:
        launch.check_that_somebody_listens(cluster)
    except ConnectionError as error:
        missing = f"no node of the cluster {cluster} runs on this machine as this user, and {error}"
    raise ConnectionError(missing)
