"""Rules of the house that a reader would otherwise have to check: who imports whom, sizes, numbers said twice."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"
FILES = sorted(SRC.rglob("*.py"))
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
LONGEST_FILE = 500
LARGEST_ENGINE = 30_000
"""Lines of Python: what is not on the way of a task, an actor or an object has a package of its own."""
LONGEST_COMPOSITION = 150
"""Lines of `native/core.hpp`."""
MOST_METHODS = 30
MOST_IMPORTS = 12
"""Of Weft's own modules."""
# Where parts are put together: they import what they compose.
COMPOSITION_ROOTS = frozenset(
    "weft.cli.main weft.cli.nodes weft.data.dataset weft.engine.cluster.shell weft.store.server_shell "
    "weft.engine.node.daemon weft.local.local_node weft.engine.process.session.host "
    "weft.engine.process.session.session weft.engine.state.node weft.rl.algorithm weft.serve.controller "
    "weft.serve.http.app weft.testing.simulate.node weft.testing.simulate.simulation weft.train.trainer "
    "weft.tune.runner weft.tune.tuner".split()
)
# What is larger today, and how large it may be. A number here may only fall, and a line may only go.
# A shell has the name of the machine that it carries out; other names may not stand for two things.
SHARED_NAMES = frozenset(
    "cluster draining inheritance launch main membership memory_groups output placement replicas storage".split()
)
LARGE_CLASSES = {
    "weft.data.dataset.Dataset": 58,  # its methods are the words of the library
    "weft.store.server_shell.ServerShell": 35,
    "weft.store.state.chain.Replica": 40,
    "weft.rl.algorithm.Algorithm": 32,
    "weft.serve.controller.Controller": 49,
    "weft.serve.http.protocol.HttpProtocol": 33,
    "weft.serve.router.Router": 34,
    "weft.testing.simulate.node.SimNode": 40,
    "weft.tune.runner.Runner": 31,
}
MANY_IMPORTS = {
    "weft.data.exchanges": 13,
    "weft.engine.node.requests": 13,
    "weft.engine.process.api": 14,
    "weft.engine.process.calls.remote_function": 14,
    "weft.testing.simulate.bugs": 15,  # one in each part
}

