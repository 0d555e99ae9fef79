"""How many connections a front's process may have. In the process of a front."""

from __future__ import annotations

import resource


def allowed() -> int:
    """The descriptors that this process may have: from now on as many as it is allowed to allow itself."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard > 0 else 1 << 20
