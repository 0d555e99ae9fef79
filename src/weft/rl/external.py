"""Simulators outside: a program of its own asks for actions and logs rewards, and training learns from it.

In the training program the environment is an `ExternalSimulator`, of which every copy waits for one client at a time:

    from weft.rl.external import ExternalSimulator, write_token
    write_token("token")
    PPO(env=ExternalSimulator, envs_per_worker=1, env_config={"address": "127.0.0.1:9900", "token_file": "token",
        "observation_space": Box(-1, 1, (4,)), "action_space": Discrete(2)})

In the simulator, which needs nothing but this file's client:

    client = ExternalClient("127.0.0.1:9900", token_file="token")
    while True:
        client.start_episode()
        ...
        action = client.get_action(observation)
        client.log_returns(reward)
        ...
        client.end_episode(observation)

Where the simulator acts on its own (a person plays, or an old controller), `client.log_action(observation, action)`
takes the place of `get_action`: algorithms with replay learn from what was done; others refuse it, since they learn
from their own actions alone.

All copies of all workers on a machine share the port: only those that wait for a client listen, so that the kernel
hands each client to a free one. A client that dies or misbehaves costs the rest of its episode, which counts as
truncated. What flows between machines, or users of one, is encrypted, and both ends prove the token over the
certificate, as links of nodes do (`weft.util.peer_sockets`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any

import gymnasium
import numpy as np

from weft.rl import frames
from weft.rl.frames import read_token, write_token
from weft.rl.spaces import SpaceMismatch
from weft.rl.stepping import ACTION_TAKEN
from weft.util import peer_sockets
from weft.util.peer_sockets import Admission, PeerEndpoint

__all__ = ["ExternalClient", "ExternalSimulator", "write_token"]

GREETING_S = 5.0
RETRY_S = 0.05
_TAKEN = b"\1"
"""Said to the client that an environment has chosen, of those that have proved the token."""


class ExternalSimulator(gymnasium.Env[Any, Any]):
    """An environment that is somewhere else."""

    is_outside = True

    def __init__(
        self, address: str, token_file: str, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
    ) -> None:
        self.observation_space, self.action_space = observation_space, action_space
        self._address = _host_and_port(address)
        self._token = read_token(token_file)
        self._client: socket.socket | None = None
        self._seen: Any = None
        self._logged: Any = None  # the action that the client has chosen itself

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """What the first request of the next episode shows; waits for a client if there is none."""
        super().reset(seed=seed)
        while True:
            if self._client is None:
                self._client = self._wait_for_client()
            request = self._next_request()
            if request is not None and request[0] != "end":
                return self._shown(request[1]), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Send the action, unless the client has acted; what the client asks or says next."""
        if self._client is None:
            raise RuntimeError("reset() comes first")
        info: dict[str, Any] = {}
        if self._logged is not None:
            info[ACTION_TAKEN] = self._logged
        else:
            with contextlib.suppress(OSError):
                frames.send(self._client, "action", action=action)
        request = self._next_request()
        if request is None:
            return self._seen, 0.0, False, True, {**info, "client_lost": True}
        kind, fields = request
        is_end = kind == "end"
        truncated = is_end and bool(fields.get("truncated"))
        return self._shown(fields), float(fields["reward"]), is_end and not truncated, truncated, info

    def close(self) -> None:
        self._drop_client()

    def _shown(self, fields: dict[str, Any]) -> Any:
        """The observation of a request, and with it the action that the client took, if it did."""
        self._seen, logged = fields["observation"], fields.get("action")
        if logged is not None:
            if self.action_space.shape:
                logged = np.asarray(logged, self.action_space.dtype)
            if not self.action_space.contains(logged):
                raise SpaceMismatch(f"a logged action must be of {self.action_space}, but got {logged!r}")
        self._logged = logged
        return self._seen

    def _next_request(self) -> tuple[str, dict[str, Any]] | None:
        """("act", "log" or "end", its fields), or None after the client was lost."""
        assert self._client is not None
        try:
            kind, fields = frames.receive(self._client)
            if kind not in ("act", "log", "end") or not {"observation", "reward"} <= set(fields):
                raise frames.BadFrame(f"{kind!r} is no request")
            if (kind == "log") != (fields.get("action") is not None):
                raise frames.BadFrame("an action comes with what logs it, and with nothing else")
            if not isinstance(fields["reward"], int | float):
                raise frames.BadFrame("a reward is a number")
        except (OSError, EOFError):
            self._drop_client()
            return None
        return kind, fields

    def _wait_for_client(self) -> socket.socket:
        """The next client that knows the token; others are sent away, and hold nobody up."""
        host, port = self._address
        with PeerEndpoint(host, port=port) as endpoint, Admission(endpoint, self._token.encode()) as admission:
            while True:
                client = admission.wait(GREETING_S)
                if client is not None:
                    with contextlib.suppress(OSError):
                        client.sendall(_TAKEN)
                        return _made_ready(client)
                    client.close()

    def _drop_client(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


class ExternalClient:
    """The simulator's side. Not for use by several threads at once."""

    def __init__(
        self,
        address: str,
        token: str | None = None,
        *,
        token_file: str | os.PathLike[str] | None = None,
        patience_s: float = 60.0,
    ) -> None:
        if (token is None) == (token_file is None):
            raise ValueError("give token or token_file, and not both")
        self._address = _host_and_port(address)
        self._token = read_token(token_file) if token_file is not None else str(token)
        self._patience_s = patience_s
        self._server: socket.socket | None = None
        self._reward = 0.0
        self._running = False

    def start_episode(self) -> None:
        """Begin an episode. TimeoutError where no environment is free for a client within `patience_s`."""
        if self._running:
            raise RuntimeError("the last episode has not ended: call end_episode() first")
        if self._server is None:
            self._server = self._connect()
        self._running, self._reward = True, 0.0

    def get_action(self, observation: Any) -> Any:
        """What to do; waits while the training program learns. ConnectionError when it has ended."""
        self._send("act", observation)
        assert self._server is not None
        try:
            kind, fields = frames.receive(self._server)
        except (OSError, EOFError) as error:
            raise self._lost() from error
        if kind != "action":
            raise frames.BadFrame(f"an action was expected, but got {kind!r}")
        return fields["action"]

    def log_action(self, observation: Any, action: Any) -> None:
        """What was done without asking, to be learnt from; for algorithms with replay."""
        self._send("log", observation, action=action)

    def log_returns(self, reward: float) -> None:
        """What was earned since the last action; several calls add up."""
        self._reward += float(reward)

    def end_episode(self, observation: Any, truncated: bool = False) -> None:
        """The episode is over; `truncated` where it was only cut off."""
        self._send("end", observation, truncated=truncated)
        self._running = False

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self._server, self._running = None, False

    def __enter__(self) -> ExternalClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, kind: str, observation: Any, **fields: Any) -> None:
        if not self._running or self._server is None:
            raise RuntimeError("no episode is running: call start_episode() first")
        earned, self._reward = self._reward, 0.0
        try:
            frames.send(self._server, kind, observation=observation, reward=earned, **fields)
        except OSError as error:
            raise self._lost() from error

    def _connect(self) -> socket.socket:
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return self._meet()
            except PermissionError as error:
                raise PermissionError(f"{error}: it is not the one that the training program has") from None
            except OSError as error:  # nobody listens, or it found another client meanwhile
                self._wait(deadline, error)

    def _meet(self) -> socket.socket:
        """An environment that has taken this client. OSError."""
        server = peer_sockets.connect(*self._address, self._token.encode(), GREETING_S)
        try:
            if server.recv(1) != _TAKEN:
                raise ConnectionError("it has taken another client")
            return _made_ready(server)
        except BaseException:
            server.close()
            raise

    def _wait(self, deadline: float, error: Exception) -> None:
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"no environment at {self._address[0]}:{self._address[1]} was free for a client within "
                f"{self._patience_s:g} s; does the training program run, with envs_per_worker for all clients?"
            ) from error
        time.sleep(RETRY_S)

    def _lost(self) -> ConnectionError:
        self.close()
        return ConnectionError("the training program has ended or restarted its worker; start_episode() finds it again")


def _made_ready(connection: socket.socket) -> socket.socket:
    connection.settimeout(None)
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"an address is HOST:PORT, but got {address!r}")
    return host, int(port)
