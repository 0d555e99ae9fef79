# needs: pymoo
"""An evolutionary optimisation whose problem is evaluated by Ray."""

import ray
from pymoo.algorithms.soo.nonconvex.ga import GA
from pymoo.core.problem import ElementwiseProblem
from pymoo.optimize import minimize
from pymoo.parallelization.ray import RayParallelization


class Sphere(ElementwiseProblem):
    def __init__(self, **kwargs):
        super().__init__(n_var=4, n_obj=1, xl=-5, xu=5, **kwargs)

    def _evaluate(self, x, out, *args, **kwargs):
        out["F"] = (x**2).sum()


ray.init(num_cpus=2)
problem = Sphere(elementwise_runner=RayParallelization(job_resources={"num_cpus": 1}))
result = minimize(problem, GA(pop_size=20), termination=("n_gen", 15), seed=1)
assert result.F[0] < 5, result.F
