# needs: econml
"""Double machine learning with cross-fitting in tasks."""

import numpy as np
import ray
from econml.dml import LinearDML
from sklearn.linear_model import LinearRegression

ray.init(num_cpus=2)
rng = np.random.default_rng(0)
w = rng.normal(size=(600, 3))
x = rng.normal(size=(600, 1))
t = w[:, 0] + rng.normal(size=600)
y = 2.0 * t + w[:, 1] + rng.normal(scale=0.1, size=600)
model = LinearDML(
    model_y=LinearRegression(),
    model_t=LinearRegression(),
    use_ray=True,
    ray_remote_func_options={"num_cpus": 1},
    random_state=0,
)
model.fit(y, t, X=x, W=w)
assert abs(float(model.effect(np.zeros((1, 1)))[0]) - 2.0) < 0.1
