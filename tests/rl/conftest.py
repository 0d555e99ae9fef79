"""Equal programs are compiled once for all tests of the folder: compiling is most of what a short training takes."""

from __future__ import annotations

import jax
import pytest


@pytest.fixture(autouse=True, scope="session")
def _compile_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
