"""The controller: one actor that keeps as many replicas as each deployment should have, and tells routers of them.

It decides with `state.DeploymentState` and does here what that says. Requests never pass through it. All of it runs on
the actor's loop, so there are no locks.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import weft
from weft.exceptions import ActorError
from weft.serve import replica as replicas
from weft.serve.build import BuiltDeployment
from weft.serve.context import ReplicaContext
from weft.serve.errors import DeploymentFailedError, DeploymentGoneError
from weft.serve.http.messages import Kind
from weft.serve.state import (
    DeploymentState,
    DeploymentStatus,
    DrainReplica,
    Instruction,
    ReplicaState,
    StartReplica,
)
from weft.serve.table import Table

TICK_S = 0.2
LEAVE_S = 5.0
LISTEN_S = 30.0
REMEMBERED_DRAINED = 1000
NAME = "weft-serve-controller"
NAMESPACE = "weft.serve"


@dataclass
class Running:
    """A deployment's state with what only a shell can hold."""

    state: DeploymentState
    code: bytes = b""
    actors: dict[str, Any] = field(default_factory=dict)
    drained: deque[str] = field(default_factory=lambda: deque(maxlen=REMEMBERED_DRAINED))
    checked_s: dict[str, float] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    seen_revision: int = -1


@dataclass
class RunningApplication:
    name: str
    route_prefix: str | None
    ingress: str
    deployments: list[str]
    kind: Kind


