"""What a controller must know when its process is restarted, kept in an actor of its own.

The vault only holds bytes, so that nothing that happens to applications can end it. Its state is exact: it outlives its
process, its node and, where the head keeps a store, the end of the whole cluster.
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

    def __init__(self) -> None:
        self._state: bytes | None = None
        self._codes: dict[str, bytes] = {}

    def save(self, state: bytes) -> list[str]:
        """The keys of the codes that it has."""
        self._state = state
        return list(self._codes)

    def save_code(self, key: str, code: bytes | None) -> None:
        """A deployment's code, which is large and seldom changes; None when it is gone."""
        if code is None:
            self._codes.pop(key, None)
        else:
            self._codes[key] = code

    def pid(self) -> int:
        return os.getpid()

    def load(self) -> tuple[bytes | None, dict[str, bytes]]:
        """(what was saved last, the codes by key)"""
        return self._state, self._codes


def open_vault(namespace: str) -> Any:
    """The cluster's vault; made if there is none."""
    lasting = {"lifetime": "detached", "num_cpus": 0, "checkpoint": CHECKPOINT, "max_task_retries": -1}
    options = {"name": NAME, "namespace": namespace, "scheduling_strategy": "SPREAD", **lasting}
    return weft.remote(Vault).options(get_if_exists=True, **options).remote()
