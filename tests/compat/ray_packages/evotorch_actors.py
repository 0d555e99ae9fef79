# needs: evotorch
"""A population that is evaluated in actors."""

import torch
from evotorch import Problem
from evotorch.algorithms import SNES


def norm(solutions: torch.Tensor) -> torch.Tensor:
    return torch.linalg.norm(solutions, dim=-1)


problem = Problem("min", norm, solution_length=5, initial_bounds=(-5, 5), vectorized=True, num_actors=2)
searcher = SNES(problem, popsize=40, stdev_init=3)
searcher.run(30)
assert float(searcher.status["best_eval"]) < 2.5, searcher.status["best_eval"]
