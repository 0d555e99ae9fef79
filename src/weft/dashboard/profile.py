"""A flame graph of a running process, by py-spy, which must be installed (`pip install 'weft[observe]'`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import Any

MOST_S = 30
RATE = 100


def py_spy() -> str:
    """Its path. LookupError when it is not installed."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    found = beside if os.access(beside, os.X_OK) else shutil.which("py-spy")
    if found is None:
        raise LookupError("py-spy is not installed: pip install 'weft[observe]'")
    return found


def flame(pid: int, seconds: int) -> dict[str, Any]:
    """{"name", "value", "children"}: samples by stack. RuntimeError, with its words, when py-spy cannot look."""
    spent = max(1, min(seconds, MOST_S))
    command = [py_spy(), "record", "--pid", str(pid), "--duration", str(spent), "--rate", str(RATE), "--format", "raw",
               "--output", "/dev/stdout", "--nonblocking"]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=spent + 30)
    if ended.returncode != 0:
        words = ended.stderr.strip().splitlines()[-1:] or ["no reason given"]
        raise RuntimeError(f"py-spy cannot look at process {pid}: {words[0]}")
    return folded(ended.stdout)


def folded(text: str) -> dict[str, Any]:
    """Lines of "a;b;c 12" as a tree.

    >>> folded("a;b 2\\na;c 1\\n")["value"]
    3
    """
    root: dict[str, Any] = {"name": "all", "value": 0, "children": {}}
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if not count.isdigit():
            continue
        root["value"] += int(count)
        at = root
        for name in stack.split(";"):
            at = at["children"].setdefault(name, {"name": name, "value": 0, "children": {}})
            at["value"] += int(count)
    return _listed(root)


def _listed(node: dict[str, Any]) -> dict[str, Any]:
    return {**node, "children": [_listed(child) for child in node["children"].values()]}
