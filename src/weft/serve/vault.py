"""What a controller must know when its process is restarted, kept in an actor of its own.

The vault only holds bytes, so that nothing that happens to applications can end it. Its state is exact: it outlives its
process, its node and, where the head keeps a store, the end of the whole cluster. Who loads it is its writer from then
on: what a controller before sends late is refused.
"""

from __future__ import annotations

import os
from typing import Any

import weft

NAME = "weft-serve-vault"
CHECKPOINT = 10
"""Calls after which its state is written anew: exact state, so that applications outlive the end of all nodes."""


class Vault:
    """The actor's class."""

    _writer = 0
    """The number of who has loaded it last. Here, as the state of a vault that was written before has none."""

    def __init__(self) -> None:
        self._state: bytes | None = None
        self._codes: dict[str, bytes] = {}

    def save(self, writer: int, state: bytes) -> list[str] | None:
        """The keys of the codes that it has; None when another has loaded it since, and nothing is saved."""
        if writer < self._writer:
            return None
        self._state = state
        return list(self._codes)

    def save_code(self, writer: int, key: str, code: bytes | None) -> None:
        """A deployment's code, which is large and seldom changes; None when it is gone."""
        if writer < self._writer:
            return
        if code is None:
            self._codes.pop(key, None)
        else:
            self._codes[key] = code

    def pid(self) -> int:
        return os.getpid()

    def load(self) -> tuple[int, bytes | None, dict[str, bytes]]:
        """(the number to write with from now on, what was saved last, the codes by key)"""
        self._writer += 1
        return self._writer, self._state, self._codes


def open_vault(namespace: str) -> Any:
    """The cluster's vault; made if there is none."""
    lasting = {"lifetime": "detached", "num_cpus": 0, "checkpoint": CHECKPOINT, "max_task_retries": -1}
    options = {"name": NAME, "namespace": namespace, "scheduling_strategy": "SPREAD", **lasting}
    return weft.remote(Vault).options(get_if_exists=True, **options).remote()
