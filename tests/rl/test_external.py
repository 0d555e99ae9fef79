"""Simulators outside: a client's program, its token, its death, and frames that are none."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from worlds import Matching

from waiting import wait_until
from weft.net.tls import Certificate, connecting_context
from weft.rl import DQN, PPO, EnvironmentFailed, frames, get_algorithm
from weft.rl.external import ExternalClient, ExternalSimulator, write_token
from weft.util.peer_sockets import Admission, PeerEndpoint

HERE = Path(__file__).parent
PROGRAM = """
    import sys
    from weft.rl.external import ExternalClient
    from worlds import Matching
    assert "jax" not in sys.modules
    world = Matching()
    with ExternalClient(sys.argv[1], token_file=sys.argv[2]) as client:
        while True:
            client.start_episode()
            seen, _ = world.reset()
            ended = False
            while not ended:
                seen, reward, ended, _, _ = world.step(client.get_action(seen))
                client.log_returns(reward)
            client.end_episode(seen)
"""


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    write_token(tmp_path / "token")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    return {
        "address": f"127.0.0.1:{port}",
        "token_file": str(tmp_path / "token"),
        "observation_space": Matching.observation_space,
        "action_space": Matching.action_space,
    }


@contextlib.contextmanager
def simulators(settings: dict[str, Any], count: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), settings["address"], settings["token_file"]]
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    running = [subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) for _ in range(count)]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def test_it_learns_from_programs_outside_and_survives_the_death_of_one(
    settings: dict[str, Any], weft_session: ModuleType
) -> None:
    quick: dict[str, Any] = {
        "workers": 1,
        "envs_per_worker": 2,
        "fragment_steps": 64,
        "learning_rate": 1e-2,
        "gamma": 0.0,
        "metrics_window": 10,
        "seed": 1,
        "hidden": (32,),
    }
    with simulators(settings, 3) as running, PPO(quick, env=ExternalSimulator, env_config=settings) as algorithm:
        algorithm.train()
        os.kill(running[0].pid, signal.SIGKILL)  # one of three waits for a free environment
        for _ in range(30):
            result = algorithm.train()
            if result["episode_reward_mean"] > 7:
                break
        assert result["episode_reward_mean"] > 7
        assert result["workers_restarted"] == 0


def test_who_does_not_know_the_token_gets_no_action(settings: dict[str, Any]) -> None:
    env = ExternalSimulator(**settings)
    waiting = threading.Thread(target=env.reset, daemon=True)
    waiting.start()
    try:
        with pytest.raises(PermissionError, match="the token is wrong"):
            ExternalClient(settings["address"], "x" * 64).start_episode()
        with contextlib.ExitStack() as crowd:
            host, port = settings["address"].split(":")
            for _ in range(40):  # who says nothing holds nobody up
                crowd.enter_context(socket.create_connection((host, int(port)), timeout=5))
            client = crowd.enter_context(ExternalClient(settings["address"], token_file=settings["token_file"]))
            client.start_episode()
        with ExternalClient(settings["address"], token_file=settings["token_file"]) as client:
            client.start_episode()
            answer: list[Any] = []
            asking = threading.Thread(target=lambda: answer.append(client.get_action(np.zeros(4, np.float32))))
            asking.start()
            waiting.join()
            client_side = env  # its reset has come back: it can be stepped
            ended = threading.Thread(target=lambda: (asking.join(), client.end_episode(np.ones(4, np.float32))))
            ended.start()
            client.log_returns(0.5)
            client.log_returns(1.0)
            seen, reward, terminated, truncated, _ = client_side.step(np.int64(3))
            ended.join()
    finally:
        env.close()
        waiting.join()
    assert (answer, seen.tolist(), reward, terminated, truncated) == ([3], [1, 1, 1, 1], 1.5, True, False)


def answers_itself(settings: dict[str, Any], logged: list[int], stop: threading.Event) -> None:
    """A simulator that acts on its own, wrongly for half of the signs, and now and then asks."""
    world = Matching()
    with (
        contextlib.suppress(ConnectionError, TimeoutError),
        ExternalClient(settings["address"], token_file=settings["token_file"], patience_s=5) as client,
    ):
        for episode in range(10_000):
            if stop.is_set():
                return
            client.start_episode()
            seen, _ = world.reset(seed=episode)
            ended = False
            while not ended:
                if episode % 4 == 3:
                    action = int(client.get_action(seen))
                else:
                    action = int(world.np_random.integers(4))
                    client.log_action(seen, np.int64(action))
                    logged.append(action)
                seen, reward, ended, _, _ = world.step(action)
                client.log_returns(reward)
            client.end_episode(seen)


def test_what_a_client_did_on_its_own_is_learnt_from(settings: dict[str, Any]) -> None:
    logged: list[int] = []
    stop = threading.Event()
    client = threading.Thread(target=answers_itself, args=(settings, logged, stop))
    client.start()
    quick: dict[str, Any] = {"learning_starts": 64, "gamma": 0.0, "learning_rate": 3e-3, "hidden": (32,), "seed": 1}
    quick |= {"envs_per_worker": 1, "fragment_steps": 64, "rounds_per_iteration": 4, "sample_timeout_s": 60.0}
    # It never explores on its own: what it knows of most actions it was shown.
    still = {"initial_exploration": 0.0, "final_exploration": 0.0}
    try:
        with DQN(quick, env=ExternalSimulator, env_config=settings, **still) as algorithm:
            for _ in range(20):
                algorithm.train()
                chosen = [algorithm.policy.act(sign) for sign in np.eye(4, dtype=np.float32)]
                if chosen == [0, 1, 2, 3]:
                    break
            kept = algorithm.replay.state()[1]["actions"][: len(logged)]
            stop.set()
    finally:
        stop.set()
        client.join()
    assert chosen == [0, 1, 2, 3]
    assert kept[:24].tolist() == logged[:24]  # three episodes of eight steps, before the first in which it asks


@pytest.mark.parametrize(
    ("name", "action", "message"),
    [
        ("PPO", 1, r"step 1 of environment 0 of ExternalSimulator .* acted on its own .* use one with replay"),
        ("DQN", 7, r"a logged action must be of Discrete\(4\), but got"),
    ],
)
def test_an_action_that_cannot_be_learnt_from_is_refused(
    name: str, action: int, message: str, settings: dict[str, Any]
) -> None:
    def send() -> None:
        with ExternalClient(settings["address"], token_file=settings["token_file"]) as client:
            client.start_episode()
            with contextlib.suppress(ConnectionError):
                client.log_action(np.zeros(4, np.float32), action)
                client.log_action(np.zeros(4, np.float32), action)

    sender = threading.Thread(target=send)
    sender.start()
    settings_of = {"env": ExternalSimulator, "env_config": settings, "envs_per_worker": 1}
    with get_algorithm(name)(settings_of) as algorithm, pytest.raises(EnvironmentFailed, match=message):
        algorithm.train()
    sender.join()


def test_a_server_that_does_not_know_the_token_is_not_believed(settings: dict[str, Any]) -> None:
    host, port = settings["address"].split(":")
    with PeerEndpoint(host, port=int(port)) as endpoint, Admission(endpoint, b"another") as admission:
        client = ExternalClient(settings["address"], token_file=settings["token_file"])
        refused: list[Exception] = []

        def start() -> None:
            try:
                client.start_episode()
            except PermissionError as error:
                refused.append(error)

        starting = threading.Thread(target=start)
        starting.start()
        while starting.is_alive():
            assert admission.wait(1) is None
    assert refused


def test_another_user_of_the_machine_sees_and_changes_nothing(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One who relays: what passes over the port is encrypted, and with his own certificate he is refused."""
    monkeypatch.setenv("WEFT_LOCAL_LINKS", "0")  # as if the two were not of one user
    env = ExternalSimulator(**settings)
    waiting = threading.Thread(target=env.reset, daemon=True)
    waiting.start()
    try:
        with relay(settings["address"]) as (address, heard):
            client = ExternalClient(address, token_file=settings["token_file"])
            with client:
                client.start_episode()
                client.log_action(np.zeros(4, np.float32), np.int64(1))
                waiting.join()
            env.close()
        assert len(heard) > 100 and b"kind" not in heard and b"observation" not in heard
        waiting = threading.Thread(target=env.reset, daemon=True)
        waiting.start()
        with relay(settings["address"], terminates=True) as (address, _), pytest.raises(PermissionError):
            ExternalClient(address, token_file=settings["token_file"]).start_episode()
        with ExternalClient(settings["address"], token_file=settings["token_file"]) as client:
            client.start_episode()
            client.log_action(np.zeros(4, np.float32), np.int64(1))
            waiting.join()
    finally:
        env.close()


