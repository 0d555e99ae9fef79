"""How demos speak: a session with its dashboard's address, chapters with their times, numbers that read well."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import weft


def say(text: str) -> None:
    print(f"    {text}", flush=True)


@contextmanager
def chapter(title: str) -> Iterator[None]:
    print(f"\n{title}", flush=True)
    began_s = time.perf_counter()
    yield
    say(f"took {duration(time.perf_counter() - began_s)}")


@contextmanager
def session() -> Iterator[None]:
    """Weft on its embedded defaults, from nothing to nothing."""
    began_s = time.perf_counter()
    context = weft.init("local", include_dashboard=False)  # its address is told below, in the story
    print(f"Weft started in {duration(time.perf_counter() - began_s)} with {weft.cluster_resources()['CPU']:.0f} CPUs.")
    print(f"The dashboard is open all the while: {context.dashboard_url}", flush=True)
    try:
        yield
    finally:
        weft.shutdown()


def duration(seconds: float) -> str:
    """
    >>> duration(0.0042), duration(12.3)
    ('4.2 ms', '12.3 s')
    """
    return f"{seconds * 1e3:,.1f} ms" if seconds < 1 else f"{seconds:,.1f} s"
