"""The controller: one actor that keeps as many replicas as each deployment should have, and tells routers of them.

It decides with `state.DeploymentState` and does here what that says. Requests never pass through it. All of it runs on
the actor's loop, so there are no locks.

1. CTL-1: a replica is written down in the vault before its actor is made, so that a controller that is restarted knows
   every replica there is. Replicas are detached actors: they outlive it.
2. CTL-2: callers see nothing of a restart but a delay: every method may run twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from dataclasses import replace
from typing import Any

import weft
from weft.exceptions import ActorError
from weft.serve import places
from weft.serve import replica as replicas
from weft.serve.board import ServeBoard
from weft.serve.build import BuiltDeployment
from weft.serve.callers import LISTEN_S, Callers
from weft.serve.canaries import CanaryRule
from weft.serve.config import DeploymentConfig
from weft.serve.context import ReplicaContext
from weft.serve.errors import DeploymentFailedError, DeploymentGoneError
from weft.serve.front_spread import FrontSpread
from weft.serve.http.messages import Kind
from weft.serve.judging import judged
from weft.serve.keeping import Keeping
from weft.serve.overview import CANARY, described, status_of, table_of
from weft.serve.pending import lacking, why_not_healthy
from weft.serve.running import CanaryApplication, Running, RunningApplication, Snapshot, check_route
from weft.serve.state import (
    DeploymentState,
    DeploymentStatus,
    DrainReplica,
    Instruction,
    StartReplica,
)
from weft.serve.table import Table

TICK_S = 0.2
ROOM_S = 2.0
"""How long a new replica waits for resources before an outdated one makes room for it."""
LEAVE_S = 5.0
RESUME_S = 10.0
NAME = "weft-serve-controller"
NAMESPACE = "weft.serve"


class Controller:
    """The actor's class."""

    def __init__(self) -> None:
        self._deployments: dict[str, Running] = {}
        """By key, APP:DEPLOYMENT; canaries under APP:DEPLOYMENT@canary."""
        self._applications: dict[str, RunningApplication] = {}
        self._canaries: dict[str, CanaryApplication] = {}
        self._routes_changed = asyncio.Event()
        self._routes_revision = 0
        self._fronts: dict[str, list[Any]] = {}
        self._ports: dict[str, int] = {}
        """Both by "http" or "grpc"."""
        self._spread: FrontSpread | None = None
        """If all nodes have HTTP fronts."""
        self._wanted: list[Any] = []
        """What files have said that is to be served, the last one last."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._callers = Callers()
        self._leaving: set[asyncio.Task[None]] = set()
        """Placement groups that are given up."""
        self._epoch = uuid.uuid4().hex[:8]
        """Part of the actors' names: another controller's replicas of the same names may still be leaving."""
        self._keeping = Keeping(NAMESPACE, self._snapshot, self._deployments, self._spawn)
        if self._keeping.found is not None:
            self._recover(self._keeping.found, self._keeping.codes)
        self._spawn(self._tick())
        self._spawn(ServeBoard(lambda: described(self._applications, self._deployments)).run())

    # ---- asked by the API --------------------------------------------------------------------------------

    async def deploy(self, app: str, route_prefix: str | None, built: list[BuiltDeployment]) -> None:
        """Start an application, or bring a running one to what is given. Returns when it is written down."""
        check_route(self._applications.values(), app, route_prefix)
        old = self._applications.get(app)
        names = [one.name for one in built]
        verdict = old.verdict if old is not None else ""
        self._applications[app] = RunningApplication(app, route_prefix, names[-1], names, built[-1].kind, verdict)
        for one in built:
            self._deploy(f"{app}:{one.name}", one, one.config)
        for name in old.deployments if old is not None else []:
            if name not in names:
                gone = self._deployments[f"{app}:{name}"]
                self._follow(gone, gone.state.deleted(time.monotonic()))
        self._routes_have_changed()
        if app in self._canaries:
            self._spawn(self._end_canary_after_update(app))
        await self._keeping.saved()

    def _deploy(self, key: str, built: BuiltDeployment, config: DeploymentConfig) -> None:
        running = self._deployments.setdefault(key, Running(DeploymentState(key)))
        if running.code != built.code:
            running.code = built.code
            self._keeping.save_code(key, built.code)
        self._follow(running, running.state.deployed(time.monotonic(), built.version, config))

    async def deploy_canary(
        self, app: str, route_prefix: str | None, built: list[BuiltDeployment], share: float, rule: CanaryRule | None
    ) -> None:
        """Start what is new in it beside what runs, and give it a share of the requests. Returns when it is healthy.
        With a rule, it is promoted or ended by that some time later."""
        self._known(app)
        mine = {one.name: self._deployments.get(f"{app}:{one.name}") for one in built}
        strange = sorted(name for name, running in mine.items() if running is None)
        if strange:
            raise ValueError(f"application {app!r} has no deployment {strange[0]!r} that a canary could stand beside")
        canary = self._canaries[app] = CanaryApplication(share, route_prefix, built, rule)
        keys = []
        for one in built:
            running = mine[one.name]
            assert running is not None
            if one.version != running.state.version:
                count = max(1, round(share * running.state.target))
                keys.append(f"{app}:{one.name}{CANARY}")
                self._deploy(keys[-1], one, replace(one.config, num_replicas=count, autoscaling=None))
        for key in keys:
            await self._healthy(key)
        if rule is not None:
            self._known(app).verdict = ""
            self._spawn(self._judge(app, canary))

    async def _judge(self, app: str, canary: CanaryApplication) -> None:
        """Promote it or end it, as its rule says, unless another has taken its place by then."""
        verdict = await judged(self._deployments, app, canary, lambda: self._canaries.get(app) is canary)
        if verdict is not None:
            self._known(app).verdict = verdict.said
            print(f"weft.serve: the canary of {app!r} {verdict.said}")
            await (self.promote(app) if verdict.is_good else self.end_canary(app))

    async def promote(self, app: str) -> None:
        """Make the canary's version the application's. Returns when it is, and the canary has ended."""
        if (canary := self._canaries.get(app)) is not None:  # else a call before this one was answered by nobody
            await self.deploy(app, canary.route_prefix, canary.built)
            await self.wait_ready(app)
        await self.end_canary(app)

    async def end_canary(self, app: str) -> None:
        """Returns when its replicas have finished what they had and ended."""
        self._canaries.pop(app, None)
        await self._delete_all([key for key in self._deployments if key.startswith(f"{app}:") and CANARY in key])

    async def _end_canary_after_update(self, app: str) -> None:
        with contextlib.suppress(DeploymentFailedError, DeploymentGoneError):  # then the canary is the better version
            await self.wait_ready(app)
            await self.end_canary(app)

    def _known(self, app: str) -> RunningApplication:
        application = self._applications.get(app)
        if application is None:
            raise LookupError(f"there is no application {app!r}; there are {sorted(self._applications)}")
        return application

    async def check_known(self, app: str, is_canary: bool = False) -> None:
        """LookupError if there is nothing of that name that could be deleted, or no canary of it. Asked before, for
        `delete` may run twice and finds nothing the second time."""
        if is_canary and app not in self._canaries:
            raise LookupError(f"application {app!r} has no canary; serve.run(..., canary_share=0.1) starts one")
        if not any(key.partition(":")[0] == app for key in self._deployments):
            self._known(app)

    async def wait_ready(self, app: str) -> None:
        """Returns when all deployments are healthy; DeploymentFailedError when one cannot be."""
        for name in self._known(app).deployments:
            await self._healthy(f"{app}:{name}")

    async def _healthy(self, key: str) -> None:
        running = self._deployments[key]
        while running.state.status is not DeploymentStatus.HEALTHY:
            if running.state.status is DeploymentStatus.UNHEALTHY:
                raise DeploymentFailedError(key, running.state.message)
            if running.state.is_deleted:
                raise DeploymentGoneError(key)
            await running.changed.wait()
        await self._keeping.saved()

    async def pending(self, app: str) -> str:
        """What keeps an application from being ready, in words; empty if nothing does."""
        waiting = [running for key, running in self._deployments.items() if key.partition(":")[0] == app]
        found = [await why_not_healthy(one) for one in waiting if one.state.status is not DeploymentStatus.HEALTHY]
        return "; ".join(found)

    async def delete(self, app: str) -> None:
        """Returns when its replicas have finished what they had and ended."""
        self._applications.pop(app, None)
        self._canaries.pop(app, None)
        self._routes_have_changed()
        await self._delete_all([key for key in self._deployments if key.partition(":")[0] == app])

    async def _delete_all(self, keys: list[str]) -> None:
        for leaving in [self._deployments[key] for key in keys]:
            self._follow(leaving, leaving.state.deleted(time.monotonic()))
        for key in keys:
            while (running := self._deployments.get(key)) is not None and running.state.is_deleted:
                await running.changed.wait()
        if self._leaving:
            await asyncio.wait(self._leaving)
        await self._keeping.saved()

    async def shut_down(self) -> None:
        for app in list(self._applications):
            await self.delete(app)

    async def ingress_of(self, app: str) -> str:
        return self._known(app).ingress

    async def pid(self) -> int:
        return os.getpid()

    async def wanted(self, documents: list[Any] | None = None) -> list[Any]:
        """What files have said that is to be served, the last one last; with an argument, from now on."""
        if documents is not None:
            self._wanted = documents
            await self._keeping.saved()
        return self._wanted

    async def status(self) -> dict[str, Any]:
        return {name: status_of(one, self._deployments) for name, one in self._applications.items()}

    # ---- asked by routers and fronts -----------------------------------------------------------------------

    async def listen(self, key: str, revision: int, caller: str = "") -> Table:
        """The routing table, once it is newer than the given revision, or after a while in any case."""
        self._callers.heard(caller)
        if (running := self._deployments.get(key)) is not None:
            running.state.caller_heard(time.monotonic(), caller)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._newer(key, revision), LISTEN_S)
        return table_of(self._deployments, self._canaries, key)

    async def listen_routes(self, revision: int) -> tuple[int, dict[str, tuple[str, str, Kind]]]:
        """(revision, (application, its deployment, how that answers) by route prefix), once it is newer."""
        await self._newer_routes(revision)
        routes = {
            one.route_prefix: (one.name, one.ingress, one.kind)
            for one in self._applications.values()
            if one.route_prefix
        }
        return self._routes_revision, routes

    async def listen_applications(self, revision: int) -> tuple[int, dict[str, str]]:
        """(revision, the ingress deployment by application), once it is newer."""
        await self._newer_routes(revision)
        return self._routes_revision, {one.name: one.ingress for one in self._applications.values()}

    async def _newer_routes(self, revision: int) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            while self._routes_revision <= revision:
                await asyncio.wait_for(self._routes_changed.wait(), LISTEN_S)

    async def replica_lost(self, key: str, replica: str, reason: str) -> None:
        """A router could not reach it. It is looked at once more here before it is given up."""
        found = [self._deployments[one] for one in (key, key + CANARY) if one in self._deployments]
        running = next((one for one in found if replica in one.actors), None)
        if running is None:
            return
        try:
            await asyncio.wait_for(running.actors[replica].load.remote(), running.state.config.health_check_timeout_s)
        except Exception:
            self._end(running, replica, reason)

    async def waiting_changed(self, key: str, caller: str, waiting: int) -> None:
        running = self._deployments.get(key)
        if running is not None:
            self._follow(running, running.state.waiting_reported(time.monotonic(), caller, waiting))

    async def fronts(self, kind: str = "", fronts: list[Any] | None = None) -> list[Any]:
        """Those that serve HTTP or gRPC, or all; with an argument, from now on."""
        if fronts is not None:
            self._fronts[kind] = fronts
            await self._keeping.saved()
        return [front for its, listed in self._fronts.items() if kind in ("", its) for front in listed]

    async def spread_fronts(self, options: Any, node: str) -> None:
        """Have HTTP fronts on all other nodes, too, from now on. Returns when those that there are have theirs."""
        if self._spread is None:
            self._spread = FrontSpread(options, node)
            await self._spread.look(self._fronts["http"])
            self._spawn(self._spread.keep(self._fronts["http"], self._keeping.save))
            await self._keeping.saved()

    async def port(self, kind: str, port: int = 0) -> int:
        """Where the fronts listen, 0 if that is not decided; with an argument, from now on. A front that is restarted
        must find the port of the first."""
        if port:
            self._ports[kind] = port
            await self._keeping.saved()
        return self._ports.get(kind, 0)

    # ---- doing -----------------------------------------------------------------------------------------

    def _follow(self, running: Running, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, StartReplica):
                self._spawn(self._start(running, instruction.replica))
            elif isinstance(instruction, DrainReplica):
                self._spawn(self._drain(running, instruction.replica))
            else:
                self._spawn(self._reconfigure(running, instruction.replica, instruction.config_number))
        # Another may have been deployed under its name since: what was under way for this one ends only now.
        if running.state.is_gone and self._deployments.get(running.state.key) is running:
            del self._deployments[running.state.key]
            self._keeping.save_code(running.state.key, None)
            beside = self._deployments.get(running.state.key.removesuffix(CANARY))
            if beside is not None:
                beside.drained_canaries.extend(running.drained)
        if running.state.revision != running.seen_revision or running.state.is_gone:
            running.seen_revision = running.state.revision
            self._keeping.save()
            running.changed.set()
            running.changed = asyncio.Event()
            if running.state.key.endswith(CANARY):
                self._canary_changed(running.state.key.removesuffix(CANARY))

    def _canary_changed(self, key: str) -> None:
        """Its replicas are in the table of the deployment that it stands beside."""
        beside = self._deployments.get(key)
        if beside is not None:
            beside.state.revision += 1
            self._follow(beside, [])

    async def _start(self, running: Running, replica: str) -> None:
        state = running.state
        app, _, name = state.key.removesuffix(CANARY).partition(":")
        await self._keeping.saved()  # CTL-1
        if replica not in state.replicas:  # deleted meanwhile
            return
        running.starting_s[replica] = time.monotonic()
        try:
            place = await places.find(running, replica, self._name_of(replica))
            if replica not in state.replicas:  # deleted meanwhile
                if state.config.placement_group_bundles:
                    await asyncio.to_thread(places.give_up, self._name_of(replica))
                return
            identity = ReplicaContext(app, name, replica)
            actor = replicas.make(identity, state.config, self._name_of(replica), NAMESPACE, place)
            running.actors[replica] = actor
            node = await actor.construct.remote(running.code, state.config)
        except Exception as error:
            self._kill(running, replica)
            self._follow(running, state.replica_start_failed(time.monotonic(), replica, str(error)))
            return
        finally:
            running.starting_s.pop(replica, None)
        running.checked_s[replica] = time.monotonic()
        self._follow(running, state.replica_started(time.monotonic(), replica, node))

    async def _make_room(self, running: Running) -> None:
        """For replicas that wait for resources, if that is what they wait for."""
        if running.unplaced or await lacking(running):
            self._follow(running, running.state.room_lacked(time.monotonic()))

    async def _drain(self, running: Running, replica: str) -> None:
        actor, record = running.actors.get(replica), running.state.replicas.get(replica)
        if actor is not None and record is not None and record.has_run:
            try:
                await asyncio.wait_for(actor.drain.remote(), running.state.config.graceful_shutdown_timeout_s)
                running.drained.append(replica)
                with contextlib.suppress(ActorError):  # which says that it has left
                    await asyncio.wait_for(actor.leave.remote(), LEAVE_S)
            except Exception as error:
                print(f"weft.serve: replica {replica} was ended before it had finished: {error!r}")
        self._end(running, replica, "drained")

    async def _reconfigure(self, running: Running, replica: str, config_number: int) -> None:
        actor = running.actors.get(replica)
        if actor is None:
            return
        try:
            await actor.reconfigure.remote(running.state.config)
        except Exception as error:
            self._end(running, replica, f"reconfigure() failed: {error}")
        else:
            self._follow(running, running.state.replica_reconfigured(time.monotonic(), replica, config_number))

    async def _check(self, running: Running, replica: str) -> None:
        actor = running.actors.get(replica)
        if actor is None:
            return
        try:
            timeout_s = running.state.config.health_check_timeout_s
            *report, lasting = await asyncio.wait_for(actor.check_health.remote(), timeout_s)
        except Exception as error:
            if replica in running.state.routed:
                self._end(running, replica, f"it is not healthy: {error!r}")
            return
        self._follow(running, running.state.load_reported(time.monotonic(), replica, *report))
        if lasting:
            self._spawn(self._callers.look_after(actor, lasting))

    def _end(self, running: Running, replica: str, reason: str) -> None:
        self._kill(running, replica)
        self._follow(running, running.state.replica_ended(time.monotonic(), replica, reason))

    def _kill(self, running: Running, replica: str) -> None:
        actor = running.actors.pop(replica, None)
        running.checked_s.pop(replica, None)
        if actor is not None:
            weft.kill(actor)
        record = running.state.replicas.get(replica)
        if record is not None and record.has_group:
            record.has_group = False
            leaving = self._spawn(asyncio.to_thread(places.give_up, self._name_of(replica)))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

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
                if any(now - since >= ROOM_S for since in running.starting_s.values()):
                    running.starting_s = dict.fromkeys(running.starting_s, now)
                    self._spawn(self._make_room(running))
                self._follow(running, running.state.ticked(now, time.time()))

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ---- being restarted --------------------------------------------------------------------------------

    def _snapshot(self) -> Snapshot:
        states = {key: running.state for key, running in self._deployments.items()}
        drained = {key: list(running.drained) for key, running in self._deployments.items()}
        known = (self._applications, self._canaries, self._routes_revision, self._fronts, self._ports)
        return Snapshot(self._epoch, states, drained, *known, self._spread, self._wanted)

    def _recover(self, saved: Snapshot, codes: dict[str, bytes]) -> None:
        """Take over what another process of this controller left."""
        self._epoch, self._applications = saved.epoch, saved.applications
        self._fronts, self._ports, self._spread, self._wanted = saved.fronts, saved.ports, saved.spread, saved.wanted
        self._canaries = saved.canaries
        if self._spread is not None:
            self._spawn(self._spread.keep(self._fronts["http"], self._keeping.save))
        for app, canary in self._canaries.items():
            if canary.rule is not None:
                self._spawn(self._judge(app, canary))
        self._routes_revision = saved.routes_revision + 1
        for key, state in saved.states.items():
            running = self._deployments[key] = Running(state, codes.get(key, b""))
            running.drained.extend(saved.drained[key])
            for replica in list(state.replicas):
                with contextlib.suppress(ValueError):  # it was never made, or has died
                    running.actors[replica] = weft.get_actor(self._name_of(replica), namespace=NAMESPACE)
            self._follow(running, state.recovered(time.monotonic(), frozenset(running.actors)))
            for replica in state.starting:
                if replica in running.actors:
                    self._spawn(self._resume(running, replica))

    async def _resume(self, running: Running, replica: str) -> None:
        """How far it had come was not written down: perhaps it has requests already."""
        try:
            node = await asyncio.wait_for(running.actors[replica].is_ready.remote(), RESUME_S)
        except Exception:
            node = ""
        if node:
            self._follow(running, running.state.replica_started(time.monotonic(), replica, node))
        else:
            self._end(running, replica, "its controller was restarted before it was ready")

    def _name_of(self, replica: str) -> str:
        return f"{replica}-{self._epoch}"

    # ---- telling ---------------------------------------------------------------------------------------

    async def _newer(self, key: str, revision: int) -> None:
        while (running := self._deployments.get(key)) is not None and running.state.revision <= revision:
            await running.changed.wait()

    def _routes_have_changed(self) -> None:
        self._routes_revision += 1
        self._keeping.save()
        self._routes_changed.set()
        self._routes_changed = asyncio.Event()
