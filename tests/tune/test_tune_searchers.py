"""Every search algorithm keeps the same contract: members of the space, reproducible, learns, can be replayed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from weft import tune
from weft.tune.errors import SearchSpaceError
from weft.tune.search import (
    FINISHED,
    ConcurrencyLimiter,
    GridRandomSearch,
    Repeater,
    Searcher,
    create_searcher,
)

SPACE = {"x": tune.uniform(-1, 1), "y": tune.loguniform(0.01, 1), "kind": tune.choice(["a", "b"]), "fixed": 7}


def optuna(sampler: str) -> Callable[[], Searcher]:
    def make() -> Searcher:
        from weft.tune.search import OptunaSearch

        options = {"n_startup_trials": 3} if sampler in ("tpe", "gp", "cmaes") else {}
        return OptunaSearch(sampler, seed=1, **options)

    return make


MAKERS: dict[str, Callable[[], Searcher]] = {
    "random": GridRandomSearch,
    "tpe": optuna("tpe"),
    "gp": optuna("gp"),
    "cmaes": optuna("cmaes"),
    "nsga2": optuna("nsga2"),
    "bohb": lambda: create_searcher("bohb", seed=1),
    "bayesopt": lambda: create_searcher("bayesopt", seed=1, random_search_steps=4),
    "nevergrad": lambda: create_searcher("nevergrad", optimizer="OnePlusOne", seed=1),
    "limited": lambda: ConcurrencyLimiter(GridRandomSearch(), 2),
    "repeated": lambda: Repeater(GridRandomSearch(), 2),
}
pytestmark = pytest.mark.filterwarnings("ignore")  # the optional libraries warn about being experimental


@pytest.fixture(params=MAKERS)
def make(request: pytest.FixtureRequest) -> Callable[[], Searcher]:
    packages = {"bayesopt": "bayes_opt", "nevergrad": "nevergrad", "gp": "torch", "cmaes": "cmaes"}
    if request.param in packages:
        pytest.importorskip(packages[request.param])
    return MAKERS[request.param]


def loss(config: dict[str, Any]) -> float:
    return (config["x"] - 0.5) ** 2 + math.log10(config["y"] / 0.1) ** 2 + (config["kind"] == "b")


def drive(searcher: Searcher, number: int, space: Any = SPACE) -> list[dict[str, Any]]:
    searcher.set_up(space, "loss", "min", 3, number)
    configs = []
    for index in range(number):
        trial_id = f"{index:05d}"
        config = searcher.ask(trial_id)
        assert isinstance(config, dict)
        result = {"loss": loss(config), "training_iteration": 1}
        searcher.observe(trial_id, result)
        searcher.tell(trial_id, result)
        configs.append(config)
    return configs


def test_it_asks_for_members_of_the_space_only(make: Callable[[], Searcher]) -> None:
    for config in drive(make(), 12):
        assert -1 <= config["x"] <= 1 and 0.01 <= config["y"] <= 1 and config["kind"] in "ab" and config["fixed"] == 7


def test_the_same_seed_asks_for_the_same(make: Callable[[], Searcher]) -> None:
    assert drive(make(), 8) == drive(make(), 8)


def test_replaying_leads_to_the_same_next_question(make: Callable[[], Searcher]) -> None:
    first, second = make(), make()
    configs = drive(first, 6)
    second.set_up(SPACE, "loss", "min", 3, 6)
    for index, config in enumerate(configs):
        trial_id = f"{index:05d}"
        second.replay(trial_id, config)
        result = {"loss": loss(config), "training_iteration": 1}
        second.observe(trial_id, result)
        second.tell(trial_id, result)
    assert str(first.ask("00006")) == str(second.ask("00006"))


def test_a_failed_trial_and_a_nan_do_not_stop_it(make: Callable[[], Searcher]) -> None:
    searcher = make()
    searcher.set_up(SPACE, "loss", "min", 0, 10)
    searcher.ask("00000")
    searcher.tell("00000", None)
    searcher.ask("00001")
    searcher.observe("00001", {"loss": math.nan, "training_iteration": 1})
    searcher.tell("00001", {"loss": math.nan, "training_iteration": 1})
    assert isinstance(searcher.ask("00002"), dict)


@pytest.mark.parametrize("name", ["tpe", "gp", "bohb", "bayesopt"])
def test_a_model_finds_better_values_than_it_began_with(name: str) -> None:
    for package in {"gp": ["torch"], "bayesopt": ["bayes_opt"]}.get(name, []):
        pytest.importorskip(package)
    losses = [loss(config) for config in drive(MAKERS[name](), {"gp": 12, "bayesopt": 20}.get(name, 40))]
    assert sum(losses[-8:]) < sum(losses[:8])


def test_a_grid_is_every_combination_with_the_last_key_fastest() -> None:
    space = {"a": tune.grid_search([1, 2]), "b": {"c": tune.grid_search("xy" and ["x", "y"])}, "r": tune.uniform(0, 1)}
    searcher = GridRandomSearch()
    searcher.set_up(space, None, "max", 0, 2)
    asked = []
    while isinstance(config := searcher.ask(""), dict):
        asked.append((config["a"], config["b"]["c"], config["r"]))
    assert [entry[:2] for entry in asked] == [(1, "x"), (1, "y"), (2, "x"), (2, "y")] * 2
    assert len({entry[2] for entry in asked}) == 8


def test_points_to_evaluate_come_first() -> None:
    searcher = GridRandomSearch(points_to_evaluate=[{"x": 0.25}])
    searcher.set_up({"x": tune.uniform(0, 1)}, None, "max", 0, 3)
    assert searcher.ask("") == {"x": 0.25}
    assert searcher.ask("") != {"x": 0.25}


def test_a_grid_inside_a_choice_is_refused() -> None:
    with pytest.raises(SearchSpaceError, match="'net' has a grid_search inside a choice"):
        GridRandomSearch().set_up({"net": tune.choice([{"w": tune.grid_search([1])}])}, None, "max", 0, 1)


def test_the_limiter_says_not_now_until_a_trial_has_ended() -> None:
    limiter = ConcurrencyLimiter(GridRandomSearch(), 2)
    limiter.set_up(SPACE, "loss", "min", 0, 5)
    assert limiter.ask("0") and limiter.ask("1")
    assert limiter.ask("2") is None
    limiter.tell("0", None)
    assert isinstance(limiter.ask("2"), dict)


def test_a_batch_limiter_waits_for_the_whole_batch() -> None:
    limiter = ConcurrencyLimiter(GridRandomSearch(), 2, batch=True)
    limiter.set_up(SPACE, "loss", "min", 0, 5)
    assert limiter.ask("0") and limiter.ask("1")
    limiter.tell("0", None)
    assert limiter.ask("2") is None
    limiter.tell("1", None)
    assert isinstance(limiter.ask("2"), dict)


def test_the_repeater_tells_the_mean_of_the_repetitions() -> None:
    told: list[Any] = []

    class Spy(GridRandomSearch):
        def tell(self, trial_id: str, result: Any) -> None:
            told.append((trial_id, result))

    spy = Spy()
    repeater = Repeater(spy, 3)
    repeater.set_up(SPACE, "loss", "min", 0, 6)
    configs = [repeater.ask(str(index)) for index in range(3)]
    assert [config["__trial_index__"] for config in configs if isinstance(config, dict)] == [0, 1, 2]
    repeater.tell("0", {"loss": 1.0})
    repeater.tell("1", {"loss": 3.0})
    assert not told
    repeater.tell("2", None)
    assert told == [("0", {"loss": 2.0})]
    assert [isinstance(repeater.ask(str(index)), dict) for index in (3, 4, 5)] == [True] * 3
    assert repeater.ask("6") is FINISHED


def test_optuna_searches_conditional_spaces_and_several_objectives() -> None:
    from weft.tune.search import OptunaSearch

    searcher = OptunaSearch("nsga2", metric=["loss", "size"], mode=["min", "max"], seed=0)
    space = {"net": tune.choice([{"kind": "linear"}, {"kind": "mlp", "width": tune.randint(1, 9)}]), "z": tune.randn()}
    searcher.set_up(space, None, "max", 0, 20)
    for index in range(20):
        config = searcher.ask(str(index))
        assert isinstance(config, dict)
        width = config["net"].get("width", 0)
        searcher.tell(str(index), {"loss": width + config["z"] ** 2, "size": width, "training_iteration": 1})
    assert len(searcher.study.best_trials) >= 2


def test_optuna_is_told_that_a_trial_was_stopped_early() -> None:
    from weft.tune.search import OptunaSearch

    searcher = OptunaSearch(seed=0)
    searcher.set_up(SPACE, "loss", "min", 0, 20)
    searcher.ask("0")
    searcher.tell("0", {"loss": 3.0, "training_iteration": 4, "stopped_early": True})
    assert searcher.study.trials[0].state.name == "PRUNED"
    assert searcher.study.trials[0].intermediate_values == {4: 3.0}


def test_optuna_starts_warm_from_configurations_and_results() -> None:
    from weft.tune.search import OptunaSearch

    points = [{"x": 0.5, "y": 0.1, "kind": "a"}, {"x": -0.5, "y": 1.0, "kind": "b"}]
    searcher = OptunaSearch(points_to_evaluate=points, evaluated_rewards=[0.0], seed=0)
    searcher.set_up(SPACE, "loss", "min", 0, 20)
    assert searcher.study.best_value == 0.0
    assert searcher.ask("0") == {**points[1], "fixed": 7}


def test_an_unknown_sampler_and_an_unknown_algorithm_list_what_there_is() -> None:
    from weft.tune.search import OptunaSearch

    with pytest.raises(ValueError, match=r"sampler must be one of tpe, gp, .* but got 'tpee'"):
        OptunaSearch("tpee")
    with pytest.raises(ValueError, match=r"search_alg must be one of bayesopt, bohb, .* but got 'hyperopt'"):
        create_searcher("hyperopt")
