"""train.ParameterServer: what it learns, whom it waits for, what it keeps."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from group_members import error_of

import weft
from weft import train

RATE = 0.05


def gradient_of(weights: Any, inputs: Any, targets: Any) -> Any:
    return inputs.T @ (inputs @ weights - targets) / len(inputs)


def data_of(rank: int, step: int, rows: int) -> tuple[Any, Any]:
    inputs = np.random.default_rng((rank, step)).normal(size=(rows, 6))
    return inputs, inputs @ np.arange(6.0)


@weft.remote(num_cpus=0)
class Worker:
    """Steps when told to."""

    def __init__(self, server: train.ParameterServer, rank: int) -> None:
        self.rank, self.step = rank, 0
        self.link = server.join(rank)

    def pid(self) -> int:
        return os.getpid()

    def train(self, steps: int, rows: int = 8) -> int:
        for _ in range(steps):
            inputs, targets = data_of(self.rank, self.step, rows)
            weights = self.link.pull()["weights"]
            self.link.push(
                {"weights": gradient_of(weights[:, 0], inputs, targets)[:, None], "other": np.ones(3, np.float32)},
                weight=rows,
            )
            self.step += 1
        self.link.pull()
        return self.link.version

    def train_from(self, step: int, steps: int) -> int:
        self.step = step
        return self.train(steps)

    def push_badly(self, gradients: dict[str, Any]) -> None:
        self.link.push(gradients)

    def leave(self) -> None:
        self.link.close()


def server_of(workers: int, **options: Any) -> train.ParameterServer:
    parameters = {"weights": np.zeros((6, 1)), "other": np.zeros(3, np.float32)}
    return train.ParameterServer(parameters, options.pop("optimizer", train.SGD(RATE)), workers=workers, **options)


def test_a_synchronous_server_learns_what_one_process_learns_with_the_whole_batch(shared_weft_session: Any) -> None:
    server = server_of(2, shards=2)
    workers = [Worker.remote(server, rank) for rank in range(2)]
    weft.get([workers[0].train.remote(20, 12), workers[1].train.remote(20, 4)])
    weights = np.zeros(6)
    for step in range(20):
        batches = [data_of(0, step, 12), data_of(1, step, 4)]
        inputs, targets = (np.concatenate(part) for part in zip(*batches, strict=True))
        weights -= RATE * gradient_of(weights, inputs, targets)
    np.testing.assert_allclose(server.pull()["weights"][:, 0], weights, rtol=1e-12)
    np.testing.assert_allclose(server.pull()["other"], -20 * RATE, rtol=1e-6)


def test_what_is_pulled_is_a_view_that_cannot_be_written(shared_weft_session: Any) -> None:
    pulled = server_of(1).pull()["weights"]
    assert not pulled.flags.writeable
    assert not pulled.flags.owndata


def test_a_worker_that_is_killed_holds_nobody_up_and_may_come_back(shared_weft_session: Any) -> None:
    server = server_of(2, shards=2)
    workers = [Worker.remote(server, rank) for rank in range(2)]
    assert weft.get([worker.train.remote(3) for worker in workers]) == [3, 3]
    lone = workers[0].train.remote(2)  # waits for rank 1
    os.kill(weft.get(workers[1].pid.remote()), signal.SIGKILL)
    assert weft.get(lone) == 5
    again = Worker.remote(server, 1)
    assert weft.get(again.train.remote(0)) == 5  # it has joined
    assert weft.get([again.train.remote(2), workers[0].train.remote(2)]) == [7, 7]


def test_a_worker_that_leaves_holds_nobody_up(shared_weft_session: Any) -> None:
    server = server_of(2)
    workers = [Worker.remote(server, rank) for rank in range(2)]
    lone = workers[0].train.remote(2)
    weft.get(workers[1].leave.remote())
    assert weft.get(lone) == 2


def test_one_who_never_comes_ends_the_wait_by_name(shared_weft_session: Any) -> None:
    server = server_of(2, timeout_s=0.2)
    error = error_of(Worker.remote(server, 0).train.remote(1))
    assert isinstance(error, train.GroupTimeoutError)
    assert "push of rank 0 waited 0.2 s for rank 1" in str(error)


def test_an_asynchronous_server_waits_for_nobody(shared_weft_session: Any) -> None:
    server = server_of(2, mode="async")
    fast = Worker.remote(server, 0)
    assert weft.get(fast.train.remote(30)) == 30  # rank 1 has not even joined
    assert weft.get(Worker.remote(server, 1).train.remote(5)) == 35


def test_staleness_holds_the_fast_until_the_slow_one_follows(shared_weft_session: Any) -> None:
    server = server_of(2, mode="async", staleness=2)
    fast, slow = (Worker.remote(server, rank) for rank in range(2))
    assert weft.get(fast.train.remote(2)) == 2
    third = fast.train.remote(1)
    assert weft.wait([third], timeout=0.1) == ([], [third])
    weft.get(slow.train.remote(1))
    assert weft.get(third) >= 3


@pytest.mark.parametrize(
    ("gradients", "words"),
    [
        ({"weights": np.zeros((6, 1))}, "missing=['other']"),
        ({"weights": np.zeros(6), "other": np.zeros(3, np.float32)}, "weights must be float64 (6, 1)"),
        ({"weights": np.zeros((6, 1)), "other": np.zeros(3)}, "other must be float32 (3,), but got float64"),
    ],
)
def test_a_gradient_that_does_not_fit_is_refused_where_it_is_pushed(
    shared_weft_session: Any, gradients: dict[str, Any], words: str
) -> None:
    error = error_of(Worker.remote(server_of(1), 0).push_badly.remote(gradients))
    assert isinstance(error, ValueError)
    assert words in str(error)


class Broken:
    def begin(self, parameter: Any) -> None:
        return None

    def update(self, parameter: Any, gradient: Any, memory: Any) -> None:
        raise ZeroDivisionError("no step")


def test_an_optimizer_that_fails_fails_every_worker(shared_weft_session: Any) -> None:
    server = server_of(2, optimizer=Broken())
    steps = [Worker.remote(server, rank).train.remote(1) for rank in range(2)]
    errors = [error_of(step) for step in steps]
    assert [str(error).splitlines()[-1] for error in errors] == ["ZeroDivisionError: no step"] * 2


@pytest.mark.parametrize("optimizer", [train.SGD(RATE, momentum=0.9), train.Adam(0.01)], ids=["momentum", "adam"])
def test_a_checkpoint_goes_on_where_it_was_even_with_other_shards(
    shared_weft_session: Any, tmp_path: Path, optimizer: Any
) -> None:
    server = server_of(1, shards=2, optimizer=optimizer)
    worker = Worker.remote(server, 0)
    weft.get(worker.train.remote(5))
    path = server.save(tmp_path / "server.ckpt")
    weft.get(worker.train.remote(5))
    restored = train.ParameterServer.restore(path, workers=1)
    follower = Worker.remote(restored, 0)

    assert weft.get(follower.train_from.remote(5, 5)) == 10
    assert (restored.pull()["weights"] == server.pull()["weights"]).all()


def test_a_checkpoint_taken_while_workers_go_on_is_of_one_step(shared_weft_session: Any, tmp_path: Path) -> None:
    server = server_of(2, shards=2)
    workers = [Worker.remote(server, rank) for rank in range(2)]
    running = [worker.train.remote(300) for worker in workers]
    for number in range(3):
        restored = train.ParameterServer.restore(server.save(f"{tmp_path}/{number}"), workers=1)
        steps = weft.get(Worker.remote(restored, 0).train.remote(0))
        np.testing.assert_allclose(restored.pull()["other"], -RATE * steps, rtol=1e-4)
    assert weft.get(running) == [300, 300]


def test_a_checkpoint_may_lie_behind_a_url(shared_weft_session: Any) -> None:
    server = server_of(1)
    weft.get(Worker.remote(server, 0).train.remote(2))
    path = server.save("memory://servers/first")
    restored = train.ParameterServer.restore(path, workers=1)
    assert (restored.pull()["weights"] == server.pull()["weights"]).all()


def test_there_must_be_a_checkpoint_to_restore(shared_weft_session: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no checkpoint of a parameter server at"):
        train.ParameterServer.restore(tmp_path / "none", workers=1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mode": "both"}, "mode must be 'sync' or 'async'"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"shards": 3}, "shards must be from 1 to the number of parameters, 2, but got 3"),
        ({"staleness": 1}, "staleness must be for mode 'async'"),
    ],
)
def test_bad_arguments_are_refused(shared_weft_session: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        server_of(**{"workers": 1, **options})


def test_a_rank_must_be_one_of_the_workers(shared_weft_session: Any) -> None:
    with pytest.raises(ValueError, match="rank must be from 0 to 1, but got 2"):
        server_of(2).join(2)


@pytest.mark.parametrize("copy", [True, False])
def test_torch_tensors_are_pulled_into_and_pushed_from(shared_weft_session: Any, copy: bool) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 1)
    server = train.ParameterServer(dict(model.named_parameters()), train.SGD(0.5), workers=1)
    before = model.weight.detach().clone()
    with server.join(0) as link:
        model(torch.ones(1, 3)).sum().backward()
        link.push({name: parameter.grad for name, parameter in model.named_parameters()})
        pulled = link.pull(into=dict(model.named_parameters()), copy=copy)
        assert (model.weight.data_ptr() == pulled["weight"].ctypes.data) == (not copy)
        if not copy:
            with pytest.raises(ValueError, match=r"bias must be of shape \(1,\), but got \(2,\)"):
                link.pull(into={"bias": torch.ones(2)}, copy=False)
            with pytest.raises(TypeError, match="bias is a ndarray"):
                link.pull(into={"bias": np.ones(1)}, copy=False)
    assert torch.equal(model.weight, before - 0.5)
