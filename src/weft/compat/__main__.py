"""`python -m weft.compat script.py [arguments]`: runs a program in which `import ray` finds Weft.

Also `-m module [arguments]` and `-c code [arguments]`, as Python has them.
"""

from __future__ import annotations

import os
import runpy
import sys

from weft.compat import install_as_ray


def main() -> None:
    given = sys.argv[1:]
    if not given or given[0] in ("-h", "--help"):
        print(__doc__)
        raise SystemExit(0 if given else 2)
    if given[0] in ("-m", "-c") and len(given) < 2:
        raise SystemExit(f"weft.compat: {given[0]} needs {'a module' if given[0] == '-m' else 'code'}")
    install_as_ray()
    if given[0] == "-m":
        sys.argv = given[1:]
        runpy.run_module(given[1], run_name="__main__", alter_sys=True)
    elif given[0] == "-c":
        sys.argv = ["-c", *given[2:]]
        exec(compile(given[1], "<string>", "exec"), _fresh_main())
    else:
        sys.argv = given
        sys.path[0] = os.path.dirname(os.path.abspath(given[0]))
        runpy.run_path(given[0], run_name="__main__")


def _fresh_main() -> dict[str, object]:
    """The namespace of a `__main__` that holds nothing of this module."""
    import types

    fresh = sys.modules["__main__"] = types.ModuleType("__main__")
    return vars(fresh)


if __name__ == "__main__":
    main()
