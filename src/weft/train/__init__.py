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
    from weft.train.errors import GroupError as GroupError
    from weft.train.errors import GroupTimeoutError as GroupTimeoutError
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
    from weft.train.session import TrainContext as TrainContext
    from weft.train.session import get_checkpoint as get_checkpoint
    from weft.train.session import get_context as get_context
    from weft.train.session import get_dataset_shard as get_dataset_shard
    from weft.train.session import report as report
    from weft.train.trainer import Result as Result
    from weft.train.trainer import Trainer as Trainer
    from weft.tune.checkpoint import Checkpoint as Checkpoint

_HOMES = {
    "backends": "lightgbm_network prepare_model",
    "errors": "GroupError GroupTimeoutError MemberLostError MismatchError WorkersLostError",
    "group": "Group Meeting",
    "optimizers": "SGD Adam Optimizer",
    "parameter_server": "ParameterServer WorkerLink",
    "session": "TrainContext get_checkpoint get_context get_dataset_shard report",
    "trainer": "Checkpoint Result Trainer",
}
_LAZY = LazyNames(__name__, _HOMES)

__all__ = _LAZY.names
__getattr__ = _LAZY.load
__dir__ = _LAZY.listed