LIBRARIES = ("tune", "rl", "serve", "train", "data", "pandas")
FLOOR = "weft.library"
# What one library takes from another, as any user would; all else that two of them need is in the floor.
BRIDGES = {
    ("weft.pandas.exchange", "weft.data"),  # to_dataset, from_dataset
    ("weft.pandas.modin.exchange", "weft.data"),
    ("weft.pandas.frame_source", "weft.data"),  # a frame as a source of a dataset
    ("weft.train.trainer", "weft.tune"),  # a Trainer as a trainable of Tune
}
TOOLS = ("cli", "dashboard", "testing")
DEMOS = "weft.demos"
COMPAT = "weft.compat"
ENGINE = ("weft.engine", "weft._native")
# Below the engine, which is their user: each knows nothing of tasks, and only those named after it.
BELOW = {
    "weft.environments": ("weft.machine", "weft.values"),
    "weft.observe": ("weft.machine",),
    "weft.store": ("weft.net", "weft.machine"),
    "weft.net": (),
    "weft.machine": (),
    "weft.terminal": (),
    "weft.devices": ("weft._native",),
    "weft.values": ("weft._native", "weft.devices"),
}
# Above the engine, which they use. It names them only here, where a part of it is their host.
ABOVE = ("weft.inspection", "weft.jobs", "weft.local", "weft.replay", "weft.slurm")
HOSTS = {
    ("weft.engine.node.daemon", "weft.inspection.front"),
    ("weft.engine.node.daemon", "weft.inspection.listing"),
    ("weft.engine.node.daemon", "weft.inspection.observation"),
    ("weft.engine.node.daemon", "weft.inspection.overview"),
    ("weft.engine.node.daemon", "weft.jobs.job_service"),
    ("weft.engine.node.requests", "weft.inspection.listing"),
    ("weft.engine.node.requests", "weft.inspection.reasons"),
    ("weft.engine.node.requests", "weft.inspection.survey"),
    ("weft.engine.node.requests", "weft.inspection.told"),
    ("weft.engine.process.session.session", "weft.local.local_node"),
    ("weft.engine.process.session.session", "weft.slurm.slurm_cluster"),
    ("weft.engine.process.actors.actor_instance", "weft.replay.call_history"),
    ("weft.engine.process.telling.failures", "weft.replay.recorded_inputs"),
    ("weft.engine.process.worker.main", "weft.replay.debugging"),
    ("weft.local.local_node", "weft.inspection.listing"),
}
# What any layer may use: they import nothing of Weft but each other.
COMMON = (
    "weft.exceptions",
    "weft.ids",
    "weft._dual_errors",
    "weft._lazy",
    "weft._elsewhere",
    "weft.engine.wire.kinds",
    "weft.engine.wire.messages",
    "weft.engine.wire.link_messages",
)
PURE = ("weft.engine.state", "weft.store.state", *COMMON[5:])
IO_MODULES = frozenset(
    "asyncio ctypes datetime fcntl http io mmap multiprocessing os pathlib queue random secrets select selectors "
    "shutil socket ssl subprocess tempfile threading time urllib uuid".split()
)


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_under(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


@functools.cache
def exists(module: str) -> bool:
    path = SRC.joinpath(*module.split("."))
    return path.is_dir() or any(path.with_suffix(suffix).exists() for suffix in (".py", ".pyi"))


def is_for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def import_statements(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    """Also those inside functions; not those that only a type checker sees."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        elif is_for_types_only(child):
            for other in child.orelse:
                yield from import_statements(ast.Module([other], []))
        else:
            yield from import_statements(child)


@functools.cache
def imported_modules(path: Path) -> list[tuple[int, str]]:
    """(line, absolute module name) of everything that the file imports."""
    return list(_imported_modules(path))


def _imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in import_statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
            continue
        base = node.module or ""
        if node.level:
            above = package[: len(package) - node.level + 1]
            base = ".".join([*above, base] if base else above)
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            yield node.lineno, inner if is_under(base, "weft") and exists(inner) else base


def may_import(importer: str, imported: str) -> bool:
    """Words of Ray → libraries → what they share → public API → engine shells → engine/state and what is below."""
    libraries = tuple(f"weft.{name}" for name in LIBRARIES)
    tools = tuple(f"weft.{name}" for name in TOOLS)
    if is_under(importer, *COMMON):
        return is_under(imported, *COMMON)
    for package, below in BELOW.items():
        if is_under(importer, package):
            own = package if not is_under(importer, "weft.store.state") else "weft.store.state"
            return is_under(imported, own, *(below if own == package else ()), *COMMON[:5])
    if is_under(imported, *COMMON):
        return True
    if is_under(importer, "weft.engine.state"):
        return is_under(imported, "weft.engine.state")
    if is_under(importer, "weft.engine.wire"):
        return is_under(imported, "weft.engine.wire", *BELOW)
    if is_under(importer, *ENGINE):
        return is_under(imported, *ENGINE, *BELOW) or (importer, imported) in HOSTS
    if is_under(importer, *ABOVE):
        own = ".".join(importer.split(".")[:2])
        return is_under(imported, *ENGINE, *BELOW, own) or (importer, imported) in HOSTS
    if is_under(importer, COMPAT):  # Ray's words for all of it; nothing else knows of them
        return True
    if is_under(imported, COMPAT):
        return False
    if is_under(importer, DEMOS):
        return not is_under(imported, *ENGINE, *BELOW, *ABOVE, *tools)
    if is_under(imported, DEMOS):
        return is_under(importer, "weft.cli.demo")
    if is_under(importer, FLOOR):
        return not is_under(imported, *ENGINE, *BELOW, *ABOVE, *libraries, *tools)
    if is_under(importer, *libraries):
        own = ".".join(importer.split(".")[:2])
        is_of_another = is_under(imported, *libraries) and not is_under(imported, own)
        return not is_under(imported, *ENGINE, *BELOW, *ABOVE, *tools) and (
            not is_of_another or (importer, imported) in BRIDGES
        )
    if is_under(importer, *tools):
        return not is_under(imported, *libraries)
    return not is_under(imported, *libraries, *tools, FLOOR)


def test_imports_point_one_way() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {imported}"
        for path in FILES
        for line, imported in imported_modules(path)
        if is_under(imported, "weft") and not may_import(module_name(path), imported)
    ]
    assert not wrong, "\n".join(wrong)


def test_modules_of_the_engine_import_each_other_in_one_direction_only() -> None:
    """Imports inside functions counted."""
    ours = ("weft.engine", *BELOW, *ABOVE)
    imports = {
        module_name(path): {imported for _, imported in imported_modules(path) if is_under(imported, *ours)}
        for path in FILES
        if is_under(module_name(path), *ours)
    }
    graphlib.TopologicalSorter(imports).prepare()  # CycleError names those on the way around


def modules_named(path: Path) -> set[str]:
    """All modules of Weft that a file imports, those that only a type checker sees as well."""
    package = module_name(path).split(".")[: None if path.name == "__init__.py" else -1]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {inner if exists(inner := f"{base}.{one.name}") else base for one in node.names}
    return {name for name in found if is_under(name, "weft")}


def test_the_daemons_package_is_below_the_clusters_for_a_type_checker_too() -> None:
    """`node.cluster_port` says what it knows of it."""
    wrong = {
        module_name(path): above
        for path in FILES
        if is_under(module_name(path), "weft.engine.node") and module_name(path) != "weft.engine.node.main"
        if (above := {name for name in modules_named(path) if is_under(name, "weft.engine.cluster")})
    }
    assert not wrong


def test_no_part_of_the_cluster_holds_the_whole_daemon_or_the_shell() -> None:
    whole = {"weft.engine.node.daemon", "weft.engine.cluster.shell"}
    holders = {
        module_name(path)
        for path in FILES
        if is_under(module_name(path), "weft.engine.cluster") and whole & modules_named(path)
    }
    assert holders <= {"weft.engine.cluster.shell", "weft.engine.cluster.entry"}, "the shell wires, and entry makes it"


def test_pure_state_imports_no_io_no_clock_and_no_randomness() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line} imports {imported}"
        for path in FILES
        if is_under(module_name(path), *PURE)
        for line, imported in imported_modules(path)
        if imported.split(".")[0] in IO_MODULES
    ]
    assert not wrong, "\n".join(wrong)


def test_no_source_file_is_too_long() -> None:
    lengths = {module_name(path): len(path.read_text().splitlines()) for path in FILES}
    assert not {name: length for name, length in lengths.items() if length > LONGEST_FILE}


def test_the_engine_has_not_grown_past_its_size() -> None:
    lengths = [len(path.read_text().splitlines()) for path in FILES if is_under(module_name(path), "weft.engine")]
    assert sum(lengths) <= LARGEST_ENGINE, "what could stand below or above it? See docs/design/0031"


def test_no_native_file_is_too_long() -> None:
    paths = [path for kind in ("hpp", "cpp") for path in (ROOT / "native").rglob(f"*.{kind}")]
    lengths = {path.relative_to(ROOT / "native").as_posix(): len(path.read_text().splitlines()) for path in paths}
    assert lengths["core.hpp"] <= LONGEST_COMPOSITION
    assert not {name: length for name, length in lengths.items() if length > LONGEST_FILE and "tests/" not in name}


def test_a_native_source_that_needs_python_says_so_itself() -> None:
    """The build of the native tests leaves those out, and looks at a source's own includes alone."""
    native = ROOT / "native"

    @functools.cache
    def includes(name: str) -> frozenset[str]:
        path = native / name
        if not path.exists():
            return frozenset()
        own = re.findall(r'^#include ["<]([\w./]+)[">]', path.read_text(), re.MULTILINE)
        return frozenset(own).union(*(includes(one) for one in own))

    python = {"py.hpp", "Python.h"}
    wrong = [
        path.name
        for path in native.glob("*.cpp")
        if python & includes(path.name)
        and not re.search(r'^#include [<"](py\.hpp|Python\.h|nanobind/)', path.read_text(), re.MULTILINE)
    ]
    assert not wrong


def test_a_file_of_the_engine_has_a_name_of_its_own() -> None:
    names = Counter(
        path.stem
        for path in FILES
        if path.stem != "__init__" and is_under(module_name(path), "weft.engine", *BELOW, *ABOVE)
    )
    assert {name for name, count in names.items() if count > 1} <= SHARED_NAMES


def methods_by_class() -> dict[str, int]:
    return {
        f"{module_name(path)}.{node.name}": len(
            {one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
        )
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }


def test_no_class_has_too_many_methods() -> None:
    counts = methods_by_class()
    assert not {name: count for name, count in counts.items() if count > LARGE_CLASSES.get(name, MOST_METHODS)}


def test_no_module_but_those_that_put_parts_together_imports_many_others() -> None:
    counts = {
        module_name(path): len({imported for _, imported in imported_modules(path) if imported.startswith("weft.")})
        for path in FILES
        if module_name(path) not in COMPOSITION_ROOTS
    }
    assert not {name: count for name, count in counts.items() if count > MANY_IMPORTS.get(name, MOST_IMPORTS)}


def test_what_has_become_small_is_no_exception_any_more() -> None:
    classes = methods_by_class()
    small = [name for name in LARGE_CLASSES if classes[name] <= MOST_METHODS]
    assert not small, "take these out of the lists above: a ratchet only falls"


def test_one_tasks_way_names_files_that_there_are_and_never_goes_back_to_one() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    way = text[text.index("File by file, each read once:") : text.index("**Actors** are created")]
    files = re.findall(r"`((?:native|engine)/[\w/]+\.\w+)`", way)
    assert len(files) > 15 and [name for name, count in Counter(files).items() if count > 1] == []
    roots = {"native": ROOT, "engine": SRC / "weft"}
    assert [name for name in files if not (roots[name.split("/")[0]] / name).exists()] == []


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("weft.tune.search", "weft", True),
        ("weft.tune.search", "weft.engine.process", False),
        ("weft.tune.search", "weft._native", False),
        ("weft.tune.search", "weft.tune.errors", True),
        ("weft.tune.search", "weft.library.checks", True),
        ("weft.train.history", "weft.tune.ledger", False),
        ("weft.train.trainer", "weft.tune", True),
        ("weft.library.storage", "weft.tune", False),
        ("weft.util.queue", "weft.library.storage", False),
        ("weft.remote_function", "weft._native", True),
        ("weft", "weft.tune", False),
        ("weft.demos.loop", "weft.rl", True),
        ("weft.demos.loop", "weft.engine.process", False),
        ("weft.rl.algorithm", "weft.demos.story", False),
        ("weft.engine.node.daemon", "weft.engine.state.leases", True),
        ("weft.engine.node.daemon", "weft", False),
        ("weft.engine.state.leases", "weft.engine.wire.messages", True),
        ("weft.engine.state.leases", "weft.engine.node.daemon", False),
        ("weft.engine.wire.messages", "weft.engine.process", False),
        ("weft.engine.state.leases", "weft.exceptions", True),
        ("weft.store.tables", "weft.store.state.chain_rows", True),
        ("weft.engine.state.leases", "weft.store.tables", False),
        ("weft.engine.state.leases", "weft.net.loop", False),
        ("weft.store.server_shell", "weft.net.loop", True),
        ("weft.store.server_shell", "weft.engine.wire.link", False),
        ("weft.store.server_shell", "weft.engine.wire.messages", False),
        ("weft.store.state.chain", "weft.store.journal", False),
        ("weft.net.tls", "weft.store.journal", False),
        ("weft.tune.search", "weft.net.tls", False),
        ("weft.jobs.job_service", "weft.engine.node.operations", True),
        ("weft.jobs.job_service", "weft.local.local_node", False),
        ("weft.engine.node.daemon", "weft.jobs.job_service", True),
        ("weft.inspection.listing", "weft.jobs.job_service", False),
        ("weft.tune.search", "weft.replay.recorded_inputs", False),
    ],
)
def test_the_import_rule_itself_tells_right_from_wrong(importer: str, imported: str, allowed: bool) -> None:
    assert may_import(importer, imported) is allowed
