"""`ray.util.multiprocessing` in the words of Ray 2.60."""

from weft.compat.ray.util.multiprocessing.pool import Pool
from weft.util.multiprocessing import JoinableQueue, TimeoutError

__all__ = ["JoinableQueue", "Pool", "TimeoutError"]
