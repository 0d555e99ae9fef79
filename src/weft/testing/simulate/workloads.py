"""What simulated clusters run. A workload starts programs on nodes; `--tasks` and `--duration` scale it."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from weft.testing.simulate.program import (
    Call,
    Compute,
    CreateActor,
    CreateGroup,
    Function,
    Get,
    KillActor,
    Program,
    RemoveGroup,
    Submit,
)

if TYPE_CHECKING:
    from weft.testing.simulate.process import Process
    from weft.testing.simulate.simulation import Simulation

MIB = 1 << 20
_ESCAPES_EACH = 100


class Scale(msgspec.Struct, frozen=True):
    """How much work there is."""

    tasks: int = 1000
    """On each node, or in all where one driver submits."""
    duration_s: float = 0.0


Workload: TypeAlias = "Callable[[Simulation, Scale], None]"


def empty(simulation: Simulation, scale: Scale) -> None:
    """Tasks that do nothing, from a driver on every node, one in a hundred with a ref that escapes."""
    function = Function("empty", float(scale.duration_s))
    some = scale.tasks // _ESCAPES_EACH

    def program(me: Process) -> Program:
        escaped = yield Submit(function, max(1, some), escapes=True)
        rest = yield Submit(function, max(1, scale.tasks - some))
        yield Get([escaped, rest])

    for node in simulation.up():
        simulation.drive(node, program)


def fan_out(simulation: Simulation, scale: Scale) -> None:
    """One driver, tasks of 20 ms (or `--duration`) for the whole cluster."""
    function = Function("fan_out", float(scale.duration_s or 0.02))

    def program(me: Process) -> Program:
        for _ in range(2):
            done = yield Submit(function, scale.tasks)
            yield Get([done])

    simulation.drive(simulation.up()[0], program)


def nested(simulation: Simulation, scale: Scale) -> None:
    """A tree: each task submits four and waits for them, so deep that there are about `--tasks` in all."""
    depth = 1
    while (4 ** (depth + 1) - 1) // 3 < scale.tasks:
        depth += 1
    simulation.drive(simulation.up()[0], lambda me: _branch(depth, scale.duration_s or 0.002))


def _branch(depth: int, duration_s: float) -> Program:
    yield Compute(duration_s / 4)
    if depth:
        function = Function(f"branch{depth}", body=lambda me, index: _branch(depth - 1, duration_s))
        children = yield Submit(function, 4, escapes=True)
        yield Get([children])
    yield Compute(duration_s / 4)


def mixed(simulation: Simulation, scale: Scale) -> None:
    """Three drivers with tasks of microseconds to seconds, of different sizes, in one function and in several."""
    rng = random.Random(simulation.plan.seed + 2)
    durations = [rng.choice((1e-6, 1e-4, 0.001, 0.01, 0.1, 1.0)) for _ in range(64)]

    def program(me: Process) -> Program:
        some = yield Submit(Function("any", lambda index: durations[index % 64]), scale.tasks // 2)
        short = yield Submit(Function("short", 1e-5), scale.tasks // 4)
        large = yield Submit(Function("large", 0.02, resources={"CPU": 2.0}), max(1, scale.tasks // 16))
        half = yield Submit(Function("half", 0.005, resources={"CPU": 0.5}), max(1, scale.tasks // 8))
        yield Get([short])
        again = yield Submit(Function("short", 1e-5), scale.tasks // 8)
        yield Get([some, large, half, again])

    nodes = simulation.up()
    for index in range(min(3, len(nodes))):
        simulation.drive(nodes[index * len(nodes) // 3], program)


def actors(simulation: Simulation, scale: Scale) -> None:
    """As many actors as half of the CPUs; calls in turn and at once; one in four killed, all left in the end."""
    nodes = simulation.up()
    count = max(1, sum(node.machine.cpus for node in nodes) // 2)

    def program(me: Process) -> Program:
        made = []
        for _ in range(count):
            made.append((yield CreateActor({"CPU": 1.0}, max_restarts=1)))
        for _ in range(3):
            calls = []
            for actor in made:
                calls.append((yield Call(actor, max(1, scale.tasks // count // 3), scale.duration_s, retries=2)))
            yield Get(calls)
        for number, actor in enumerate(made):
            if number % 4 == 0:
                yield KillActor(actor)
        done = yield Submit(Function("beside", 0.001), max(1, scale.tasks // 10))
        yield Get([done])

    simulation.drive(nodes[-1], program)


def many_actors(simulation: Simulation, scale: Scale) -> None:
    """`--tasks` actors that need no CPU, all known to one driver, which calls each once."""

    def program(me: Process) -> Program:
        made = []
        for _ in range(scale.tasks):
            made.append((yield CreateActor({}, max_restarts=0)))
        calls = []
        for actor in made:
            calls.append((yield Call(actor, 1, scale.duration_s)))
        yield Get(calls)

    simulation.drive(simulation.up()[-1], program)


def groups(simulation: Simulation, scale: Scale) -> None:
    """Placement groups that compete, from three drivers, with tasks in them."""
    nodes = simulation.up()
    rng = random.Random(simulation.plan.seed + 3)
    kinds = ["PACK", "SPREAD"] + (["STRICT_SPREAD"] if len(nodes) >= 3 else [])
    plans = [
        [(rng.choice(kinds), rng.randint(1, min(3, len(nodes)))) for _ in range(max(3, scale.tasks // 20))]
        for _ in range(3)
    ]

    def program(number: int) -> Program:
        for kind, size in plans[number]:
            group = yield CreateGroup([{"CPU": 1.0}] * size, kind)
            if group is None:
                continue
            strategy: dict[str, str | int | bool] = {"kind": "placement_group", "group": group.hex(), "bundle": -1}
            inside = Function(f"in{group.hex()[:6]}", 0.002, strategy=strategy)
            done = yield Submit(inside, 3 * size)
            yield Get([done])
            yield RemoveGroup(group)

    for index in range(3):
        node = nodes[index * len(nodes) // 3]
        simulation.drive(node, lambda me, index=index: program(index))  # type: ignore[misc]


def map_reduce(simulation: Simulation, scale: Scale) -> None:
    """Maps that make 64 MiB each, a second stage that reads one each, and reducers that read all of a stage."""
    count = max(2, min(scale.tasks, 4 * len(simulation.up())))

    def program(me: Process) -> Program:
        mapped = yield Submit(Function("map", 0.05, result_bytes=64 * MIB), count, escapes=True)
        second = yield Submit(Function("second", 0.05, result_bytes=8 * MIB), count, [mapped], escapes=True)
        reduced = yield Submit(Function("reduce", 0.02, result_bytes=1000), 4, [second])
        yield Get([reduced])

    simulation.drive(simulation.up()[0], program)


def many_jobs(simulation: Simulation, scale: Scale) -> None:
    """A driver on each of a few nodes, all wanting the whole cluster, and short programs that come and go."""
    nodes = simulation.up()
    function = Function("share", float(scale.duration_s or 0.005))

    def program(me: Process) -> Program:
        done = yield Submit(function, scale.tasks // 4)
        yield Get([done])

    for index, node in enumerate(nodes[: min(4, len(nodes))]):
        simulation.clock.after(index * 0.01, simulation.drive_if_up, node, program)
    for index in range(6):
        node = nodes[index % len(nodes)]
        simulation.clock.after(0.05 * index, simulation.drive_if_up, node, program)


WORKLOADS: dict[str, Workload] = {
    "empty": empty,
    "fan-out": fan_out,
    "nested": nested,
    "mixed": mixed,
    "actors": actors,
    "many-actors": many_actors,
    "groups": groups,
    "map-reduce": map_reduce,
    "jobs": many_jobs,
}
