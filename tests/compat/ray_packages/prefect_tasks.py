# needs: prefect-ray fastapi<0.116
"""A flow whose tasks run on Ray."""

from prefect import flow, task
from prefect_ray import RayTaskRunner


@task
def square(number: int) -> int:
    return number**2


@flow(task_runner=RayTaskRunner(init_kwargs={"num_cpus": 2}))
def total() -> int:
    futures = [square.submit(number) for number in range(5)]
    return sum(future.result() for future in futures)


assert total() == 30
