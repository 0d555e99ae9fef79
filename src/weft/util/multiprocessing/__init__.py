"""The standard library's process pool on Weft's workers: `from weft.util.multiprocessing import Pool`."""

from multiprocessing import JoinableQueue, TimeoutError

from weft.util.multiprocessing.pool import Pool

__all__ = ["JoinableQueue", "Pool", "TimeoutError"]
