"""Training on the engine: data-parallel trainers, parameter servers, and collective operations.

>>> from weft import train
>>> result = train.Trainer(loop, workers=4).fit()                   # weft.train.trainer
>>> group = meeting.join(rank)                                      # weft.train.group
>>> server = train.ParameterServer(parameters, train.SGD(0.1), workers=4)   # weft.train.parameter_server

Every name is loaded at its first use.
"""

from __future__ import annotations

from weft._lazy import LazyNames

TYPE_CHECKING = False

if TYPE_CHECKING:
    from weft.train.backends import lightgbm_network as lightgbm_network
    from weft.train.backends import prepare_model as prepare_model
    from weft.train.errors import DivergedError as DivergedError
    from weft.train.errors import GroupError as GroupError
    from weft.train.errors import GroupTimeoutError as GroupTimeoutError
    from weft.train.errors import HangError as HangError
    from weft.train.errors import MemberLostError as MemberLostError
    from weft.train.errors import MismatchError as MismatchError
    from weft.train.errors import WorkersLostError as WorkersLostError
    from weft.train.group import Group as Group
    from weft.train.group import Meeting as Meeting
    from weft.train.optimizers import SGD as SGD
    from weft.train.optimizers import Adam as Adam
    from weft.train.optimizers import Optimizer as Optimizer
    from weft.train.parameter_server import ParameterServer as ParameterServer
    from weft.train.parameter_server import WorkerLink as WorkerLink
    from weft.train.parts import states_of_ranks as states_of_ranks
    from weft.train.session import TrainContext as TrainContext
    from weft.train.session import get_checkpoint as get_checkpoint
    from weft.train.session import get_context as get_context
    from weft.train.session import get_dataset_shard as get_dataset_shard
    from weft.train.session import report as report
    from weft.train.sharded import load_sharded as load_sharded
    from weft.train.sharded import report_sharded as report_sharded
    from weft.train.trainer import Result as Result
    from weft.train.trainer import Trainer as Trainer
    from weft.tune.checkpoint import Checkpoint as Checkpoint

_HOMES = {
    "backends": "lightgbm_network prepare_model",
    "errors": "DivergedError GroupError GroupTimeoutError HangError MemberLostError MismatchError WorkersLostError",
    "group": "Group Meeting",
    "optimizers": "SGD Adam Optimizer",
    "parameter_server": "ParameterServer WorkerLink",
    "parts": "states_of_ranks",
    "session": "TrainContext get_checkpoint get_context get_dataset_shard report",
    "sharded": "load_sharded report_sharded",
    "trainer": "Checkpoint Result Trainer",
}
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
_LAZY = LazyNames(__name__, _HOMES, elsewhere=_ELSEWHERE)

__all__ = _LAZY.names
__getattr__ = _LAZY.load
__dir__ = _LAZY.listed
