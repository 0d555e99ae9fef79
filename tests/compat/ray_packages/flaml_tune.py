# needs: flaml
"""FLAML's search with trials on Ray."""

import ray
from flaml import tune


def objective(config):
    return {"loss": (config["x"] - 3) ** 2}


ray.init(num_cpus=2)
analysis = tune.run(
    objective, config={"x": tune.uniform(0, 10)}, metric="loss", mode="min", num_samples=8, use_ray=True
)
assert analysis.best_result["loss"] < 20
