"""Training on the engine: data-parallel trainers, parameter servers, and collective operations.

>>> from weft import train
>>> result = train.Trainer(loop, workers=4).fit()                   # weft.train.trainer
>>> group = meeting.join(rank)                                      # weft.train.group
>>> server = train.ParameterServer(parameters, train.SGD(0.1), workers=4)   # weft.train.parameter_server

Every name is loaded at its first use.
"""

from __future__ import annotations

from weft._lazy import LazyNames

_LAZY = LazyNames(__name__)

__all__ = _LAZY.names
__getattr__ = _LAZY.load
__dir__ = _LAZY.listed
