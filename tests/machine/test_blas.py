"""BLAS libraries use as many threads as the worker has CPUs, also when numpy was loaded before."""

from __future__ import annotations

import ctypes

import numpy  # noqa: F401  (its BLAS library must be loaded)

from weft.machine import blas


def test_a_loaded_blas_library_takes_the_number_of_threads() -> None:
    paths = blas._loaded_libraries()
    getters = [
        getattr(ctypes.CDLL(path), setter.replace("_set_", "_get_"))
        for path in paths
        for setter in blas._SETTERS
        if "openblas" in setter and hasattr(ctypes.CDLL(path), setter.replace("_set_", "_get_"))
    ]
    assert getters, f"numpy's BLAS library is not among {paths}"
    before = [get() for get in getters]
    try:
        assert blas.set_threads(2)
        assert [get() for get in getters] == [2] * len(getters)
    finally:
        blas.set_threads(before[0])
