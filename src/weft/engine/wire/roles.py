"""What a client with the read-only token may ask a node for. Pure."""

from __future__ import annotations

from weft.engine.wire.link_messages import Ask, Call, LinkMessage

LARGEST_QUESTION = 1 << 20
READS = frozenset(
    (
        "boards",
        "demand",
        "drain_state",
        "errors",
        "events",
        "head",
        "job_info",
        "job_list",
        "job_log",
        "job_wait",
        "logs",
        "machines",
        "node_metrics",
        "rows",
        "status",
    )
)
"""Operations that change nothing and run nothing."""


def may_read(message: LinkMessage) -> bool:
    return isinstance(message, Ask) or (isinstance(message, Call) and message.method in READS)


def refusal(message: LinkMessage) -> str:
    """For a person."""
    what = f"{message.method!r}" if isinstance(message, Call) else f"a {type(message).__name__}"
    return f"the read-only token is not for {what}: it takes the cluster's own token"