@contextlib.contextmanager
def relay(to: str, terminates: bool = False) -> Iterator[tuple[str, bytearray]]:
    """Between clients and a server; `terminates`: with an encryption of its own towards each. Whoever of the two is too
    slow for the other comes again, as the client does."""
    heard = bytearray()

    def carry(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                heard.extend(data)
                target.sendall(data)
        with contextlib.suppress(OSError):
            # An SSLSocket's own shutdown takes the encryption away from the thread that reads.
            socket.socket.shutdown(target, socket.SHUT_WR)

    def serve() -> None:
        with contextlib.suppress(OSError):  # the end of the listener
            while True:
                client, _ = listener.accept()
                with contextlib.suppress(OSError):
                    between(client)

    def between(client: socket.socket) -> None:
        with contextlib.ExitStack() as ends:
            ends.enter_context(client)
            server = ends.enter_context(first_connection(to))
            if terminates:
                client = ends.enter_context(certificate.context.wrap_socket(client, server_side=True))
                server = ends.enter_context(connecting_context().wrap_socket(server))
            back = threading.Thread(target=carry, args=(server, client))
            back.start()
            carry(client, server)
            back.join()

    certificate = Certificate()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        try:
            yield "{}:{}".format(*listener.getsockname()), heard
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()


def first_connection(address: str) -> socket.socket:
    """To an environment that may only be about to listen: its thread has been started, no more."""
    host, port = address.split(":")
    made: list[socket.socket] = []

    def connects() -> bool:
        with contextlib.suppress(ConnectionRefusedError):
            made.append(socket.create_connection((host, int(port))))
        return bool(made)

    wait_until(connects)
    return made[0]


def test_what_is_sent_is_what_arrives() -> None:
    value = {"a": np.arange(6, dtype=np.uint8).reshape(2, 3), "b": (1, [2.5, np.float32(3)], {"c": None})}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frames.send(ours, "act", observation=value)
        kind, fields = frames.receive(theirs)
    got = fields["observation"]
    assert kind == "act" and got["a"].dtype == np.uint8 and np.array_equal(got["a"], value["a"])
    assert got["b"][0] == 1 and got["b"][1][1] == 3 and got["b"][2] == {"c": None} and isinstance(got["b"], tuple)


@pytest.mark.parametrize(
    "header",
    [
        "{}}",
        "{}",
        '{"kind": "a", "fields": {}, "arrays": [{"dtype": "O", "shape": [1]}]}',
        '{"kind": "a", "fields": {}, "arrays": [{"dtype": "<f8", "shape": [99999999999, 9]}]}',
        '{"kind": "a", "fields": {}, "arrays": [{"dtype": "<f8", "shape": [-1]}]}',
        '{"kind": "a", "fields": {"x": {"$array": 3}}, "arrays": []}',
        "[" * 40_000,
    ],
)
def test_a_frame_that_is_none_is_refused(header: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(struct.pack(">I", len(header)) + header.encode())
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(frames.BadFrame):
            frames.receive(theirs)


def test_an_observation_of_the_wrong_shape_names_the_environment(settings: dict[str, Any]) -> None:
    wide = {**settings, "observation_space": spaces.Box(0, 1, (7,), np.float32)}

    def send() -> None:
        with ExternalClient(settings["address"], token_file=settings["token_file"]) as client:
            client.start_episode()
            with contextlib.suppress(ConnectionError):
                client.get_action(np.zeros(4, np.float32))

    sender = threading.Thread(target=send)
    sender.start()
    expected = pytest.raises(EnvironmentFailed, match=r"reset 0 of environment 0 of ExternalSimulator .* shape \(7,\)")
    with PPO(env=ExternalSimulator, env_config=wide, envs_per_worker=1) as algorithm, expected:
        algorithm.train()
    sender.join()


def test_no_client_at_all_is_an_error_with_a_name(settings: dict[str, Any]) -> None:
    expected = pytest.raises(EnvironmentFailed, match=r"reset 0 of environment 0 of ExternalSimulator .* did not come")
    with PPO(env=ExternalSimulator, env_config=settings, sample_timeout_s=0.3) as algorithm, expected:
        algorithm.train()


def test_a_client_without_a_server_says_so(settings: dict[str, Any]) -> None:
    with pytest.raises(TimeoutError, match="does the training program run"):
        ExternalClient(settings["address"], token_file=settings["token_file"], patience_s=0.1).start_episode()
