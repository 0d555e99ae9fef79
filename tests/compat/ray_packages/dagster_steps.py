# needs: dagster-ray
"""Steps of a job that run in tasks."""

import ray
from dagster import DagsterInstance, execute_job, job, op, reconstructable
from dagster_ray import RayIOManager, ray_executor
from dagster_ray.core.executor import ray_executor as _executor


@op
def number() -> int:
    return 3


@op
def doubled(number: int) -> int:
    return 2 * number


@job(resource_defs={"io_manager": RayIOManager()})
def double():
    doubled(number())


ray.init(num_cpus=2)
result = double.execute_in_process()
assert result.success and result.output_for_node("doubled") == 6
assert ray_executor is _executor and DagsterInstance and reconstructable and execute_job
