"""Actors by name and namespace."""

from __future__ import annotations

import time
from typing import Any

import pytest

import weft
from weft.exceptions import ActorAlreadyExistsError

pytestmark = pytest.mark.usefixtures("shared_weft_session")


@weft.remote
class Greeter:
    def greet(self) -> str:
        return "hello"


def is_gone(name: str) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            weft.get_actor(name)
        except ValueError:
            return True
    return False


def test_an_actor_is_found_by_its_name() -> None:
    greeter = Greeter.options(name="greeter-1").remote()
    found = weft.get_actor("greeter-1")
    assert found == greeter
    assert weft.get(found.greet.remote()) == "hello"


def test_a_task_finds_it_too() -> None:
    greeter = Greeter.options(name="greeter-2").remote()

    @weft.remote
    def ask() -> Any:
        return weft.get(weft.get_actor("greeter-2").greet.remote())

    assert weft.get(ask.remote()) == "hello"
    del greeter


def test_an_unknown_name_says_where_it_was_looked_for() -> None:
    with pytest.raises(ValueError, match="Failed to look up actor with name 'nobody'"):
        weft.get_actor("nobody")


@pytest.mark.parametrize("name", [None, "", "  ", 3])
def test_a_name_must_be_a_name(name: Any) -> None:
    with pytest.raises(ValueError, match="non-empty name"):
        weft.get_actor(name)


def test_a_name_is_taken_only_once() -> None:
    first = Greeter.options(name="greeter-3").remote()
    with pytest.raises(ActorAlreadyExistsError, match="'greeter-3' is already taken"):
        Greeter.options(name="greeter-3").remote()
    again = Greeter.options(name="greeter-3", get_if_exists=True).remote()
    assert again == first


def test_namespaces_are_apart() -> None:
    one = Greeter.options(name="greeter-4", namespace="a").remote()
    two = Greeter.options(name="greeter-4", namespace="b").remote()
    assert one != two
    assert weft.get_actor("greeter-4", namespace="a") == one
    with pytest.raises(ValueError, match="Failed to look up"):
        weft.get_actor("greeter-4")


def test_a_name_is_free_again_after_the_actors_end() -> None:
    first = Greeter.options(name="greeter-5").remote()
    weft.get(first.greet.remote())
    del first
    assert is_gone("greeter-5")
    second = Greeter.options(name="greeter-5").remote()
    weft.kill(second)
    assert is_gone("greeter-5")


def test_named_actors_are_listed() -> None:
    greeter = Greeter.options(name="greeter-6").remote()
    other = Greeter.options(name="greeter-7", namespace="elsewhere").remote()
    assert "greeter-6" in weft.util.list_named_actors()
    assert "greeter-7" not in weft.util.list_named_actors()
    assert {"name": "greeter-7", "namespace": "elsewhere"} in weft.util.list_named_actors(all_namespaces=True)
    del greeter, other


def test_an_actor_knows_its_own_name() -> None:
    @weft.remote
    class Named:
        def name(self) -> Any:
            return weft.get_runtime_context().get_actor_name()

    assert weft.get(Named.options(name="itself").remote().name.remote()) == "itself"
    assert weft.get(Named.remote().name.remote()) == ""
