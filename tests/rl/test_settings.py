"""Settings: typed, documented, and helpful when they are wrong."""

from __future__ import annotations

import pytest

from weft.library.settings import documentation
from weft.rl import PPOConfig, SettingError, get_algorithm


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"learning_rat": 1.0}, "did you mean 'learning_rate'"),
        ({"n_env": 4}, "did you mean 'envs_per_worker'"),
        ({"verbose": 1}, "progress is shown by learn"),
        ({"policy_kwargs": {}}, "the network is told by hidden"),
        ({"clip_rang": 0.1}, "did you mean 'clip'"),
        ({"convolutions": ((16, 4),)}, "convolutions must be"),
        ({"sample_timeout_s": float("inf")}, "sample_timeout_s must be at most"),
        ({"workers": -1}, "workers must be at least 0, but got -1"),
        ({"workers": 1.5}, "workers must be int, but got 1.5 of type float"),
        ({"workers": True}, "workers must be int, but got True of type bool"),
        ({"learning_rate": "fast"}, "learning_rate must be float"),
        ({"learning_rate": 0}, "learning_rate must be positive, but got 0"),
        ({"gamma": 1.5}, "gamma must be at most 1, but got 1.5"),
        ({"hidden": (64, 0)}, "hidden must be at least 1"),
        ({"hidden": ("a",)}, "hidden must be a tuple of int"),
        ({"activation": "tahn"}, "did you mean 'tanh'"),
        ({"minibatch": 10**6}, "a batch has only 1024 steps"),
        ({"num_workers": 1, "workers": 1}, "given twice"),
    ],
)
def test_a_wrong_setting_is_refused_with_the_remedy(given: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        PPOConfig.of(None, given) if len(given) == 1 else PPOConfig.of(given, {})


@pytest.mark.parametrize("name", ["RecurrentPPO", "MultiAgentPPO"])
def test_what_a_memory_makes_no_use_of_is_refused_and_not_ignored(name: str) -> None:
    for given in ({"target_kl": 0.01}, {"initial_log_std": -1.0}):
        with pytest.raises(SettingError, match=r"with a memory (target_kl|initial_log_std) must be .*, its default"):
            get_algorithm(name).config_class.of(given, {"memory": "gru"})


def test_names_of_the_classic_library_are_understood() -> None:
    config = PPOConfig.of({"num_workers": 2, "sgd_stepsize": 0.01}, {"num_sgd_iter": 3})
    assert (config.workers, config.learning_rate, config.epochs) == (2, 0.01, 3)


def test_a_list_becomes_a_tuple_and_an_int_is_a_float() -> None:
    config = PPOConfig(hidden=[8, 8], learning_rate=1)  # type: ignore[arg-type]
    assert config.hidden == (8, 8) and config.learning_rate == 1


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        PPOConfig().workers = 3  # type: ignore[misc]


def test_every_setting_is_documented() -> None:
    lines = documentation(PPOConfig).splitlines()
    assert all(line.strip() for line in lines)
    assert any(line.startswith("clip: float = 0.2") for line in lines)


def test_overrides_win_over_a_config() -> None:
    assert PPOConfig.of(PPOConfig(workers=1), {"num_workers": 2}).workers == 2