class Controller:
    """The actor's class."""

    def __init__(self) -> None:
        self._deployments: dict[str, Running] = {}
        self._applications: dict[str, RunningApplication] = {}
        self._routes_changed = asyncio.Event()
        self._routes_revision = 0
        self._http: Any = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._spawn(self._tick())

    # ---- asked by the API --------------------------------------------------------------------------------

    async def deploy(self, app: str, route_prefix: str | None, built: list[BuiltDeployment]) -> None:
        """Start an application, or bring a running one to what is given."""
        self._check_route(app, route_prefix)
        old = self._applications.get(app)
        names = [one.name for one in built]
        self._applications[app] = RunningApplication(app, route_prefix, names[-1], names, built[-1].kind)
        for one in built:
            key = f"{app}:{one.name}"
            running = self._deployments.setdefault(key, Running(DeploymentState(key)))
            running.code = one.code
            self._follow(running, running.state.deployed(time.monotonic(), one.version, one.config))
        for name in old.deployments if old is not None else []:
            if name not in names:
                self._delete(f"{app}:{name}")
        self._routes_have_changed()

    async def wait_ready(self, app: str) -> None:
        """Returns when all deployments are healthy; DeploymentFailedError when one can not be."""
        for name in self._applications[app].deployments:
            running = self._deployments[f"{app}:{name}"]
            while running.state.status is not DeploymentStatus.HEALTHY:
                if running.state.status is DeploymentStatus.UNHEALTHY:
                    raise DeploymentFailedError(running.state.key, running.state.message)
                if running.state.is_deleted:
                    raise DeploymentGoneError(running.state.key)
                await running.changed.wait()

    async def delete(self, app: str) -> None:
        """Returns when its replicas have finished what they had and ended."""
        application = self._applications.pop(app, None)
        if application is None:
            raise LookupError(f"there is no application {app!r}; there are {sorted(self._applications)}")
        self._routes_have_changed()
        gone = [f"{app}:{name}" for name in application.deployments]
        for key in gone:
            self._delete(key)
        for key in gone:
            while (running := self._deployments.get(key)) is not None and running.state.is_deleted:
                await running.changed.wait()

    async def shut_down(self) -> None:
        for app in list(self._applications):
            await self.delete(app)

    async def ingress_of(self, app: str) -> str:
        application = self._applications.get(app)
        if application is None:
            raise LookupError(f"there is no application {app!r}; there are {sorted(self._applications)}")
        return application.ingress

    async def status(self) -> dict[str, Any]:
        return {name: self._status_of(one) for name, one in self._applications.items()}

    # ---- asked by routers and fronts -----------------------------------------------------------------------

    async def listen(self, key: str, revision: int) -> Table:
        """The routing table, once it is newer than the given revision, or after a while in any case."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._newer(key, revision), LISTEN_S)
        return self._table(key)

    async def listen_routes(self, revision: int) -> tuple[int, dict[str, tuple[str, str, Kind]]]:
        """(revision, (application, its deployment, how that answers) by route prefix), once it is newer."""
        with contextlib.suppress(asyncio.TimeoutError):
            while self._routes_revision <= revision:
                await asyncio.wait_for(self._routes_changed.wait(), LISTEN_S)
        routes = {
            one.route_prefix: (one.name, one.ingress, one.kind)
            for one in self._applications.values()
            if one.route_prefix
        }
        return self._routes_revision, routes

    async def replica_lost(self, key: str, replica: str, reason: str) -> None:
        """A router could not reach it. It is looked at once more here before it is given up."""
        running = self._deployments.get(key)
        if running is None or replica not in running.actors:
            return
        try:
            await asyncio.wait_for(running.actors[replica].load.remote(), running.state.config.health_check_timeout_s)
        except Exception:
            self._end(running, replica, reason)

    async def waiting_changed(self, key: str, caller: str, waiting: int) -> None:
        running = self._deployments.get(key)
        if running is not None:
            self._follow(running, running.state.waiting_reported(time.monotonic(), caller, waiting))

    async def http_front(self, front: Any = None) -> Any:
        """The front that serves HTTP; with an argument, from now on."""
        if front is not None:
            self._http = front
        return self._http

    # ---- doing -----------------------------------------------------------------------------------------

    def _follow(self, running: Running, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, StartReplica):
                self._spawn(self._start(running, instruction.replica))
            elif isinstance(instruction, DrainReplica):
                self._spawn(self._drain(running, instruction.replica))
            else:
                self._spawn(self._reconfigure(running, instruction.replica))
        if running.state.is_gone:
            self._deployments.pop(running.state.key, None)
        if running.state.revision != running.seen_revision or running.state.is_gone:
            running.seen_revision = running.state.revision
            running.changed.set()
            running.changed = asyncio.Event()

    async def _start(self, running: Running, replica: str) -> None:
        state = running.state
        app, _, name = state.key.partition(":")
        try:
            actor = replicas.make(ReplicaContext(app, name, replica), state.config)
            running.actors[replica] = actor
            await actor.construct.remote(running.code, state.config)
        except Exception as error:
            self._kill(running, replica)
            self._follow(running, state.replica_start_failed(time.monotonic(), replica, str(error)))
            return
        running.checked_s[replica] = time.monotonic()
        self._follow(running, state.replica_started(time.monotonic(), replica))

    async def _drain(self, running: Running, replica: str) -> None:
        actor = running.actors.get(replica)
        if actor is not None:
            try:
                await asyncio.wait_for(actor.drain.remote(), running.state.config.graceful_shutdown_timeout_s)
                running.drained.append(replica)
                with contextlib.suppress(ActorError):  # which says that it has left
                    await asyncio.wait_for(actor.leave.remote(), LEAVE_S)
            except Exception as error:
                print(f"weft.serve: replica {replica} was ended before it had finished: {error!r}")
        self._end(running, replica, "drained")

    async def _reconfigure(self, running: Running, replica: str) -> None:
        actor = running.actors.get(replica)
        if actor is None:
            return
        try:
            await actor.reconfigure.remote(running.state.config)
        except Exception as error:
            self._end(running, replica, f"reconfigure() failed: {error}")

    async def _check(self, running: Running, replica: str) -> None:
        actor = running.actors.get(replica)
        if actor is None:
            return
        try:
            load = await asyncio.wait_for(actor.check_health.remote(), running.state.config.health_check_timeout_s)
        except Exception as error:
            if replica in running.state.routed:
                self._end(running, replica, f"it is not healthy: {error!r}")
            return
        self._follow(running, running.state.load_reported(time.monotonic(), replica, load))

    def _end(self, running: Running, replica: str, reason: str) -> None:
        self._kill(running, replica)
        self._follow(running, running.state.replica_ended(time.monotonic(), replica, reason))

    def _kill(self, running: Running, replica: str) -> None:
        actor = running.actors.pop(replica, None)
        running.checked_s.pop(replica, None)
        if actor is not None:
            weft.kill(actor)

    def _delete(self, key: str) -> None:
        running = self._deployments[key]
        self._follow(running, running.state.deleted(time.monotonic()))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            for running in list(self._deployments.values()):
                config = running.state.config
                period_s = TICK_S if config.autoscaling is not None else config.health_check_period_s
                for replica in running.state.routed:
                    if now - running.checked_s.get(replica, 0.0) >= period_s:
                        running.checked_s[replica] = now
                        self._spawn(self._check(running, replica))
                self._follow(running, running.state.ticked(now))

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ---- telling ---------------------------------------------------------------------------------------

    async def _newer(self, key: str, revision: int) -> None:
        while (running := self._deployments.get(key)) is not None and running.state.revision <= revision:
            await running.changed.wait()

    def _table(self, key: str) -> Table:
        running = self._deployments.get(key)
        if running is None:
            return Table(0, {}, frozenset(), frozenset(), 0, 0, False, is_gone=True)
        state = running.state
        routed = {name: running.actors[name] for name in state.routed if name in running.actors}
        config = state.config
        return Table(
            state.revision,
            routed,
            frozenset(name for name, one in state.replicas.items() if one.state is ReplicaState.DRAINING),
            frozenset(running.drained),
            config.max_ongoing_requests,
            config.max_queued_requests,
            config.retry_on_death,
        )

    def _check_route(self, app: str, route_prefix: str | None) -> None:
        for other in self._applications.values():
            if route_prefix is not None and other.route_prefix == route_prefix and other.name != app:
                raise ValueError(f"route_prefix {route_prefix!r} is taken by application {other.name!r}")

    def _routes_have_changed(self) -> None:
        self._routes_revision += 1
        self._routes_changed.set()
        self._routes_changed = asyncio.Event()

    def _status_of(self, application: RunningApplication) -> dict[str, Any]:
        found = {}
        for name in application.deployments:
            state = self._deployments[f"{application.name}:{name}"].state
            counts = {one.value: 0 for one in ReplicaState}
            for record in state.replicas.values():
                counts[record.state.value] += 1
            found[name] = {
                "status": state.status.value,
                "message": state.message,
                "replicas": {word: count for word, count in counts.items() if count},
                "target": state.target,
                "ongoing": state.ongoing,
            }
        return {"route_prefix": application.route_prefix, "deployments": found}
