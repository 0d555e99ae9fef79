"""`DefaultModelConfig`: the network that an algorithm builds by itself."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass
class DefaultModelConfig:
    """What is not given is as `weft.rl` has it."""

    fcnet_hiddens: list[int] | None = None
    fcnet_activation: str | None = None
    conv_filters: list[Any] | None = None
    head_fcnet_hiddens: list[int] | None = None
    head_fcnet_activation: str | None = None
    vf_share_layers: bool = False
    use_lstm: bool = False
    max_seq_len: int | None = None
    lstm_cell_size: int | None = None
