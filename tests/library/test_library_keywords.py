"""Keywords that people try first, or misspell, are answered with the right ones."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from typing import Any

import pytest

from weft import serve, train, tune


def loop() -> None:
    """Trains nothing."""


@pytest.mark.parametrize(
    ("call", "given", "words"),
    [
        (train.Trainer, {"num_workers": 2}, "Trainer() has no 'num_workers': write workers=2"),
        (train.Trainer, {"use_gpu": True}, "write resources="),
        (train.Trainer, {"wokers": 2}, "did you mean 'workers'? It has loop, workers"),
        (serve.run, {"http": True}, "serve.start("),
        (serve.run, {"port": 80}, "which returns the address"),
        (serve.run, {"route_prefx": "/"}, "did you mean 'route_prefix'?"),
        (tune.Tuner, {"config": {}}, "write param_space="),
        (tune.Tuner, {"num_samples": 3}, "write tune_config=TuneConfig("),
    ],
)
def test_an_unknown_keyword_is_answered_with_the_right_one(call: Any, given: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError) as raised:
        call(loop, **given)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        (tune.TuneConfig, {"num_sample": 2}, "did you mean 'num_samples'?"),
        (tune.RunConfig, {"metric": "loss"}, "write TuneConfig(metric="),
        (tune.FailureConfig, {"max_failure": 2}, "did you mean 'max_failures'?"),
        (tune.CheckpointConfig, {"num_keep": 2}, "did you mean 'num_to_keep'?"),
        (serve.HTTPOptions, {"prt": 2}, "did you mean 'port'?"),
    ],
)
def test_an_unknown_setting_is_answered_with_the_right_one(kind: Any, given: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError) as raised:
        kind(**given)
    assert words in str(raised.value)


def test_what_is_known_is_as_before() -> None:
    trainer = train.Trainer(loop, workers=3)
    assert dataclasses.replace(trainer, workers=2).workers == 2
    assert pickle.loads(pickle.dumps(trainer)) == trainer
    assert list(inspect.signature(train.Trainer).parameters)[:2] == ["loop", "workers"]
    assert "canary_share" in inspect.signature(serve.run).parameters
