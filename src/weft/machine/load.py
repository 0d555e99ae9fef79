"""How busy a node's machine is, as the kernel counts it. Runs in the daemon's thread; a few small reads of /proc."""

from __future__ import annotations

import os
import time
from typing import Any


def report() -> dict[str, Any]:
    """Counters since the machine's start, for whoever asks twice: {"time_s", "cpu_busy_s", "cpu_total_s", ...}."""
    busy_s, total_s = _cpu()
    used_bytes, total_bytes = _memory()
    received, sent = _network()
    return {
        "time_s": time.time(),
        "cpus": os.cpu_count() or 1,
        "cpu_busy_s": busy_s,
        "cpu_total_s": total_s,
        "memory_used_bytes": used_bytes,
        "memory_total_bytes": total_bytes,
        "network_received_bytes": received,
        "network_sent_bytes": sent,
        "load": os.getloadavg()[0],
    }


def _cpu() -> tuple[float, float]:
    ticks = [int(word) for word in _lines("/proc/stat")[0].split()[1:9]]
    idle = ticks[3] + ticks[4]
    second = os.sysconf("SC_CLK_TCK")
    return (sum(ticks) - idle) / second, sum(ticks) / second


def _memory() -> tuple[int, int]:
    found = {}
    for line in _lines("/proc/meminfo"):
        name, _, rest = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            found[name] = int(rest.split()[0]) << 10
    return found["MemTotal"] - found.get("MemAvailable", 0), found["MemTotal"]


def _network() -> tuple[int, int]:
    received = sent = 0
    for line in _lines("/proc/net/dev")[2:]:
        name, _, rest = line.partition(":")
        if name.strip() != "lo":
            words = rest.split()
            received, sent = received + int(words[0]), sent + int(words[8])
    return received, sent


def _lines(path: str) -> list[str]:
    with open(path) as file:
        return file.read().splitlines()
