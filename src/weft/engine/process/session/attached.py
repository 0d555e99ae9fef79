"""Whether this process is attached to a node, and attaching it where it is not.

Below all that needs a node; `session`, which attaches, is above it.
"""

from __future__ import annotations

from weft import _native
from weft.engine.process.session import context_state

_INIT = "weft.engine.process.session.session:attach_once"
"""By name: what attaches puts together all that may ask for it."""


def is_initialized() -> bool:
    """Whether this process is attached to a node.

    >>> with weft.init(num_cpus=1):
    ...     weft.is_initialized()
    True
    >>> weft.is_initialized()
    False
    """
    return _native.is_attached()


def ensure() -> None:
    """Attach with the defaults unless attached; what every call that needs a node does first."""
    if not _native.is_attached():
        if _native.is_fork():
            raise RuntimeError(
                "this process is a fork of one that is attached to Weft, and has no attachment of its own: refs, "
                f"actors and tasks belong to the process that forked. {in_a_fork()}"
            )
        if context_state.state.is_worker:
            raise RuntimeError("this worker is ending: nothing can be submitted any more")
        import pkgutil

        pkgutil.resolve_name(_INIT)()


def in_a_fork() -> str:
    """What a fork can do instead."""
    if context_state.state.is_worker:
        return "Do it in the worker, before or after; hand results to it through a pipe or multiprocessing."
    return "Call weft.init() in the child first, for a session of its own; or start it with the spawn method."


def was_shut_down(error: Exception) -> bool:
    """Whether another thread ended the session meanwhile: then no new one is wanted."""
    return isinstance(error, _native.SessionEnded)
