"""weft.serve: models and policies behind handles, over shared memory, with batching, scaling and HTTP beside it.

>>> from weft import serve
>>> @serve.deployment(num_replicas=2)
... class Doubler:
...     def __call__(self, x: int) -> int: return 2 * x
>>> handle = serve.run(Doubler.bind())
>>> handle.remote(21).result()
42
>>> serve.shutdown()

Every name is loaded at its first use; uvicorn and Starlette when HTTP is first used, grpcio when gRPC is.
"""

from __future__ import annotations

from weft._lazy import LazyNames

_LAZY = LazyNames(__name__)

__all__ = _LAZY.names
__getattr__ = _LAZY.load
__dir__ = _LAZY.listed
