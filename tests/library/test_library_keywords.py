"""Names and keywords that people try first, or misspell, are answered with the right ones."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pickle
import re
from typing import Any

import pytest

from weft import serve, train, tune
from weft._elsewhere import WRITE_INSTEAD
from weft.library.keywords import answers_attributes


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
        (serve.start, {"port": 80}, "write serve.start(serve.HTTPOptions("),
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
        (serve.AutoscalingConfig, {"min": 2}, "write min_replicas="),
    ],
)
def test_an_unknown_setting_is_answered_with_the_right_one(kind: Any, given: dict[str, Any], words: str) -> None:
    with pytest.raises(TypeError) as raised:
        kind(**given)
    assert words in str(raised.value)


def test_a_loop_that_was_called_and_is_none_by_now_is_told() -> None:
    with pytest.raises(TypeError, match="without calling it"):
        train.Trainer(None)  # type: ignore[arg-type]


def test_what_goes_by_name_alone_is_told_when_it_is_given_by_position() -> None:
    with pytest.raises(TypeError, match=r"Tuner\(\) takes trainable by position; name the others: param_space=, "):
        tune.Tuner(loop, {"x": 1})  # type: ignore[misc]


@pytest.mark.parametrize(
    ("package", "name", "words"),
    [
        ("weft", "delayed", "weft.get(ref) is its value"),
        ("weft", "rllib", "write weft.rl"),
        ("weft", "shutdwn", "Did you mean weft.shutdown?"),
        ("weft.data", "ActorPoolStrategy", "write map_batches(Class, concurrency=2)"),
        ("weft.rl", "EvalCallback", "write PPO(env, evaluation_interval=10)"),
        ("weft.serve", "Request", "from starlette.requests import Request"),
        ("weft.train", "ScalingConfig", "write Trainer(loop, workers=2, resources="),
        ("weft.train", "TorchTrainer", 'Trainer(loop, workers=2, backend="torch")'),
        ("weft.train.torch", "TorchTrainer", 'Trainer(loop, workers=2, backend="torch")'),
        ("weft.tune", "ASHAScheduler", "from weft.tune.schedulers import ASHAScheduler"),
        ("weft.util", "Pool", "from weft.util.multiprocessing import Pool"),
    ],
)
def test_a_name_of_another_library_is_answered_whether_it_is_imported_or_looked_up(
    package: str, name: str, words: str
) -> None:
    with pytest.raises(ImportError) as raised:
        exec(f"from {package} import {name}")
    assert words in str(raised.value)
    module = importlib.import_module(package)
    with pytest.raises(AttributeError) as looked_up:
        getattr(module, name)
    assert words in str(looked_up.value)
    assert not hasattr(module, name)


def test_what_is_written_instead_is_there() -> None:
    for package, names in WRITE_INSTEAD.items():
        if package.startswith("weft.pandas"):  # whose tests have it: it needs pandas
            continue
        module = importlib.import_module(package)
        assert not [name for name in names if hasattr(module, name)], "it need not be answered"
        for text in names.values():
            for importing in re.findall(r"from weft[\w.]* import \w+", text):
                exec(importing)


@answers_attributes("look into .metrics", run="write fit()")
class Machine:
    def fit(self) -> None:
        """Nothing."""


def test_an_unknown_attribute_is_answered_with_the_right_one() -> None:
    for name, words in (("run", ": write fit()"), ("fti", "; did you mean 'fit'?"), ("loss", ": look into .metrics")):
        with pytest.raises(AttributeError) as raised:
            getattr(Machine(), name)
        assert str(raised.value) == f"'Machine' object has no attribute {name!r}{words}"
    assert not hasattr(Machine(), "_private") and isinstance(pickle.loads(pickle.dumps(Machine())), Machine)


def test_what_is_known_is_as_before() -> None:
    trainer = train.Trainer(loop, workers=3)
    assert dataclasses.replace(trainer, workers=2).workers == 2
    assert pickle.loads(pickle.dumps(trainer)) == trainer
    assert list(inspect.signature(train.Trainer).parameters)[:2] == ["loop", "workers"]
    assert "canary_share" in inspect.signature(serve.run).parameters
