"""Threads of a BLAS library that is loaded already: the environment variables are read only when it loads.

The zygote loads numpy with one thread, so that a fork has none to lose; a worker with several CPUs raises the number.
"""

from __future__ import annotations

import ctypes

_SETTERS = (
    "scipy_openblas_set_num_threads64_",
    "scipy_openblas_set_num_threads",
    "openblas_set_num_threads64_",
    "openblas_set_num_threads",
    "MKL_Set_Num_Threads",
)


def set_threads(count: int) -> bool:
    """Whether a loaded library took the number."""
    taken = False
    for path in _loaded_libraries():
        library = ctypes.CDLL(path)
        setter = next((getattr(library, name) for name in _SETTERS if hasattr(library, name)), None)
        if setter is not None:
            setter(ctypes.c_int(count))
            taken = True
    return taken


def _loaded_libraries() -> list[str]:
    with open("/proc/self/maps") as maps:
        paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "/" in line}
    return sorted(path for path in paths if "blas" in path.rsplit("/", 1)[-1].lower() or "libmkl_rt" in path)
