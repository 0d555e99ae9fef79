"""Search spaces: what they hold, how they are resolved, and what is refused."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from weft import tune
from weft.tune.errors import SearchSpaceError
from weft.tune.search.unit_cube import UnitCube
from weft.tune.space import Domain, Path, check_space, resolve


def sampled(space: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    rng = random.Random(seed)
    return resolve(space, lambda path, domain: domain.sample(rng))


@pytest.mark.parametrize(
    ("domain", "is_member"),
    [
        (tune.uniform(-1, 2), lambda v: -1 <= v <= 2),
        (tune.quniform(0, 1, 0.25), lambda v: v in (0, 0.25, 0.5, 0.75, 1)),
        (tune.loguniform(1e-4, 1e-1), lambda v: 1e-4 <= v <= 1e-1),
        (tune.qloguniform(1e-2, 1, 0.01), lambda v: math.isclose(v * 100, round(v * 100))),
        (tune.randint(3, 6), lambda v: v in (3, 4, 5)),
        (tune.qrandint(0, 10, 5), lambda v: v in (0, 5, 10)),
        (tune.lograndint(1, 1000), lambda v: isinstance(v, int) and 1 <= v < 1000),
        (tune.randn(10, 0.1), lambda v: 5 < v < 15),
        (tune.qrandn(0, 10, 2), lambda v: v % 2 == 0),
        (tune.choice(["a", "b"]), lambda v: v in ("a", "b")),
    ],
)
def test_a_domain_gives_only_its_members(domain: Domain, is_member: Any) -> None:
    rng = random.Random(1)
    assert all(is_member(domain.sample(rng)) for _ in range(300))


def test_randint_reaches_both_ends_and_excludes_the_upper_one() -> None:
    assert {tune.randint(0, 3).sample(random.Random(seed)) for seed in range(50)} == {0, 1, 2}


def test_a_log_domain_is_uniform_in_the_logarithm() -> None:
    rng = random.Random(0)
    below = sum(tune.loguniform(1e-4, 1).sample(rng) < 1e-2 for _ in range(2000))
    assert 900 < below < 1100


def test_nested_spaces_are_resolved_in_place() -> None:
    config = sampled({"a": 1, "net": {"layers": [tune.choice([8]), 16]}, "t": ("x", tune.choice(["y"]))})
    assert config == {"a": 1, "net": {"layers": [8, 16]}, "t": ("x", "y")}


def test_a_choice_of_spaces_is_conditional() -> None:
    space = {"net": tune.choice([{"kind": "linear"}, {"kind": "mlp", "width": tune.randint(8, 64)}])}
    seen = {tuple(sorted(sampled(space, seed)["net"])) for seed in range(20)}
    assert seen == {("kind",), ("kind", "width")}


def test_conditional_domains_have_paths_of_their_own() -> None:
    paths: list[Path] = []

    def draw(path: Path, domain: Domain) -> Any:
        paths.append(path)
        return domain.categories[1] if hasattr(domain, "categories") else 8

    resolve({"net": tune.choice([{"width": tune.randint(1, 2)}, {"width": tune.randint(8, 9)}])}, draw)
    assert paths == [("net",), ("net", 1, "width")]


def test_sample_from_sees_the_rest_by_attribute_and_by_item() -> None:
    space = {
        "alpha": tune.choice([3]),
        "twice": tune.sample_from(lambda spec: spec.config.alpha * 2),
        "thrice": tune.sample_from(lambda config: config["alpha"] * 3),
    }
    assert sampled(space) == {"alpha": 3, "twice": 6, "thrice": 9}


def test_sample_from_functions_may_use_each_other_in_any_order() -> None:
    space = {"c": tune.sample_from(lambda s: s.b + 1), "b": tune.sample_from(lambda s: s.a + 1), "a": 1}
    assert sampled(space) == {"a": 1, "b": 2, "c": 3}


def test_sample_from_in_a_circle_names_the_keys() -> None:
    space = {"a": tune.sample_from(lambda s: s.b), "b": tune.sample_from(lambda s: s.a)}
    with pytest.raises(SearchSpaceError, match="a -> b -> a"):
        sampled(space)


def test_sample_from_of_a_missing_key_says_which_there_are() -> None:
    with pytest.raises(SearchSpaceError, match="asked for key 'gamma'; there are: alpha, x"):
        sampled({"alpha": 1, "x": tune.sample_from(lambda s: s.gamma)})


def test_what_sample_from_returns_may_be_a_space() -> None:
    assert sampled({"x": tune.sample_from(lambda s: {"y": tune.choice([4])})}) == {"x": {"y": 4}}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tune.uniform(1, 0), "lower must be at most upper, but got 1 and 0"),
        (lambda: tune.loguniform(0, 1), "lower must be positive for a logarithmic domain, but got 0"),
        (lambda: tune.uniform(0, math.inf), "upper must be a finite number, but got inf"),
        (lambda: tune.uniform("0", 1), "lower must be a finite number, but got '0'"),
        (lambda: tune.quniform(0, 1, 0), "q must be positive, but got 0"),
        (lambda: tune.randint(2, 2), "upper must be more than lower"),
        (lambda: tune.choice([]), "at least one value"),
        (lambda: tune.choice("abc"), "needs a list of values, but got 'abc'"),
        (lambda: tune.grid_search(3), "grid_search needs a list of values, but got 3"),
        (lambda: tune.randn(0, 0), "sd must be positive, but got 0"),
        (lambda: tune.sample_from(3), "needs a function, but got 3"),
        (lambda: check_space({"a": {"grid_search": 5}}), "grid_search needs a list"),
        (lambda: check_space({"a": {"b": tune.sample_from(lambda x, y: 0)}}), "'a/b' must take one argument"),
        (
            lambda: check_space({"a": {"b": tune.uniform}}),
            r"'a/b' is the function tune.uniform itself: call it, tune.un",
        ),
        (lambda: check_space({"a": {"grid_serach": [1]}}), "'a' has 'grid_serach' in it; did you mean 'grid_search'?"),
        (lambda: check_space([1]), "must be a dictionary, but got list"),
    ],
)
def test_a_wrong_space_is_refused_with_the_reason(make: Any, message: str) -> None:
    with pytest.raises(SearchSpaceError, match=message):
        make()


def test_the_unit_cube_goes_there_and_back() -> None:
    space = {
        "lr": tune.loguniform(1e-4, 1e-1),
        "n": tune.randint(2, 9),
        "z": tune.randn(5, 2),
        "net": tune.choice(["a", {"width": tune.lograndint(1, 100)}]),
    }
    cube = UnitCube(space)
    rng = random.Random(3)
    for _ in range(100):
        config = cube.to_config([rng.random() for _ in range(len(cube))])
        vector = cube.to_vector(config)
        assert vector is not None
        again = cube.to_config(vector)
        assert again["n"] == config["n"] and math.isclose(again["lr"], config["lr"]) and again["net"] == config["net"]
