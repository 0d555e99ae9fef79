"""Load on weft.serve while it is updated, scaled and killed: is an answer lost, wrong or given twice? Does memory grow?

    python benchmarks/serve_soak.py [--seconds 600] [--clients 8]

Half of the clients use handles, half HTTP. Each request carries a number of its own that its answer must bring back.
Every few seconds a replica is killed with SIGKILL, and the code is replaced; now and then nobody asks, and the number
of replicas follows. A request that was refused with BackPressureError or a 503 was not accepted. The controller and the
HTTP front are killed, too: what a front had then ends with its connection, which is counted apart.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import random
import signal
import statistics
import threading
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import psutil

import weft
from weft import serve
from weft.serve.controller import NAME, NAMESPACE

KILL_EVERY_S = 3.0
UPDATE_EVERY_S = 7.0
KILL_CONTROLLER_EVERY_S = 11.0
KILL_FRONT_EVERY_S = 17.0
SCALING = {
    "min_replicas": 2,
    "max_replicas": 4,
    "target_ongoing_requests": 1,
    "upscale_delay_s": 1,
    "downscale_delay_s": 2,
}


@serve.deployment(autoscaling=SCALING, max_ongoing_requests=8, retry_on_death=True, health_check_period_s=0.5)
class Echo:
    def __init__(self, version: int) -> None:
        self.version = version

    async def __call__(self, number: int) -> list[int]:
        return [number, os.getpid(), self.version]


@dataclass
class Tally:
    """What the clients saw."""

    answered: int = 0
    refused: int = 0
    broken: int = 0
    """By the end of a front that was killed."""
    wrong: list[str] = field(default_factory=list)
    pids: set[int] = field(default_factory=set)
    versions: set[int] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def saw(self, number: int, answer: Any) -> None:
        with self.lock:
            if not isinstance(answer, list) or answer[0] != number:
                self.wrong.append(f"request {number} was answered {answer!r}")
                return
            self.answered += 1
            self.pids.add(answer[1])
            self.versions.add(answer[2])

    def failed(self, number: int, error: object) -> None:
        with self.lock:
            self.wrong.append(f"request {number} failed: {error!r}")


class Soak:
    def __init__(self, clients: int) -> None:
        self.tally = Tally()
        self.is_over = threading.Event()
        self.numbers = itertools.count()
        self.handle = serve.run(Echo.bind(0), name="soak", route_prefix="/")
        self.address = serve.start(http_options=serve.HTTPOptions(port=0))
        self.kills = 0
        self.updates = 0
        self.controller_kills = 0
        self.front_kills = 0
        self.front_is_up = threading.Event()
        self.front_is_up.set()
        self.asking = threading.Event()
        """Cleared now and then, so that the load falls."""
        self.asking.set()
        self.controller = weft.get_actor(NAME, namespace=NAMESPACE)
        chores = [self.kill, self.update, self.breathe, self.kill_controller, self.kill_front]
        asks = [self.ask_by_handle if index % 2 else self.ask_over_http for index in range(clients)]
        self.threads = [threading.Thread(target=one) for one in (*chores, *asks)]

    def run(self, seconds: float) -> list[int]:
        """The resident bytes of the front, the controller and this process, each second."""
        for thread in self.threads:
            thread.start()
        sizes = []
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.tally.wrong:
            sizes.append(self.resident())
            time.sleep(1)
        self.is_over.set()
        self.asking.set()
        for thread in self.threads:
            thread.join()
        return sizes

    def ask_by_handle(self) -> None:
        while self.may_ask():
            number = next(self.numbers)
            try:
                self.tally.saw(number, self.handle.remote(number).result(60))
            except serve.BackPressureError:
                self.tally.refused += 1
            except Exception as error:
                self.tally.failed(number, error)

    def ask_over_http(self) -> None:
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=60)
        kills, was_up = 0, True
        """When it was connected."""
        while self.may_ask():
            number = next(self.numbers)
            if connection.sock is None:
                kills, was_up = self.front_kills, self.front_is_up.is_set()
            try:
                connection.request("POST", "/", json.dumps(number), {"content-type": "application/json"})
                answer = connection.getresponse()
                body = answer.read()
            except (ConnectionError, http.client.HTTPException) as error:
                connection.close()
                if (kills, True) != (self.front_kills, was_up):
                    self.tally.broken += 1
                    self.is_over.wait(0.05)
                elif isinstance(error, http.client.RemoteDisconnected):  # idle for too long: it was not accepted
                    self.tally.refused += 1
                else:
                    self.tally.failed(number, error)
                continue
            except Exception as error:
                self.tally.failed(number, error)
                connection.close()
                continue
            if answer.status == 503:
                self.tally.refused += 1
            elif answer.status != 200:
                self.tally.failed(number, (answer.status, body))
            else:
                self.tally.saw(number, json.loads(body))
        connection.close()

    def may_ask(self) -> bool:
        self.asking.wait()
        return not self.is_over.is_set()

    def kill(self) -> None:
        while not self.is_over.wait(KILL_EVERY_S):
            with self.tally.lock:
                pids, self.tally.pids = self.tally.pids, set()
            alive = [pid for pid in pids if psutil.pid_exists(pid)]
            if alive:
                os.kill(random.choice(alive), signal.SIGKILL)
                self.kills += 1

    def kill_controller(self) -> None:
        while not self.is_over.wait(KILL_CONTROLLER_EVERY_S):
            os.kill(weft.get(self.controller.pid.remote()), signal.SIGKILL)
            self.controller_kills += 1

    def kill_front(self) -> None:
        while not self.is_over.wait(KILL_FRONT_EVERY_S):
            (front,) = weft.get(self.controller.fronts.remote("http"))
            pid = weft.get(front.pid.remote())
            self.front_is_up.clear()
            self.front_kills += 1
            os.kill(pid, signal.SIGKILL)
            weft.get(front.address.remote())
            self.front_is_up.set()

    def update(self) -> None:
        while not self.is_over.wait(UPDATE_EVERY_S):
            self.updates += 1
            serve.run(Echo.bind(self.updates), name="soak", route_prefix="/")

    def breathe(self) -> None:
        while not self.is_over.wait(5):
            self.asking.clear()
            self.is_over.wait(3)
            self.asking.set()

    def resident(self) -> int:
        """Replicas come and go: what they hold is left out."""
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        total = 0
        for one in processes:
            try:
                if one.pid not in self.tally.pids:
                    total += one.memory_info().rss
            except psutil.NoSuchProcess:
                continue
        return total


def soak(seconds: float, clients: int) -> tuple[Soak, float]:
    """(what happened, how much the memory grew: the last quarter's median over the second's)"""
    made = Soak(clients)
    sizes = made.run(seconds)
    quarter = max(1, len(sizes) // 4)
    growth = statistics.median(sizes[-quarter:]) / statistics.median(sizes[quarter : 2 * quarter] or sizes)
    return made, growth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--clients", type=int, default=8)
    options = parser.parse_args()
    weft.init()
    made, growth = soak(options.seconds, options.clients)
    serve.shutdown()
    weft.shutdown()
    tally = made.tally
    print(
        f"{tally.answered} answered, {tally.refused} refused, {tally.broken} broken with a front, "
        f"{len(tally.wrong)} lost or wrong; killed: {made.kills} replicas, "
        f"{made.controller_kills} controllers, {made.front_kills} fronts; "
        f"{made.updates} updates, {len(tally.versions)} versions seen; memory grew by {growth - 1:+.1%}"
    )
    for line in tally.wrong[:10]:
        print(line)
    raise SystemExit(1 if tally.wrong else 0)


if __name__ == "__main__":
    main()
