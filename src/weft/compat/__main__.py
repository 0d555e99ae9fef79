"""`python -m weft.compat script.py [arguments]`: runs a script in which `import ray` finds Weft."""

from __future__ import annotations

import runpy
import sys

from weft.compat import install_as_ray


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        raise SystemExit(0 if len(sys.argv) > 1 else 2)
    install_as_ray()
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
