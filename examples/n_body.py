"""Bodies under gravity: every step is a few tasks that read all positions in place and compute a part of the forces.

python examples/n_body.py

Two discs of stars meet. The steps are leapfrog, which keeps the energy; how well it did is printed.
"""

from __future__ import annotations

import time
from itertools import pairwise

import numpy as np

import weft

SOFTENING = 0.05


@weft.remote
def accelerations(positions: np.ndarray, masses: np.ndarray, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """Of the bodies from `start` to `stop`, towards all; and the potential there."""
    own, lengths = positions[start:stop], (positions**2).sum(axis=1)
    squared = lengths[start:stop, None] + lengths - 2 * own @ positions.T + SOFTENING**2
    pull = masses / np.sqrt(squared)
    potential = pull.sum(axis=1) - masses[start:stop] / SOFTENING
    pull /= squared
    return pull @ positions - pull.sum(axis=1, keepdims=True) * own, -potential


def disc(draw: np.random.Generator, bodies: int, centre: list[float], drift: list[float]) -> list[np.ndarray]:
    """Positions and velocities of bodies that circle a centre, of one unit of mass in all."""
    radius, angle = np.sqrt(draw.uniform(0.05, 1, bodies)), draw.uniform(0, 2 * np.pi, bodies)
    speed = np.sqrt(radius**2 / (radius**2 + SOFTENING**2) ** 0.5)
    positions = np.stack([radius * np.cos(angle), radius * np.sin(angle), 0.05 * draw.standard_normal(bodies)], axis=1)
    velocities = np.stack([-speed * np.sin(angle), speed * np.cos(angle), np.zeros(bodies)], axis=1)
    return [positions + centre, velocities + drift]


def forces(positions: np.ndarray, masses: weft.ObjectRef[np.ndarray], parts: int) -> tuple[np.ndarray, np.ndarray]:
    """The positions are put once, and every task reads them where they lie."""
    shared, edges = weft.put(positions), np.linspace(0, len(positions), parts + 1, dtype=int)
    ranges = pairwise(edges.tolist())
    found = weft.get([accelerations.remote(shared, masses, start, stop) for start, stop in ranges])
    return np.concatenate([pull for pull, _ in found]), np.concatenate([potential for _, potential in found])


def main(bodies: int = 800, steps: int = 100, dt: float = 0.005, parts: int = 8) -> float:
    """How much of the energy was lost or gained."""
    draw = np.random.default_rng(0)
    left = disc(draw, bodies // 2, [-1.5, 0, 0], [0.4, 0.1, 0])
    right = disc(draw, bodies // 2, [1.5, 0, 0], [-0.4, -0.1, 0])
    positions, velocities = (np.concatenate(pair) for pair in zip(left, right, strict=True))
    masses = np.full(bodies, 2 / bodies)
    shared_masses = weft.put(masses)
    pull, potential = forces(positions, shared_masses, parts)
    energies, began = [], time.perf_counter()
    for step in range(steps):
        energies.append(float((masses * (velocities**2).sum(axis=1)).sum() / 2 + (masses * potential).sum() / 2))
        if step % max(1, steps // 5) == 0:
            print(f"step {step:4d}: energy {energies[-1]:.5f}")
        velocities += pull * dt / 2
        positions += velocities * dt
        pull, potential = forces(positions, shared_masses, parts)
        velocities += pull * dt / 2
    drift = abs(energies[-1] / energies[0] - 1)
    rate = bodies**2 * steps / (time.perf_counter() - began)
    print(f"{rate / 1e6:.0f} million pairs a second; the energy changed by {drift:.4%}")
    return drift


if __name__ == "__main__":
    main()
