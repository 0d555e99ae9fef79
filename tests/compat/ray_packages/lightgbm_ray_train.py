# needs: lightgbm wrapt
# without dependencies: lightgbm_ray xgboost_ray
"""Distributed boosting in actors."""

import numpy as np
import ray
from lightgbm_ray import RayDMatrix, RayParams, train

ray.init(num_cpus=4)
rng = np.random.default_rng(0)
x = rng.normal(size=(400, 4))
y = (x[:, 0] + x[:, 1] > 0).astype(int)
history = {}
train(
    {"objective": "binary", "metric": ["binary_error"], "verbose": -1},
    RayDMatrix(x, y),
    num_boost_round=10,
    evals_result=history,
    valid_sets=[RayDMatrix(x, y)],
    valid_names=["train"],
    ray_params=RayParams(num_actors=2, cpus_per_actor=2),
)
assert history["train"]["binary_error"][-1] < 0.2, history
