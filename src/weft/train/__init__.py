"""Training on the engine: data-parallel trainers, parameter servers, and collective operations.

>>> from weft import train
>>> result = train.Trainer(loop, workers=4).fit()                   # weft.train.trainer
>>> group = meeting.join(rank)                                      # weft.train.group
>>> server = train.ParameterServer(parameters, train.SGD(0.1), workers=4)   # weft.train.parameter_server

Every name is loaded at its first use.
"""

from __future__ import annotations

from weft._lazy import LazyNames

_ELSEWHERE = {
    "torch": 'write weft.train.prepare_model(model), in the loop of Trainer(loop, workers=2, backend="torch")',
    "TorchTrainer": 'write Trainer(loop, workers=2, backend="torch").fit()',
    "DataParallelTrainer": "write Trainer(loop, workers=2).fit()",
    "ScalingConfig": 'write Trainer(loop, workers=2, resources={"CPU": 1, "GPU": 1})',
    "RunConfig": "write Trainer(loop, name=..., storage_path=...)",
    "FailureConfig": "write Trainer(loop, failures=3)",
    "CheckpointConfig": "write Trainer(loop, keep_checkpoints=2)",
    "prepare_data_loader": "iterate get_dataset_shard(name), or use a DistributedSampler with the context's rank",
}
_LAZY = LazyNames(__name__, elsewhere=_ELSEWHERE)

__all__ = _LAZY.names
__getattr__ = _LAZY.load
__dir__ = _LAZY.listed
