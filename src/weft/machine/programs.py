"""How a process of Weft starts another one: a Python like its own that runs one of Weft's modules. In any process."""

from __future__ import annotations

import os
import sys

_CODE = "import sys; sys.path.append(sys.argv.pop(1)); from {} import main; main()"


def python_command(module: str, *arguments: str) -> list[str]:
    """Runs `main()` of one of Weft's modules in a Python like this one."""
    if not sys.executable:
        raise RuntimeError("a node cannot be started: this Python does not know its own executable (sys.executable)")
    package_folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    # Without -P the driver's folder would come first on the path, and a user's random.py would hide Python's.
    flags = ["-P"] if sys.version_info >= (3, 11) else []
    return [sys.executable, *flags, "-c", _CODE.format(module), package_folder, *arguments]
