"""What the controller decides: events in, instructions out. Pure: no I/O, no clock, no randomness.

1. SRV-1: while a deployment is updated, as many replicas run as before, if that is no more than the new target and
   there is room for one more.
2. SRV-2: a replica is drained at most once, but for a restart of the controller, and no draining replica is in the
   routing table.
3. SRV-3: whenever the routing table or the deployment's end changes, its `revision` grows.
4. SRV-4: a constructor that keeps failing is tried ever less often, and the deployment says why.
5. SRV-5: a deployment is healthy only when every replica has said that it uses the newest user config.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from weft import cloudpickle
from weft.serve.config import DeploymentConfig
from weft.serve.scaling import ScalingView

MOST_BACKOFF_S = 30.0
CALLER_SILENT_S = 15.0
"""A caller that was not heard of for so long is dead, and what waited there waits no more."""
RATE_S = 1.0
"""So long at least requests are counted before it is said how many a second there are."""
FAILURES_TO_GIVE_UP = 3
"""So many starts in a row must fail before `serve.run` gives up waiting."""


class ReplicaState(Enum):
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    DRAINING = "DRAINING"


class DeploymentStatus(Enum):
    UPDATING = "UPDATING"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    DELETING = "DELETING"


@dataclass(frozen=True)
class StartReplica:
    key: str
    replica: str


@dataclass(frozen=True)
class DrainReplica:
    """Let it finish what it has, then end it."""

    key: str
    replica: str


@dataclass(frozen=True)
class ReconfigureReplica:
    """Give it the user config, and say when it has it."""

    key: str
    replica: str
    config_number: int


Instruction = StartReplica | DrainReplica | ReconfigureReplica


@dataclass
class ReplicaRecord:
    version: str
    state: ReplicaState = ReplicaState.STARTING
    node: str = ""
    """Where it runs, once it has started."""
    ongoing: int = 0
    served: int = 0
    answers_per_s: float = 0.0
    latency_s: float | None = None
    """None where it has answered nothing lately."""
    reported_s: float | None = None
    """When `served` last grew, or was first said."""
    config_number: int = 0
    """Which user config it has said to use."""
    is_reconfiguring: bool = False
    has_group: bool = False
    """Whether there is a placement group of its name."""
    has_run: bool = False
    """Whether it was ever in the routing table: then it may have requests."""


@dataclass
class DeploymentState:
    """One deployment. Its methods are the events; each returns what is to be done."""

    key: str
    version: str = ""
    config: DeploymentConfig = field(default_factory=DeploymentConfig)
    target: int = 0
    is_deleted: bool = False
    replicas: dict[str, ReplicaRecord] = field(default_factory=dict)
    revision: int = 0
    message: str = ""
    _made: int = 0
    _config_number: int = 0
    _failures: int = 0
    _start_not_before_s: float = 0.0
    _waiting: dict[str, int] = field(default_factory=dict)
    """Requests that wait at their callers, by caller."""
    _heard_s: dict[str, float] = field(default_factory=dict)
    """When each of these callers was last heard of."""
    _scale_since_s: float | None = None
    _scale_sign: int = 0
    _time_s: float = 0.0
    """Of day."""

    def deployed(self, now_s: float, version: str, config: DeploymentConfig) -> list[Instruction]:
        """A first or another `serve.run`: code of a new version replaces replicas, a new user config does not."""
        same_autoscaling = bool(self.version and config.autoscaling) and _is_same(
            config.autoscaling, self.config.autoscaling
        )
        if not same_autoscaling:
            self.target = config.first_count
        if version != self.version:
            self._failures, self._start_not_before_s, self.message = 0, 0.0, ""
        if not _is_same(config.user_config, self.config.user_config):
            self._config_number += 1
        self.version, self.config, self.is_deleted = version, config, False
        self.revision += 1
        return self._reconcile(now_s)

    def deleted(self, now_s: float) -> list[Instruction]:
        self.is_deleted, self.target = True, 0
        self.revision += 1
        return self._reconcile(now_s)

    def replica_started(self, now_s: float, replica: str, node: str = "") -> list[Instruction]:
        record = self.replicas.get(replica)
        if record is not None and record.state is ReplicaState.STARTING:
            record.state, record.has_run, record.node = ReplicaState.RUNNING, True, node
            self._failures, self.message = 0, ""
            self.revision += 1
        return self._reconcile(now_s)

    def replica_reconfigured(self, now_s: float, replica: str, config_number: int) -> list[Instruction]:
        record = self.replicas.get(replica)
        if record is not None:
            record.config_number, record.is_reconfiguring = config_number, False
            self.revision += 1
        return self._reconcile(now_s)

    def replica_start_failed(self, now_s: float, replica: str, reason: str) -> list[Instruction]:
        if self.replicas.pop(replica, None) is not None:
            self._failures += 1
            self._start_not_before_s = now_s + min(MOST_BACKOFF_S, 0.1 * 2**self._failures)
            self.message = reason
            self.revision += 1
        return self._reconcile(now_s)

    def replica_ended(self, now_s: float, replica: str, reason: str) -> list[Instruction]:
        """It died, was unhealthy, or is drained."""
        record = self.replicas.pop(replica, None)
        if record is not None and record.state is not ReplicaState.DRAINING:
            self.message = reason
        if record is not None:
            self.revision += 1
        return self._reconcile(now_s)

    def recovered(self, now_s: float, alive: frozenset[str]) -> list[Instruction]:
        """The controller was restarted and found these replicas. Whoever had begun to leave is told again."""
        self._start_not_before_s, self._scale_since_s = 0.0, None
        self._heard_s = dict.fromkeys(self._waiting, now_s)
        self.replicas = {name: one for name, one in self.replicas.items() if name in alive}
        for record in self.replicas.values():
            record.is_reconfiguring = False
        self.revision += 1
        again = [DrainReplica(self.key, name) for name in self.draining]
        return [*again, *self._reconcile(now_s)]

    def room_lacked(self, now_s: float) -> list[Instruction]:
        """A new replica waits for resources that are all taken: an outdated one makes room for it, one at a time."""
        outdated = [name for name in self.routed if self.replicas[name].version != self.version]
        if not outdated or self.draining:
            return self._reconcile(now_s)
        self.replicas[outdated[0]].state = ReplicaState.DRAINING
        self.revision += 1
        return [DrainReplica(self.key, outdated[0]), *self._reconcile(now_s)]

    def load_reported(
        self, now_s: float, replica: str, ongoing: int, served: int = 0, latency_s: float | None = None
    ) -> list[Instruction]:
        """`latency_s`: of the last of those that it has `served`."""
        if (record := self.replicas.get(replica)) is not None:
            record.ongoing = ongoing
            if record.reported_s is None:
                record.served, record.reported_s = served, now_s
            elif (passed_s := now_s - record.reported_s) >= RATE_S:
                record.answers_per_s = (served - record.served) / passed_s
                record.latency_s = latency_s if served > record.served else None
                record.served, record.reported_s = served, now_s
        return self._scaled(now_s)

    def waiting_reported(self, now_s: float, caller: str, waiting: int) -> list[Instruction]:
        if waiting:
            self._waiting[caller], self._heard_s[caller] = waiting, now_s
        else:
            self._forget(caller)
        return self._scaled(now_s)

    def caller_heard(self, now_s: float, caller: str) -> None:
        """It lives, and what it said to wait there waits still."""
        if caller in self._waiting:
            self._heard_s[caller] = now_s

    def _forget(self, caller: str) -> None:
        self._waiting.pop(caller, None)
        self._heard_s.pop(caller, None)

    def ticked(self, now_s: float, time_s: float = 0.0) -> list[Instruction]:
        """`time_s`: of day, in seconds since 1970."""
        self._time_s = time_s
        for caller in [one for one, heard_s in self._heard_s.items() if now_s - heard_s > CALLER_SILENT_S]:
            self._forget(caller)
        return self._scaled(now_s)

    # ---- what follows ----------------------------------------------------------------------------------

    @property
    def status(self) -> DeploymentStatus:
        if self.is_deleted:
            return DeploymentStatus.DELETING
        current = [record for record in self.replicas.values() if record.version == self.version]
        running = sum(self.is_up_to_date(record) for record in current)
        others = len(self.replicas) - len(current)
        if self._failures >= FAILURES_TO_GIVE_UP:
            return DeploymentStatus.UNHEALTHY
        return DeploymentStatus.HEALTHY if running == self.target and not others else DeploymentStatus.UPDATING

    def is_up_to_date(self, record: ReplicaRecord) -> bool:
        return record.state is ReplicaState.RUNNING and record.config_number == self._config_number

    @property
    def is_gone(self) -> bool:
        return self.is_deleted and not self.replicas

    @property
    def ongoing(self) -> int:
        return sum(record.ongoing for record in self.replicas.values())

    @property
    def waiting(self) -> int:
        """Requests that callers hold back because every replica is full."""
        return sum(self._waiting.values())

    @property
    def draining(self) -> list[str]:
        return [name for name, record in self.replicas.items() if record.state is ReplicaState.DRAINING]

    @property
    def starting(self) -> list[str]:
        return [name for name, record in self.replicas.items() if record.state is ReplicaState.STARTING]

    @property
    def routed(self) -> list[str]:
        return [name for name, record in self.replicas.items() if record.state is ReplicaState.RUNNING]

    def _scaled(self, now_s: float) -> list[Instruction]:
        scaling = self.config.autoscaling
        if scaling is None or self.is_deleted:
            return self._reconcile(now_s)
        try:
            wanted = scaling.wanted(self._view())
        except Exception as error:  # of the user's policy: what runs goes on
            self.message = f"its autoscaling policy failed: {error!r}"
            return self._reconcile(now_s)
        sign = (wanted > self.target) - (wanted < self.target)
        if sign == 0:
            self._scale_since_s, self._scale_sign = None, 0
            return self._reconcile(now_s)
        if sign != self._scale_sign:
            self._scale_since_s, self._scale_sign = now_s, sign
        delay_s = scaling.downscale_delay_s if sign < 0 else scaling.upscale_delay_s if self.target else 0.0
        if self._scale_since_s is not None and now_s - self._scale_since_s >= delay_s:
            self.target, self._scale_since_s, self._scale_sign = wanted, None, 0
        return self._reconcile(now_s)

    def _view(self) -> ScalingView:
        running = [self.replicas[name] for name in self.routed]
        times_s = [one.latency_s for one in running if one.latency_s is not None]
        rate = sum(one.answers_per_s for one in running)
        return ScalingView(
            self.target, self.ongoing, self.waiting, max(times_s, default=None), rate, time_s=self._time_s
        )

    def _reconcile(self, now_s: float) -> list[Instruction]:
        return [*self._drain(), *self._start(now_s), *self._reconfigure()]

    def _start(self, now_s: float) -> list[Instruction]:
        if now_s < self._start_not_before_s:
            return []
        live = [record for record in self.replicas.values() if record.state is not ReplicaState.DRAINING]
        current = sum(record.version == self.version for record in live)
        surge = max(1, self.target // 4)
        room = self.target + (surge if current < len(live) else 0) - len(live)
        made: list[Instruction] = []
        for _ in range(max(0, min(self.target - current, room))):
            self._made += 1
            name = f"{self.key}#{self._made}"
            self.replicas[name] = ReplicaRecord(self.version, config_number=self._config_number)
            made.append(StartReplica(self.key, name))
        return made

    def _drain(self) -> list[Instruction]:
        """The outdated as far as others run in their place; of the current ones what is too many, newest first."""
        live = {name: one for name, one in self.replicas.items() if one.state is not ReplicaState.DRAINING}
        running = sum(record.state is ReplicaState.RUNNING for record in live.values())
        outdated = [name for name, record in live.items() if record.version != self.version]
        current = [name for name, record in live.items() if record.version == self.version]
        chosen = current[self.target :] if len(current) > self.target else []
        running -= sum(live[name].state is ReplicaState.RUNNING for name in chosen)
        for name in outdated:
            if live[name].state is ReplicaState.STARTING:
                chosen.append(name)
            elif running > self.target:
                chosen.append(name)
                running -= 1
        for name in chosen:
            self.replicas[name].state = ReplicaState.DRAINING
            self.revision += 1
        return [DrainReplica(self.key, name) for name in chosen]

    def _reconfigure(self) -> list[Instruction]:
        """One after another for each replica, so that the newest config is the last that it is given."""
        made: list[Instruction] = []
        for name, record in self.replicas.items():
            is_stale = record.config_number != self._config_number and record.version == self.version
            if is_stale and record.state is ReplicaState.RUNNING and not record.is_reconfiguring:
                record.is_reconfiguring = True
                made.append(ReconfigureReplica(self.key, name, self._config_number))
        return made


def _is_same(one: Any, other: Any) -> bool:
    """Whether two user configs are. Arrays in them have no single answer, and weights are no rare ones: then, or where
    they say that they differ, what they look like pickled decides.

    >>> import numpy as np
    >>> _is_same({"w": np.ones(2)}, {"w": np.ones(2)}), _is_same({"w": np.ones(2)}, {"w": np.zeros(2)})
    (True, False)
    """
    try:
        if bool(one == other):
            return True
    except Exception:  # whatever their __eq__ does
        pass
    return bool(cloudpickle.dumps(one) == cloudpickle.dumps(other))
