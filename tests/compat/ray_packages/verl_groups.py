# needs: tensordict codetiming
# without dependencies: verl
"""verl's worker groups: one call that is dispatched over many actors."""

import ray
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, register
from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup


@ray.remote
class Adder(Worker):
    def __init__(self, base):
        super().__init__()
        self.base = base

    @register(Dispatch.ONE_TO_ALL)
    def add(self, number):
        return self.base + number + self.rank


ray.init(num_cpus=4)
pool = RayResourcePool([2], use_gpu=False)
group = RayWorkerGroup(resource_pool=pool, ray_cls_with_init=RayClassWithInitArgs(cls=Adder, base=10))
assert group.world_size == 2
assert group.execute_all_sync("add", 5) == [15, 16]
