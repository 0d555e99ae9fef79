"""What a simulation has shown, for people and as JSON."""

from __future__ import annotations

import statistics
from typing import Any

from weft.testing.simulate.simulation import Simulation


def summary(simulation: Simulation, workload: str) -> dict[str, Any]:
    stats, nodes = simulation.stats, simulation.nodes
    elapsed = max(simulation.worked_until - simulation.formed_at, 1e-9)
    executed = [node.executed for node in nodes if node.has_joined]
    mean = statistics.fmean(executed) if executed else 0.0
    work = sorted(node.daemon_work_s / max(simulation.clock.now, 1e-9) for node in nodes)
    return {
        "nodes": simulation.plan.nodes,
        "seed": simulation.plan.seed,
        "workload": workload,
        "tasks": stats.done,
        "failed": stats.failed,
        "virtual_s": elapsed,
        "tasks_per_s": (stats.done - stats.failed) / elapsed,
        "latency_s": {name: stats.latencies.percentile(share) for name, share in _SHARES},
        "balance": {
            "mean": mean,
            "least": min(executed, default=0),
            "most": max(executed, default=0),
            "deviation": statistics.pstdev(executed) / mean if mean else 0.0,
        },
        "messages": simulation.network.messages,
        "messages_per_node_per_s": simulation.network.messages / max(1, len(nodes)) / max(simulation.clock.now, 1e-9),
        "object_bytes_moved": simulation.network.bytes,
        "objects_lost": stats.objects_lost,
        "limits": {
            "most_known": max((node.port.most_known for node in nodes), default=0),
            "most_slots": max((node.port.most_used for node in nodes), default=0),
            "most_rings": max((node.most_rings for node in nodes), default=0),
            "relayed": stats.relayed,
        },
        "daemon_busy": {"median": work[len(work) // 2], "most": work[-1]} if work else {},
        "control": simulation.control.summary(elapsed),
        "events": simulation.clock.events,
        "wall_s": simulation.wall_s,
        "broken": [str(one) for one in simulation.broken],
    }


_SHARES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))


def text(found: dict[str, Any], replay: str) -> str:
    latency, balance, control, limits = found["latency_s"], found["balance"], found["control"], found["limits"]
    lines = [
        f"{found['nodes']:,} nodes, seed {found['seed']}, workload {found['workload']}",
        f"tasks        {found['tasks']:,} in {_seconds(found['virtual_s'])}, {found['failed']:,} failed",
        f"throughput   {found['tasks_per_s']:,.0f} tasks per second",
        "latency      " + ", ".join(f"{name} {_seconds(value)}" for name, value in latency.items()),
        f"balance      {balance['least']:,} to {balance['most']:,} tasks per node, mean {balance['mean']:,.0f}, "
        f"deviation {balance['deviation']:.1%}",
        f"messages     {found['messages']:,}, {found['messages_per_node_per_s']:,.0f} a second from each node; "
        f"{found['object_bytes_moved'] / 2**20:,.0f} MiB of objects moved",
        f"daemons      busy {found['daemon_busy']['median']:.1%} (median), {found['daemon_busy']['most']:.1%} (most)",
        f"limits       at most {limits['most_slots']:,} slots and {limits['most_rings']:,} rings of a node in use, "
        f"{limits['relayed']:,} records relayed; one knew {limits['most_known']:,} processes",
        f"control      {control['shards']} shards, {control['rows']:,} rows, {control['rows_per_shard_per_s']:,.0f} "
        f"a second and shard; the busiest {control['rows_busiest_shard_per_s']:,.0f}, busy "
        f"{control['busiest_shard_busy']:.1%}",
        f"simulated    {found['events']:,} events in {found['wall_s']:.1f} s",
    ]
    if found["broken"]:
        lines += ["", "BROKEN:", *(f"  {one}" for one in found["broken"][:20]), f"replay with: {replay}"]
    else:
        lines.append("invariants   all hold")
    return "\n".join(lines)


def _seconds(value: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"
