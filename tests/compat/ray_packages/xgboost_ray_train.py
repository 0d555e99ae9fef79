# needs: xgboost wrapt
# without dependencies: xgboost_ray
"""Distributed boosting in actors."""

import numpy as np
import ray
from xgboost_ray import RayDMatrix, RayParams, predict, train

ray.init(num_cpus=2)
rng = np.random.default_rng(0)
x = rng.normal(size=(400, 4))
y = (x[:, 0] + x[:, 1] > 0).astype(int)
history = {}
booster = train(
    {"objective": "binary:logistic", "eval_metric": ["error"]},
    RayDMatrix(x, y),
    num_boost_round=10,
    evals_result=history,
    evals=[(RayDMatrix(x, y), "train")],
    ray_params=RayParams(num_actors=2, cpus_per_actor=1),
)
assert history["train"]["error"][-1] < 0.1, history
assert len(predict(booster, RayDMatrix(x), ray_params=RayParams(num_actors=2))) == 400
