"""What things cost, as measured on one node (`benchmarks/README.md`), and how the network is."""

from __future__ import annotations

import msgspec


class Costs(msgspec.Struct, frozen=True):
    """Seconds of a CPU, unless said otherwise."""

    submit_s: float = 1 / 1_745_000
    """A driver's share of an empty task, reply and `get` included: `tasks_async` on one node."""
    execute_s: float = 1 / 1_745_000
    """A worker's share of it. In that run two workers kept up with one driver, so it is at most twice this; but they
    shared two cores with the driver."""
    ring_s: float = 0.3e-6
    """From one process to another of the same node: what `tasks_sync` (1.8 µs) has beyond the two above, each way."""
    call_s: float = 1 / 2_495_000
    """A caller's share of an actor call: `actor_async`."""
    daemon_record_s: float = 30e-6
    """A node daemon's work for one record: it is Python, and decides something for each."""
    forward_s: float = 4e-6
    """A node daemon's work for one task record that goes through it to another node, or comes from there."""
    fork_s: float = 2e-3
    """From asking the zygote for a worker to its first instruction."""
    death_s: float = 1e-3
    """From a process's death to the daemon's knowing."""
    control_write_s: float = 5e-6
    """A control-store server's work for one row of a batch."""
    message_s: float = 8e-6
    """A node daemon's work for a message of another daemon."""


class Wire(msgspec.Struct, frozen=True):
    """The network between nodes. Links are TCP: what is lost is sent again, so loss is delay, in order."""

    latency_s: float = 50e-6
    jitter_s: float = 20e-6
    """Added at random to each message, up to this much; links overtake each other, messages of one link do not."""
    loss: float = 0.0
    """The share of messages that is lost once and sent again after `resend_s`, after twice that when lost again."""
    resend_s: float = 0.2
    bandwidth: float = 1.25e9
    """Bytes a second out of one node, and into one."""


class Machine(msgspec.Struct, frozen=True):
    """One virtual node."""

    cpus: int = 2
    resources: dict[str, float] = {}
    labels: dict[str, str] = {}
    speed: float = 1.0
    """Of its CPUs; 0.1 is a slow node."""
    processes: int = 1022
    """Slots of its segment: drivers, workers and actors. Processes of other nodes take none."""
    rings: int = 8192
    """Between its own processes, one each way; beyond that records go through the daemon's relay."""
    clock_rate: float = 1.0
    clock_offset_s: float = 0.0
