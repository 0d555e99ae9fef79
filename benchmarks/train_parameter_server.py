"""train.ParameterServer beside PyTorch's DDP over gloo: samples a second of two workers, turn by turn.

python benchmarks/train_parameter_server.py [--rounds 3] [--seconds 4]

Needs torch==2.13.0. Each worker computes with one thread. Then: asynchronous, with one worker that is slow.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from typing import Any

import numpy as np

import weft
from weft import train

WORKERS = 2
BATCH = 128
SLOW_S = 0.1


def make_model(kind: str) -> tuple[Any, Any]:
    """(model, one batch of inputs); 270 thousand parameters and 58 thousand."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    if kind == "mlp":
        layers = [nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)]
        return nn.Sequential(*layers), torch.randn(BATCH, 784)
    convolutions = [nn.Conv2d(1, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten()]
    return nn.Sequential(*convolutions, nn.Linear(576, 96), nn.ReLU(), nn.Linear(96, 10)), torch.randn(BATCH, 1, 28, 28)


def gradients(model: Any, inputs: Any, labels: Any) -> None:
    from torch.nn.functional import cross_entropy

    for parameter in model.parameters():
        parameter.grad = None
    cross_entropy(model(inputs), labels).backward()


def samples_a_second(step: Any, seconds: float, all_stop: Any) -> float:
    """The steps after the first ten; `all_stop` lets all workers do the same number of them."""
    for _ in range(10):
        step()
    began, steps = time.perf_counter(), 0
    while not all_stop(time.perf_counter() - began > seconds):
        for _ in range(10):
            step()
        steps += 10
    return steps * BATCH / (time.perf_counter() - began)


def any_of_all(flag: bool) -> bool:
    return bool(train.get_context().group.all_reduce(np.array([flag]))[0])


def ddp_loop(config: dict[str, Any]) -> None:
    import torch

    model, inputs = make_model(config["kind"])
    labels = torch.randint(0, 10, (BATCH,))
    wrapped = train.prepare_model(model)
    optimizer = torch.optim.SGD(wrapped.parameters(), 0.01)

    def step() -> None:
        gradients(wrapped, inputs, labels)
        optimizer.step()

    train.report({"rate": samples_a_second(step, config["seconds"], any_of_all)})


def server_loop(config: dict[str, Any]) -> None:
    import torch

    model, inputs = make_model(config["kind"])
    labels = torch.randint(0, 10, (BATCH,))
    parameters = dict(model.named_parameters())
    rank = train.get_context().rank
    is_slow = config.get("slow") == rank
    all_stop = any_of_all if config["mode"] == "sync" else bool
    with config["server"].join(rank) as link:

        def step() -> None:
            link.pull(into=parameters, copy=False)
            gradients(model, inputs, labels)
            if is_slow:
                time.sleep(SLOW_S)
            link.push({name: parameter.grad for name, parameter in parameters.items()})

        rate = samples_a_second(step, config["seconds"], all_stop)
    train.report({"rate": rate})


def measure(loop: Any, backend: str, workers: int, **config: Any) -> float:
    with tempfile.TemporaryDirectory() as folder:
        trainer = train.Trainer(loop, workers, config=config, backend=backend, storage_path=folder)
        return float(trainer.fit().metrics["rate"])


def measure_server(kind: str, seconds: float, workers: int, mode: str, slow: int | None = None) -> float:
    parameters = {name: value.detach().numpy() for name, value in make_model(kind)[0].named_parameters()}
    server = train.ParameterServer(parameters, train.SGD(0.01), workers=workers, mode=mode)
    return measure(server_loop, "weft", workers, kind=kind, seconds=seconds, server=server, mode=mode, slow=slow)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    options = parser.parse_args()
    weft.init(num_cpus=WORKERS)
    print("| synchronous, 2 workers | parameter server, samples/s a worker | DDP over gloo | of DDP, best / median |")
    print("|---|---|---|---|")
    for kind in ("mlp", "cnn"):
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours.append(measure_server(kind, options.seconds, WORKERS, "sync"))
            theirs.append(measure(ddp_loop, "torch", WORKERS, kind=kind, seconds=options.seconds))
        best, median = max(ours) / max(theirs), statistics.median(ours) / statistics.median(theirs)
        print(f"| {kind} | {max(ours):.0f} | {max(theirs):.0f} | {best:.0%} / {median:.0%} |", flush=True)
    print("\n| asynchronous | samples/s of rank 0 |\n|---|---|")
    alone = [measure_server("mlp", options.seconds, 1, "async") for _ in range(options.rounds)]
    beside = [measure_server("mlp", options.seconds, WORKERS, "async", slow=1) for _ in range(options.rounds)]
    print(f"| alone | {max(alone):.0f} |\n| beside one that sleeps {SLOW_S} s a step | {max(beside):.0f} |")
    weft.shutdown()


if __name__ == "__main__":
    main()
