"""Two bad worlds for the control store's machines, from a seed each: `python tests/store/chain_worlds.py 0:500`.

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


def main(wanted: str) -> int:
    first, _, last = wanted.partition(":")
    numbers = range(int(first), int(last) if last else int(first) + 1)
    broken = forced = 0
    for seed in numbers:
        for world in (bad_world, worst_world):
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
        f"{2 * len(numbers)} stores: {broken} with a broken invariant, {forced} with a forced end, all others answered"
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
