"""The fuzzer: `make fuzz FUZZ_SECONDS=60` runs it, beginning with the corpus and adding what finds new paths.

    python tests/fuzz/fuzz_links.py FOLDER... -max_total_time=60

A crash leaves its input in the working folder; add it to the corpus together with the fix.
"""

from __future__ import annotations

import sys

import atheris
import inputs

atheris.instrument_all()  # the package is installed for editing, and its loader cannot be instrumented
atheris.Setup(sys.argv, inputs.one_input)
atheris.Fuzz()
