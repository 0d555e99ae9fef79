"""How much of what a node has, who holds it, and which GPUs that means.

Pure: no I/O, no clock. Amounts are integers of 1/10,000, so that a thousand times 0.1 CPU adds up exactly.

Invariants (`ResourcePool.check`):
    RES-1  available + held - lent = total, for every resource.
    RES-2  only CPU can be below zero (a worker that goes on takes its CPU back whether it is free or not).
    RES-3  a device's shares in use and its free share add up to one whole device.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

UNIT = 10_000
CPU = "CPU"
GPU = "GPU"
MEMORY = "memory"

Amounts: TypeAlias = tuple[tuple[str, int], ...]
"""Resource names with amounts in 1/10,000, by name; zero amounts are left out."""


def to_amounts(resources: Mapping[str, float]) -> Amounts:
    """Fixed-point amounts; ValueError when one is negative, not a number, or 1.5 GPUs.

    >>> to_amounts({"GPU": 0.25, "CPU": 1, "disk": 0})
    (('CPU', 10000), ('GPU', 2500))
    """
    result = []
    for name in sorted(resources):
        value = float(resources[name])
        if not math.isfinite(value) or value < 0:
            raise ValueError(f"the amount of {name} must be zero or more, but got {resources[name]}")
        amount = round(value * UNIT)
        if value > 0 and amount == 0:
            raise ValueError(f"the amount of {name} must be at least {1 / UNIT}, but got {resources[name]}")
        if name == GPU and amount > UNIT and amount % UNIT:
            raise ValueError(f"more than one GPU must be a whole number, but got {resources[name]}")
        if amount:
            result.append((name, amount))
    return tuple(result)


def to_floats(amounts: Amounts | Mapping[str, int]) -> dict[str, float]:
    """Amounts as people write them."""
    items = amounts.items() if isinstance(amounts, Mapping) else amounts
    return {name: amount / UNIT for name, amount in items}


def at_least(one: Amounts, other: Amounts) -> Amounts:
    """The larger of the two, resource by resource."""
    merged = dict(one)
    for name, amount in other:
        merged[name] = max(amount, merged.get(name, 0))
    return tuple(sorted(merged.items()))


def total_of(parts: Sequence[Amounts]) -> Amounts:
    """The sum, resource by resource.

    >>> total_of([(("CPU", 10000),), (("CPU", 5000), ("disk", 1))])
    (('CPU', 15000), ('disk', 1))
    """
    merged: dict[str, int] = {}
    for part in parts:
        for name, amount in part:
            merged[name] = merged.get(name, 0) + amount
    return tuple(sorted(merged.items()))


class Holding(msgspec.Struct, frozen=True):
    """What one lease or actor holds."""

    amounts: Amounts
    devices: tuple[tuple[int, int], ...] = ()
    """(GPU id, share of it in 1/10,000)."""

    @property
    def gpu_ids(self) -> tuple[int, ...]:
        return tuple(device for device, _ in self.devices)

    @property
    def cpu(self) -> int:
        return dict(self.amounts).get(CPU, 0)

    @property
    def memory(self) -> int:
        return dict(self.amounts).get(MEMORY, 0)


class ResourcePool:
    """One node's resources."""

    def __init__(self, total: Mapping[str, float], gpu_ids: Sequence[int] = ()) -> None:
        self.total: dict[str, int] = dict(to_amounts(total))
        self.available: dict[str, int] = dict(self.total)
        if len(gpu_ids) * UNIT != self.total.get(GPU, 0):
            raise ValueError(f"{self.total.get(GPU, 0) / UNIT:g} GPUs, but {len(gpu_ids)} device ids")
        self.is_bundle = False
        self._share: dict[int, int] = dict.fromkeys(gpu_ids, UNIT)
        """How much of each device is this pool's."""
        self._free_share = dict(self._share)

    @classmethod
    def within(cls, holding: Holding) -> ResourcePool:
        """What is held, to be given out again in parts."""
        pool = cls({})
        pool.is_bundle = True
        pool.total = dict(holding.amounts)
        pool.available = dict(holding.amounts)
        pool._share = dict(holding.devices)
        pool._free_share = dict(holding.devices)
        return pool

    def misfit(self, wanted: Amounts) -> str:
        """Why this node could never hold so much, even when idle; empty when it could."""
        short = [(name, amount) for name, amount in wanted if amount > self.total.get(name, 0)]
        if not short:
            return ""
        return " and ".join(
            f"{amount / UNIT:g} {name} is asked for, but the node has {self.total.get(name, 0) / UNIT:g}"
            for name, amount in short
        )

    def shortage(self, wanted: Amounts) -> tuple[str, ...]:
        """The names of the resources of which too little is free now; empty when it fits."""
        available = self.available
        short: tuple[str, ...] = ()
        for name, amount in wanted:
            if available.get(name, 0) < amount or (name == GPU and self._devices_for(amount) is None):
                short = (*short, name)
        return short

    def shortage_of_all(self, parts: Sequence[Amounts]) -> tuple[str, ...]:
        """The same for several at once: each device share must fit too."""
        if short := self.shortage_of_sum(total_of(parts)):
            return short
        free = dict(self._free_share)
        try:
            for part in parts:
                if (amount := dict(part).get(GPU, 0)) and (devices := self._devices_for(amount)) is None:
                    return (GPU,)
                elif amount:
                    for device, share in devices or ():
                        self._free_share[device] -= share
        finally:
            self._free_share = free
        return ()

    def shortage_of_sum(self, wanted: Amounts) -> tuple[str, ...]:
        return tuple(name for name, amount in wanted if self.available.get(name, 0) < amount)

    def acquire(self, wanted: Amounts, need: Amounts | None = None) -> Holding | None:
        """Take `wanted` if `need` (at least as much; the same when left out) is free now, else None."""
        if self.shortage(wanted if need is None else need):
            return None
        devices: tuple[tuple[int, int], ...] = ()
        for name, amount in wanted:
            self.available[name] -= amount
            if name == GPU:
                devices = self._devices_for(amount) or ()
                for device, share in devices:
                    self._free_share[device] -= share
        return Holding(wanted, devices)

    def release(self, holding: Holding, lent: bool = False) -> None:
        """Give it back; when its CPU was lent, that is back already."""
        for name, amount in holding.amounts:
            if not (lent and name == CPU):
                self.available[name] += amount
        for device, share in holding.devices:
            self._free_share[device] += share

    def lend_cpu(self, holding: Holding) -> None:
        """Its holder waits: others may use its CPU."""
        if cpu := holding.cpu:
            self.available[CPU] += cpu

    def take_back_cpu(self, holding: Holding) -> None:
        """Its holder goes on; may leave less than nothing available."""
        if cpu := holding.cpu:
            self.available[CPU] -= cpu

    def _devices_for(self, amount: int) -> tuple[tuple[int, int], ...] | None:
        """The fullest device with room for a share, or so many whole free devices, lowest ids first."""
        if amount < UNIT:
            fitting = [(free, device) for device, free in self._free_share.items() if free >= amount]
            return ((min(fitting)[1], amount),) if fitting else None
        free_devices = [device for device, free in self._free_share.items() if free == UNIT]
        count = amount // UNIT
        return tuple((device, UNIT) for device in free_devices[:count]) if len(free_devices) >= count else None

    def check(self, holdings: Sequence[tuple[Holding, bool]]) -> None:
        """Assert the invariants, given all holdings with whether their CPU is lent."""
        expected = dict(self.total)
        shares = dict(self._share)
        for holding, lent in holdings:
            for name, amount in holding.amounts:
                expected[name] -= 0 if lent and name == CPU else amount
            for device, share in holding.devices:
                shares[device] -= share
        assert self.available == expected, f"RES-1: {self.available} != {expected}"
        assert all(amount >= 0 for name, amount in self.available.items() if name != CPU), f"RES-2: {self.available}"
        assert self._free_share == shares, f"RES-3: {self._free_share} != {shares}"
        assert all(0 <= free <= UNIT for free in shares.values()), f"RES-3: {shares}"
