"""What editors, shells and `help` find: names, signatures, docs, every option."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types
from typing import Any

import pytest

import weft
from weft.engine.process.options import init_options
from weft.engine.process.options.call_options import OPTIONS
from weft.terminal import status_line

LIBRARIES = ("data", "pandas", "rl", "serve", "train", "tune")
PRIVATE = {"TYPE_CHECKING", "LazyNames"}


@weft.remote
def add(first: int, second: int = 1) -> int:
    """The sum."""
    return first + second


@weft.remote
class Oven:
    """Bakes."""

    def bake(self, minutes: int, *, hot: bool = True) -> str:
        """Bake for so long."""
        return f"{minutes}"


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_dir_shows_what_a_user_may_take_and_nothing_else() -> None:
    assert set(LIBRARIES) <= set(dir(weft)) and {"map", "init", "util"} <= set(dir(weft))
    assert {"ActorPool", "Executor", "multiprocessing", "get_node_ip_address"} <= set(dir(weft.util))
    assert {"remote", "map", "options"} <= public(dir(add))
    assert {"remote", "map"} <= public(dir(add.options(num_cpus=2)))
    for module in (weft, *(getattr(weft, name) for name in LIBRARIES if name != "pandas")):
        assert not PRIVATE & set(dir(module)), module
        assert "annotations" not in dir(module), module
        assert all(name.startswith("__") for name in dir(module) if name.startswith("_")), module


def test_importing_all_leaves_the_builtin_map_alone() -> None:
    namespace: dict[str, Any] = {}
    exec("from weft import *", namespace)
    assert "map" not in namespace and "get" in namespace


def test_a_remote_function_has_the_signature_of_the_function(shared_weft_session: Any) -> None:
    assert str(inspect.signature(add.remote)) == "(first: 'int', second: 'int' = 1) -> 'int'"
    assert inspect.getdoc(add) == "The sum."


def test_a_remote_function_has_its_signature_before_there_is_a_session() -> None:
    program = "import inspect, weft; print(inspect.signature(weft.remote(lambda first, second=2: None).remote))"
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert made.stdout == "(first, second=2)\n", made.stderr


def test_a_handles_methods_have_signatures_and_docs(shared_weft_session: Any) -> None:
    oven = Oven.remote()
    assert str(inspect.signature(oven.bake.remote)) == "(minutes: 'int', *, hot: 'bool' = True) -> 'str'"
    assert inspect.signature(oven.bake) == inspect.signature(oven.bake.remote)
    assert oven.bake.__doc__ == "Bake for so long."
    assert [name for name in dir(oven) if not name.startswith("_")] == ["bake"]
    assert {"bake", "options", "remote"} <= {*dir(Oven)} and "__weakref__" not in dir(oven)


def test_a_handle_without_its_class_knows_the_parameters(shared_weft_session: Any) -> None:
    def local() -> Any:
        class Hidden:
            def work(self, first: int, second: int = 2, *rest: int, named: int, **more: int) -> None: ...

        return weft.remote(Hidden)

    handle = local().remote()
    assert str(inspect.signature(handle.work.remote)) == "(first, second=Ellipsis, *args, named, **kwargs)"
    assert "submits a call" in handle.work.__doc__


def test_help_lists_every_option() -> None:
    said = inspect.getdoc(weft.remote) or ""
    missing = [name for name in OPTIONS if not name.startswith("_") and f"{name}" not in said]
    assert set(missing) <= {name for name, option in OPTIONS.items() if not (option.tasks or option.actors)}
    said = inspect.getdoc(weft.init) or ""
    assert not [name for name in (*init_options._TYPES, *init_options._OF_LOGGING) if name not in said]


def test_a_second_init_in_a_notebook_goes_on_with_the_session(
    shared_weft_session: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = types.ModuleType("IPython")
    notebook.get_ipython = lambda: types.SimpleNamespace(kernel=1)  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="already attached"):
        weft.init()
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    assert status_line.in_notebook()
    assert weft.init(num_cpus=3)["node_id"] == weft.get_runtime_context().get_node_id()
    assert "goes on with the session that it has; num_cpus have no effect" in capsys.readouterr().err
