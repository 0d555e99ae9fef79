"""Which runtime environments need more than a fork. Pure.

A fork of the zygote is a running interpreter. It can take on variables and folders when it is bound. Packages to
install (which takes long), another interpreter, and variables that act when a process starts must be seen to before it
attaches.

>>> needs_launch('{"pip": {}}'), needs_launch('{"env_vars": {"A": "1"}}'), needs_launch("")
(True, False, False)
"""

from __future__ import annotations

import functools
import json

_FIELDS = ("pip", "uv", "py_executable")
AT_START = ("PYTHON", "LD_", "MALLOC_", "GLIBC_")
"""Variables that the interpreter, the loader and the allocator read once."""
AT_IMPORT = ("OMP_", "OPENBLAS_", "MKL_", "NUMEXPR_")
"""Variables that numeric libraries read when they are loaded, which may have been in the zygote."""


@functools.lru_cache(maxsize=256)
def needs_launch(runtime_env: str) -> bool:
    """Whether a worker for it must be bound from its birth."""
    if not runtime_env:
        return False
    env = json.loads(runtime_env)
    return any(name in env for name in _FIELDS) or any(
        name.startswith(AT_START + AT_IMPORT) for name in env.get("env_vars", ())
    )
