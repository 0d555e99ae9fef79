"""`ray.util.collective.types` in the words of Ray 2.60."""

from enum import Enum

__all__ = ["Backend", "ReduceOp"]


class Backend:
    """The names of what moves the bytes. All but NCCL mean the group of Weft's."""

    NCCL = "NCCL"
    GLOO = "GLOO"
    UNRECOGNIZED = "unrecognized"


class ReduceOp(Enum):
    """How elements are put together."""

    SUM = 0
    PRODUCT = 1
    MIN = 2
    MAX = 3
