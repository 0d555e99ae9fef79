"""Four bad worlds for the control store's machines, from a seed each: `python tests/store/chain_worlds.py 0:500`.

Every call ends, or the end was forced (NET-3 of `chain_network`); how many were is said.
"""

from __future__ import annotations

import sys

from chain_network import Faults, Network


def bad_world(seed: int) -> Network:
    network = Network(seed, Faults())
    network.run()
    return network


def worst_world(seed: int, bug: str = "") -> Network:
    faults = Faults(loss=0.03, crashes=4, partitions=4, pauses=3, joins=6, resignations=3)
    network = Network(seed, faults, bug)
    network.run(clients=6, keys=2, pause_s=0.004)
    return network


def two_die_while_heads_move(seed: int) -> Network:
    """Of five servers the one that began the store and another die at once, soon after it has its replicas."""
    network = Network(seed, QUIET, servers=5, shards=4)
    wait_until_whole(network)
    network.run_until(network.now + network.random.uniform(0.0, 0.5))
    first, *others = network.servers
    return two_die(network, first, network.random.choice(others))


def two_die_when_more_have_come(seed: int) -> Network:
    """Of three servers that began the store, soon after two more have come and decide, too."""
    network = Network(seed, QUIET, servers=3, shards=4)
    wait_until_whole(network)
    network.run_until(network.now + network.random.uniform(0.0, 0.1))
    known = sorted(network.servers)
    decide = {*known, network.add_server(), network.add_server()}
    network.run_until(network.now + 5.0, lambda: decide == {*network.chosen[max(network.chosen)].council})
    network.run_until(network.now + network.random.uniform(0.0, 0.1))
    return two_die(network, *network.random.sample(known, 2))


QUIET = Faults(loss=0.0, repeats=0.0, crashes=0, partitions=0, pauses=0, joins=0, resignations=0)


def two_die(network: Network, one: str, other: str) -> Network:
    client, listener = network.add_client(), network.add_client(subscribes=True)
    network.crash(one, is_certain=True)
    network.run_until(network.now + network.random.choice((0.0, 0.001, 0.003, 0.006, 0.01)))
    network.crash(other, is_certain=True)
    rows = [b"k%d" % number for number in range(12)]
    for row in rows:
        network.ask(client, [row])
    network.calm_down(rows, listener)
    return network


def wait_until_whole(network: Network) -> None:
    """All servers know that all of them decide, and that each chain has three replicas with all rows."""

    def is_whole() -> bool:
        known = [server.state.configuration for server in network.living()]
        return all(
            one is not None
            and len(one.council) == len(known)
            and all(len(chain.members) == 3 and chain.joining is chain.fresh is None for chain in one.chains)
            for one in known
        )

    network.run_until(20.0, is_whole)
    assert is_whole(), "the store was not put together"


WORLDS = (bad_world, worst_world, two_die_while_heads_move, two_die_when_more_have_come)


def main(wanted: str) -> int:
    first, _, last = wanted.partition(":")
    numbers = range(int(first), int(last) if last else int(first) + 1)
    broken = forced = 0
    for seed in numbers:
        for world in WORLDS:
            try:
                end = world(seed).forced_end
            except AssertionError as error:
                broken += 1
                print(f"seed {seed}, {world.__name__}: {str(error)[:500]}", flush=True)
                continue
            if end:
                forced += 1
                print(f"seed {seed}, {world.__name__}: a forced end: {end}", flush=True)
    print(
        f"{len(WORLDS) * len(numbers)} stores: {broken} with a broken invariant, "
        f"{forced} with a forced end, all others answered"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
