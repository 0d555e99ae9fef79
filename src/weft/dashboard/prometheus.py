"""A node's metrics in Prometheus's text format. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.observe.user_metrics import Sample, Series, exposition, user_exposition

_COUNTERS = {
    "submitted": ("weft_tasks_submitted_total", "Tasks and actor calls submitted by processes of this node.", 1.0),
    "finished": ("weft_tasks_finished_total", "Tasks and actor calls that ran here and returned.", 1.0),
    "failed": (
        "weft_tasks_failed_total",
        "Tasks and actor calls that ran here and raised, were cancelled or lost.",
        1.0,
    ),
    "run_ns": ("weft_task_run_seconds_total", "Seconds in tasks and actor calls.", 1e-9),
    "put_objects": ("weft_put_objects_total", "Values stored by put.", 1.0),
    "put_bytes": ("weft_put_bytes_total", "Bytes stored by put.", 1.0),
    "spilled_bytes": ("weft_spilled_bytes_total", "Bytes moved from the arena to disk.", 1.0),
    "restored_bytes": ("weft_restored_bytes_total", "Bytes brought back from disk.", 1.0),
    "received_bytes": ("weft_received_bytes_total", "Bytes of objects received from other nodes.", 1.0),
    "sent_bytes": ("weft_sent_bytes_total", "Bytes of objects sent to other nodes.", 1.0),
}
_MACHINE = {
    "cpu_busy_s": ("weft_node_cpu_busy_seconds_total", "counter", "Seconds that CPUs of the machine were busy."),
    "cpus": ("weft_node_cpus", "gauge", "CPUs of the machine."),
    "memory_used_bytes": ("weft_node_memory_used_bytes", "gauge", "Memory of the machine that is in use."),
    "memory_total_bytes": ("weft_node_memory_bytes", "gauge", "Memory of the machine."),
    "network_received_bytes": ("weft_node_network_received_bytes_total", "counter", "Received by network interfaces."),
    "network_sent_bytes": ("weft_node_network_sent_bytes_total", "counter", "Sent by network interfaces."),
    "arena_used_bytes": ("weft_arena_used_bytes", "gauge", "Bytes of the object store in use."),
    "arena_bytes": ("weft_arena_bytes", "gauge", "Bytes of the object store."),
    "objects": ("weft_arena_objects", "gauge", "Objects in the object store."),
    "spilled_objects": ("weft_spilled_objects", "gauge", "Objects that are on disk now."),
}

_GPUS = {
    "utilisation_percent": ("weft_node_gpu_utilisation_ratio", "Share of time that the GPU was busy.", 0.01),
    "memory_used_bytes": ("weft_node_gpu_memory_used_bytes", "Memory of the GPU that is in use.", 1.0),
    "memory_total_bytes": ("weft_node_gpu_memory_bytes", "Memory of the GPU.", 1.0),
}


def text(known: dict[str, Any]) -> str:
    """Of what the daemon's operation `node_metrics` answers."""
    machine = known["machine"]
    node = {"node": machine["node_id"][:16]}
    metrics: list[tuple[str, str, str, list[Sample]]] = []
    for key, (name, help_text, factor) in _COUNTERS.items():
        metrics.append((name, "counter", help_text, [Sample(node, machine["tallies"][key] * factor)]))
    for key, (name, kind, help_text) in _MACHINE.items():
        metrics.append((name, kind, help_text, [Sample(node, machine[key])]))
    metrics += _gpus(machine.get("gpus") or [], node)
    for which in ("total", "available"):
        amounts = known["resources"][which].items()
        samples = [Sample({"resource": name, **node}, amount) for name, amount in amounts if ":" not in name]
        metrics.append((f"weft_resource_{which}", "gauge", f"What the node has of each resource, {which}.", samples))
    metrics.append(_by_state("weft_workers", "Worker processes by state.", known["workers"], node))
    metrics.append(_by_state("weft_actors", "Actors by state.", known["actors"], node))
    metrics.append(
        ("weft_demands", "gauge", "Workers that are asked for and not granted.", [Sample(node, known["demands"])])
    )
    user = [msgspec.convert(one, Series) for one in known["user"]]
    return exposition([*metrics, *user_exposition(user, node)])


def _gpus(rows: list[dict[str, Any]], node: dict[str, str]) -> list[tuple[str, str, str, list[Sample]]]:
    """Nothing where there are none, and nothing of what a device does not tell."""
    found = []
    for key, (name, help_text, factor) in _GPUS.items():
        told = [row for row in rows if row[key] is not None]
        if told:
            samples = [Sample({"gpu": str(row["index"]), **node}, row[key] * factor) for row in told]
            found.append((name, "gauge", help_text, samples))
    return found


def _by_state(name: str, help_text: str, counts: dict[str, int], node: dict[str, str]) -> Any:
    return (
        name,
        "gauge",
        help_text,
        [Sample({"state": state, **node}, count) for state, count in sorted(counts.items())],
    )
