"""Training on the engine: collective operations between tasks and actors of one node; see `weft.train.group`."""

from __future__ import annotations

from weft.train.errors import GroupError, GroupTimeoutError, MemberLostError, MismatchError
from weft.train.group import Group, Meeting

__all__ = ["Group", "GroupError", "GroupTimeoutError", "Meeting", "MemberLostError", "MismatchError"]
