"""Where others look for what PyTorch needs: `train.torch.prepare_model`. It does not import PyTorch."""

from __future__ import annotations

from weft.train.backends import prepare_model

__all__ = ["prepare_model"]


def __getattr__(name: str) -> object:
    from weft._lazy import missing

    raise missing(__name__, name, __all__)
