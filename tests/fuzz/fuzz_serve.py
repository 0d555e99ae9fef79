"""Requests made up from an example's OpenAPI, right and wrong ones, against it behind weft.serve. `make fuzz-serve`.

python tests/fuzz/fuzz_serve.py [--examples 200]
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "serve_fastapi.py"
NOT_OURS = "allow_header_conformance"
"""Starlette's `Allow` names the methods of one route where several have the path."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=200)
    options = parser.parse_args()
    schemathesis = Path(sys.executable).with_name("schemathesis")
    command = [sys.executable, str(EXAMPLE), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as serving:
        assert serving.stdout is not None
        url = serving.stdout.readline().strip()
        try:
            limits = ["--max-examples", str(options.examples), "--exclude-checks", NOT_OURS]
            return subprocess.run([schemathesis, "run", f"{url}/openapi.json", *limits, "--no-color"]).returncode
        finally:
            serving.send_signal(signal.SIGINT)
            serving.communicate()


if __name__ == "__main__":
    sys.exit(main())
