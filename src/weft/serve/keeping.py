"""Writes down in the vault what a controller decides. Runs on the controller's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import weft
from weft import cloudpickle
from weft.serve.running import Running, Snapshot
from weft.serve.vault import open_vault


class Keeping:
    """One process's writes; what another process of the same controller has written is in `found` and `codes`."""

    def __init__(
        self,
        namespace: str,
        snapshot: Callable[[], Snapshot],
        deployments: Mapping[str, Running],
        spawn: Callable[[Any], asyncio.Task[Any]],
    ) -> None:
        self._snapshot = snapshot
        self._deployments = deployments
        self._spawn = spawn
        self._vault = open_vault(namespace)
        self._saving: asyncio.Task[None] | None = None
        self._is_dirty = False
        self._writer, saved, self.codes = weft.get(self._vault.load.remote())
        self.found: Snapshot | None = None if saved is None else cloudpickle.loads(saved)

    def save(self) -> asyncio.Task[None]:
        """Have the vault know what is so now; what changes until it is asked goes with it."""
        self._is_dirty = True
        if self._saving is None or self._saving.done():
            self._saving = self._spawn(self._write())
        return self._saving

    async def saved(self) -> None:
        """Returns when the vault knows at least what is so now."""
        await self.save()

    def save_code(self, key: str, code: bytes | None) -> None:
        """Of a deployment; None: it is gone."""
        self._vault.save_code.remote(self._writer, key, code)

    async def _write(self) -> None:
        while self._is_dirty:
            self._is_dirty = False
            held = await self._vault.save.remote(self._writer, cloudpickle.dumps(self._snapshot()))
            if held is None:  # another process of this controller has taken over, and this one is about to end
                return
            for key, running in list(self._deployments.items()):
                if running.code and key not in held:  # the vault was restarted
                    await self._vault.save_code.remote(self._writer, key, running.code)
