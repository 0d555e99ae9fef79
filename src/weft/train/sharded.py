"""Checkpoints of PyTorch's sharded tensors: every rank writes its shards, any number of ranks reads them.

`torch.distributed.checkpoint` does the work; here the files find their way into a trainer's checkpoint and back.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import Any

from weft.train.session import get_checkpoint, report

__all__ = ["load_sharded", "report_sharded"]


def report_sharded(metrics: Mapping[str, Any], state: dict[str, Any]) -> None:
    """`report` with a checkpoint of `state`, by all ranks together: plain values, and tensors, of which sharded ones
    (DTensor, FSDP) are written by whoever has the shard."""
    from torch.distributed.checkpoint.state_dict_saver import save

    with tempfile.TemporaryDirectory(prefix="weft-train-") as folder:
        save(state, checkpoint_id=folder, no_dist=_is_alone())
        report(metrics, checkpoint=folder)


def load_sharded(state: dict[str, Any]) -> bool:
    """Fill `state` from the checkpoint to go on from, by all ranks together, however many had written it. Its tensors
    are filled in place and say which shards this rank has. False if there is no checkpoint."""
    from torch.distributed.checkpoint.state_dict_loader import load

    checkpoint = get_checkpoint()
    if checkpoint is None:
        return False
    with checkpoint.as_directory() as folder:
        load(state, checkpoint_id=folder, no_dist=_is_alone())
    return True


def _is_alone() -> bool:
    from torch import distributed

    return not (distributed.is_available() and distributed.is_initialized())
