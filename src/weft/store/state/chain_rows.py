"""Rows of the control store and what is written to them. Imported by every daemon: nothing else is needed for a laptop.

A change is (table, key, new value or None for deleted).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Change: TypeAlias = tuple[str, bytes, bytes | None]
Row: TypeAlias = tuple[str, bytes, bytes]
Key: TypeAlias = tuple[str, bytes]
"""(table, key)."""


class Put(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """Write a row; with `if_absent` only if there is none."""

    table: str
    key: bytes
    value: bytes
    if_absent: bool = False


class Delete(msgspec.Struct, frozen=True, array_like=True, tag="d"):
    """Remove a row, if it is there."""

    table: str
    key: bytes


Write: TypeAlias = Put | Delete
