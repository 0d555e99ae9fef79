"""The bundles of placement groups that are set aside on one node. Pure.

A bundle is a holding of the node's resources and a pool within it, from which the group's tasks and actors draw. The
demands of a group share a list of such pools, which is empty until the bundles are there, so they need not be told.

When a group is removed, its pools cannot be drawn from any more; what each bundle holds goes back to the node once the
last worker that draws from it is gone.

Invariants (`BundlePools.check`, with the holdings of the workers that draw from each pool):
    BUN-1  a bundle that is not in use and was given up is forgotten.
    BUN-2  what is in use of each pool is what its workers hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.engine.state.resources import Amounts, Holding, ResourcePool


class Bundle:
    """One bundle on this node."""

    __slots__ = ("group", "holding", "index", "is_given_up", "pool", "users")

    def __init__(self, group: bytes, index: int, holding: Holding) -> None:
        self.group = group
        self.index = index
        self.holding = holding
        self.pool = ResourcePool.within(holding)
        self.users = 0
        """Workers that draw from it."""
        self.is_given_up = False


class BundlePools:
    """All bundles on a node."""

    def __init__(self, node: ResourcePool) -> None:
        self._node = node
        self._bundles: dict[int, Bundle] = {}
        """By the identity of their pools."""
        self._of_group: dict[bytes, list[Bundle]] = {}
        """Those that were not given up."""
        self._lists: dict[bytes, dict[int, list[ResourcePool]]] = {}

    def holdings(self) -> list[Holding]:
        return [bundle.holding for bundle in self._bundles.values()]

    def by_group(self) -> dict[bytes, list[int]]:
        """The bundles that are set aside here."""
        return {group: [bundle.index for bundle in bundles] for group, bundles in self._of_group.items()}

    def list_of(self, group: bytes, index: int) -> list[ResourcePool]:
        """The pools of a bundle, or with a negative index of all bundles here. It is kept up to date."""
        return self._lists.setdefault(group, {}).setdefault(max(index, -1), [])

    def reserve(self, group: bytes, bundles: Mapping[int, Amounts]) -> bool:
        """Set them all aside, or none."""
        taken: dict[int, Holding] = {}
        for index, amounts in bundles.items():
            if (holding := self._node.acquire(amounts)) is None:
                for other in taken.values():
                    self._node.release(other)
                return False
            taken[index] = holding
        for index, holding in taken.items():
            bundle = Bundle(group, index, holding)
            self._bundles[id(bundle.pool)] = bundle
            self._of_group.setdefault(group, []).append(bundle)
            self.list_of(group, index).append(bundle.pool)
            self.list_of(group, -1).append(bundle.pool)
        return True

    def give_up(self, group: bytes) -> None:
        """Nothing can be placed in its bundles any more; what is not in use goes back to the node."""
        for pools in self._lists.pop(group, {}).values():
            pools.clear()
        for bundle in self._of_group.pop(group, ()):
            bundle.is_given_up = True
            self._free_if_unused(bundle)

    def give_back(self, group: bytes, indexes: Sequence[int]) -> None:
        """Some of its bundles are not wanted here; nothing has been placed in them."""
        mine = self._of_group.get(group, [])
        for bundle in [bundle for bundle in mine if bundle.index in indexes]:
            mine.remove(bundle)
            for index in (bundle.index, -1):
                pools = self.list_of(group, index)
                pools[:] = [pool for pool in pools if pool is not bundle.pool]
            bundle.is_given_up = True
            self._free_if_unused(bundle)
        if not mine:
            self._of_group.pop(group, None)

    def forget_lists(self, group: bytes) -> None:
        """Nobody waits for a group that was never heard of."""
        if group not in self._of_group:
            self._lists.pop(group, None)

    def drawn(self, pool: ResourcePool) -> None:
        """A worker holds something of it."""
        if (bundle := self._bundles.get(id(pool))) is not None:
            bundle.users += 1

    def returned(self, pool: ResourcePool) -> None:
        if (bundle := self._bundles.get(id(pool))) is not None:
            bundle.users -= 1
            self._free_if_unused(bundle)

    def group_of(self, pool: ResourcePool | None) -> bytes:
        bundle = self._bundles.get(id(pool))
        return bundle.group if bundle is not None else b""

    def _free_if_unused(self, bundle: Bundle) -> None:
        if bundle.is_given_up and bundle.users == 0:
            del self._bundles[id(bundle.pool)]
            self._node.release(bundle.holding)

    def check(self, drawn: Sequence[tuple[ResourcePool, Holding, bool]]) -> None:
        """Assert the invariants, given what workers hold of which pool and whether their CPU is lent."""
        for bundle in self._bundles.values():
            assert bundle.users or not bundle.is_given_up, f"BUN-1: bundle {bundle.index} of {bundle.group.hex()}"
            mine = [(holding, lent) for pool, holding, lent in drawn if pool is bundle.pool]
            assert len(mine) == bundle.users, f"BUN-2: {len(mine)} draw, {bundle.users} are counted"
            bundle.pool.check(mine)
