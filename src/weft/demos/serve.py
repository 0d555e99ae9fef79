"""`weft demo serve`: two replicas answer in batches; one is killed and the weights change, and no request is lost."""

from __future__ import annotations

import os
import signal
import time

import numpy as np

from weft import serve
from weft.demos import Options
from weft.demos.story import chapter, say, session


class Model:
    """A linear model; its weights are the deployment's user config, so they can change while it runs."""

    def __init__(self) -> None:
        self.weights = np.zeros(4)

    def reconfigure(self, weights: list[float]) -> None:
        self.weights = np.array(weights)

    @serve.batch(max_batch_size=64)
    def __call__(self, rows: list[list[float]]) -> list[float]:
        return [float(value) for value in np.array(rows) @ self.weights]

    def process(self) -> int:
        return os.getpid()


models = serve.deployment(num_replicas=2, retry_on_death=True, actor_options={"num_cpus": 0})(Model)


def run(weights: list[float]) -> serve.DeploymentHandle:
    return serve.run(models.options(user_config=weights).bind(), name="model", route_prefix=None)


def answers(handle: serve.DeploymentHandle, count: int) -> set[float]:
    asked = [handle.remote([1.0, 2.0, 3.0, 4.0]) for _ in range(count)]
    return {answer.result() for answer in asked}


def main(options: Options) -> None:
    count = 200 if options.short else 5_000
    with session():
        with chapter("Two replicas start"):
            handle = run([1.0, 1.0, 1.0, 1.0])
            say(f"the answer is {handle.remote([1.0, 2.0, 3.0, 4.0]).result()}")
        with chapter(f"{count:,} requests at once, answered in batches of up to 64"):
            began_s = time.perf_counter()
            assert answers(handle, count) == {10.0}
            say(f"{count / (time.perf_counter() - began_s):,.0f} a second")
        with chapter("New weights, without a new process"):
            run([2.0, 2.0, 2.0, 2.0])
            assert answers(handle, count) == {20.0}
            say("the answer is 20.0 now")
        with chapter("A replica is killed with SIGKILL while requests come in"):
            victim = int(handle.process.remote().result())
            asked = [handle.remote([1.0, 2.0, 3.0, 4.0]) for _ in range(count)]
            os.kill(victim, signal.SIGKILL)
            assert {answer.result() for answer in asked} == {20.0}
            say(f"all {count:,} were answered; process {victim} is gone and another takes its place")
        serve.shutdown()
