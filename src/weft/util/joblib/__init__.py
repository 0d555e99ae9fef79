"""joblib on Weft: after `register_weft()`, what joblib and scikit-learn run in parallel can run as tasks.

>>> import joblib
>>> register_weft()
>>> with joblib.parallel_config(backend="weft"):
...     joblib.Parallel()(joblib.delayed(pow)(i, 2) for i in range(4))
[0, 1, 4, 9]

Needs joblib, which Weft does not install.
"""

from __future__ import annotations

__all__ = ["register_ray", "register_weft"]


def register_weft() -> None:
    """Make the backend known to joblib as "weft", and as "ray" for programs written for Ray. Starts nothing."""
    try:
        from joblib.parallel import register_parallel_backend  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise ImportError("the joblib backend needs joblib 1.3 or newer: pip install joblib") from error
    from weft.util.joblib.backend import WeftBackend

    register_parallel_backend("weft", WeftBackend)
    register_parallel_backend("ray", WeftBackend)


register_ray = register_weft
