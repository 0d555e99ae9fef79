"""A cluster in virtual time: the engine's own decisions on thousands of virtual nodes, with faults, from a seed.

    python -m weft.testing.simulate --nodes 100 --workload empty

See docs/design/ for what is real and what is modelled.
"""

from __future__ import annotations

from weft.testing.simulate.simulation import Plan, Simulation

__all__ = ["Plan", "Simulation"]
