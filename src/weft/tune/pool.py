"""Hosts: the actors that trials run in, kept and used again, within what the cluster has. Runs in the driver.

POOL-1  The hosts of the pool never need more than the cluster has, as far as its nodes said lately. What others use
        makes a new host wait in the engine, not here.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import weft
from weft.library.storage import LocalStorage, Storage, pack
from weft.tune.errors import TuneError
from weft.tune.host import CONTROL, TrialHost
from weft.tune.resources import PlacementGroupFactory
from weft.tune.trial import SavedCheckpoint

__all__ = ["Host", "HostPool"]

REFRESH_S = 1.0
CLOSE_TIMEOUT_S = 5.0
PLACEMENT_PATIENCE_S = 1.0
_TOLERANCE = 1e-6


@dataclass(eq=False, slots=True)
class Host:
    actor: Any
    resources: PlacementGroupFactory
    group: Any = None
    serving: Any = None
    """The ref of its call that never returns."""
    made_at: float = 0.0
    first_answer: Any = None
    """The ref of its first call."""
    answered: bool = False

    @property
    def is_placed(self) -> bool:
        """Whether it was placed, and made; also when it has died since."""
        if not self.answered:
            ready, _ = weft.wait([self.first_answer], timeout=0)
            self.answered = bool(ready)
        return self.answered


@dataclass
class HostPool:
    settings: Any
    """A ref to the HostSettings."""
    _idle: dict[PlacementGroupFactory, list[Host]] = field(default_factory=dict)
    _hosts: set[Host] = field(default_factory=set)
    _used: dict[str, float] = field(default_factory=dict)
    _total: dict[str, float] = field(default_factory=dict)
    _refreshed_at: float = -1e9

    def take(self, resources: PlacementGroupFactory) -> Host | None:
        """A host of that shape, None when there is no room for one."""
        idle = self._idle.get(resources)
        if idle:
            return idle.pop()
        if not self._has_room(resources) and not self._make_room(resources):
            return None
        return self._new(resources)

    def could_take(self, resources: PlacementGroupFactory) -> bool:
        """Whether `take` would find a host, or make one."""
        return bool(self._idle.get(resources)) or self._has_room(resources) or any(self._idle.values())

    def give_back(self, host: Host) -> None:
        """Its trial has ended; another one may have it."""
        self._idle.setdefault(host.resources, []).append(host)

    def discard(self, host: Host) -> None:
        """End it with whatever runs in it."""
        self._hosts.discard(host)
        self._refreshed_at = -1e9
        idle = self._idle.get(host.resources, [])
        if host in idle:
            idle.remove(host)
        for name, amount in host.resources.total.items():
            self._used[name] -= amount
        with contextlib.suppress(weft.exceptions.WeftError):  # it may be dead already
            weft.kill(host.actor)
        if host.group is not None:
            from weft.util.placement_group import remove_placement_group

            remove_placement_group(host.group)

    def make_way(self) -> None:
        """End the idle hosts if another one cannot be placed: a node may have died, or others use the cluster."""
        late = time.monotonic() - PLACEMENT_PATIENCE_S
        if any(self._idle.values()) and any(host.made_at < late and not host.is_placed for host in self._hosts):
            for host in [host for idle in self._idle.values() for host in idle]:
                self.discard(host)

    def close(self) -> None:
        """End all hosts; class trainables clean up first, if they do it soon."""
        refs = [host.actor.close.remote() for idle in self._idle.values() for host in idle]
        if refs:
            with contextlib.suppress(weft.exceptions.WeftError):
                weft.wait(refs, num_returns=len(refs), timeout=CLOSE_TIMEOUT_S)
        for host in list(self._hosts):
            self.discard(host)

    @property
    def size(self) -> int:
        """How many hosts there are."""
        return len(self._hosts)

    @property
    def used(self) -> dict[str, float]:
        return dict(self._used)

    @property
    def total(self) -> dict[str, float]:
        now = time.monotonic()
        if now - self._refreshed_at > REFRESH_S:
            self._refreshed_at = now
            self._total = weft.cluster_resources()
        return self._total

    def packed(self, storage: Storage, checkpoint: SavedCheckpoint | None) -> dict[str, bytes] | None:
        """On one machine every host sees the storage; in a cluster the files are sent along."""
        if checkpoint is None or not isinstance(storage, LocalStorage) or len(weft.nodes()) <= 1:
            return None
        with storage.folder(checkpoint.path) as folder:
            return pack(Path(folder))

    def check_possible(self, resources: PlacementGroupFactory) -> None:
        """Raise if this cluster, as it is, can never hold it."""
        total = self.total
        for name, amount in resources.total.items():
            if amount > total.get(name, 0.0) + _TOLERANCE and len(weft.nodes()) <= 1:
                raise TuneError(
                    f"a trial needs {amount:g} {name}, but this machine has {total.get(name, 0.0):g}: ask for "
                    f"less with "
                    f"tune.with_resources or resources_per_trial, or join a cluster that has more"
                )

    def _has_room(self, resources: PlacementGroupFactory) -> bool:
        total = self.total
        return all(
            self._used.get(name, 0.0) + amount <= total.get(name, 0.0) + _TOLERANCE
            for name, amount in resources.total.items()
        )

    def _make_room(self, resources: PlacementGroupFactory) -> bool:
        """End idle hosts of other shapes."""
        for host in [host for idle in self._idle.values() for host in idle]:
            self.discard(host)
            if self._has_room(resources):
                return True
        return False

    def _new(self, resources: PlacementGroupFactory) -> Host:
        head = resources.head
        options: dict[str, Any] = {
            "num_cpus": head.pop("CPU", 0),
            "num_gpus": head.pop("GPU", 0),
            "resources": head,
            "max_restarts": 0,
        }
        group = None
        if len(resources.bundles) > 1:
            from weft.util.placement_group import placement_group
            from weft.util.scheduling_strategies import PlacementGroupSchedulingStrategy

            group = placement_group([dict(bundle) for bundle in resources.bundles], resources.strategy)
            options["scheduling_strategy"] = PlacementGroupSchedulingStrategy(
                group, placement_group_bundle_index=0, placement_group_capture_child_tasks=True
            )
        actor = weft.remote(concurrency_groups={CONTROL: 1})(TrialHost).options(**options).remote(self.settings)
        host = Host(actor, resources, group, actor.serve.remote(), time.monotonic(), actor.is_there.remote())
        self._hosts.add(host)
        for name, amount in resources.total.items():
            self._used[name] = self._used.get(name, 0.0) + amount
        return host
