"""Which public names of Ray are there under the alias: the table in `docs/ray-differences.md`.

    python -m weft.compat tests/compat/ray_names.py --repository PATH   look anew: `ray_names.json` and the table
    python -m weft.compat tests/compat/ray_names.py                     check that what is said to be there is

The names are read from a clone of Ray's repository (`__all__`, and what is marked as public), at the commit that
`ray_names.json` names; nothing of its text is kept.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import weft.compat

KNOWN = Path(__file__).with_name("ray_names.json")
PAGE = Path(__file__).parents[2] / "docs" / "ray-differences.md"
BEGIN, END = "<!-- names: made by tests/compat/ray_names.py -->", "<!-- end of names -->"
THERE, MAPPED = "there", "mapped"
MARKS = {"PublicAPI", "DeveloperAPI"}

MODULES = """
ray ray.actor ray.air ray.autoscaler.sdk ray.cluster_utils ray.dag ray.data ray.data.aggregate ray.data.block
ray.data.context ray.data.dataset ray.data.datasource ray.data.grouped_data ray.data.iterator
ray.data.preprocessors ray.exceptions ray.job_config ray.job_submission ray.remote_function ray.rllib
ray.rllib.algorithms ray.runtime_context ray.runtime_env ray.serve ray.serve.config ray.serve.context
ray.serve.exceptions ray.serve.handle ray.serve.metrics ray.serve.schema ray.train
ray.train.huggingface.transformers ray.train.lightgbm ray.train.lightning ray.train.tensorflow ray.train.torch
ray.train.xgboost ray.tune ray.tune.analysis ray.tune.experiment ray.tune.logger ray.tune.result
ray.tune.schedulers ray.tune.search ray.tune.search.basic_variant ray.tune.search.sample ray.tune.stopper
ray.util ray.util.accelerators ray.util.actor_group ray.util.actor_pool ray.util.annotations
ray.util.collective ray.util.dask ray.util.joblib ray.util.metrics ray.util.multiprocessing
ray.util.placement_group ray.util.queue ray.util.scheduling_strategies ray.util.state
""".split()

REASONS = (
    ("ray.data.preprocessors", "weft.data has expressions; scalers and encoders are scikit-learn's"),
    ("ray.data.datasource", "a source of one's own is weft.data.Source"),
    ("ray.data", "weft.data has no counterpart"),
    ("ray.train.tensorflow", "no trainer for TensorFlow"),
    ("ray.train.lightning", "no integration of Lightning"),
    ("ray.train.huggingface", "no integration of Transformers"),
    ("ray.rllib", "an algorithm or a hook of RLlib's own; weft.rl has others"),
    ("ray.serve", "no counterpart in weft.serve"),
    ("ray.tune.logger", "trials report to weft.library.reporting"),
    ("ray.tune", "no counterpart in weft.tune"),
    ("ray.util.collective", "several GPUs of one process, and backends of one's own: torch.distributed has them"),
    ("ray.util.state", "weft.util.state has other views"),
    ("ray.util.accelerators", "devices that Weft does not tell apart"),
    ("ray.util.annotations", "marks of Ray's own documentation"),
)
"""Why a name is not there, by the beginning of its module and name."""


def git(repository: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=repository, check=True, capture_output=True, text=True).stdout


def text_of(repository: Path, commit: str, module: str) -> str:
    """Of the module, or nothing."""
    path = module.replace(".", "/")
    roots = ["python/", ""] if module.startswith("ray.rllib") else ["python/"]
    for root in roots:
        for end in ("/__init__.py", ".py"):
            name = (root + path if root else path.removeprefix("ray/")) + end
            try:
                return git(repository, "show", f"{commit}:{name}")
            except subprocess.CalledProcessError:
                continue
    return ""


def public_names(text: str) -> set[str]:
    """`__all__`, or what is defined there and marked."""
    names: set[str] = set()
    marked: set[str] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign | ast.AugAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == "__all__":
                names |= {part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            used = {part.id for mark in node.decorator_list for part in ast.walk(mark) if isinstance(part, ast.Name)}
            if used & MARKS:
                marked.add(node.name)
    return {name for name in names or marked if not name.startswith("__")}


def found(module: str, name: str) -> Any:
    """What the name stands for under the alias; AttributeError or ImportError."""
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        return importlib.import_module(f"{module}.{name}")


def own_text(module: str) -> str:
    """Of the layer's module of that name."""
    path = Path(weft.compat.__file__).parent / module.replace(".", "/")
    return next((file.read_text() for file in (path / "__init__.py", path.with_suffix(".py")) if file.exists()), "")


def judged(module: str, name: str) -> str:
    """THERE, MAPPED, or why not."""
    try:
        value = found(module, name)
    except (AttributeError, ImportError) as error:
        if isinstance(error, ModuleNotFoundError) and (error.name or "ray").split(".")[0] not in ("ray", "weft"):
            return MAPPED if name in public_names(own_text(module)) else "not yet"  # a package is not installed here
        full = f"{module}.{name}"
        return next((why for start, why in REASONS if full.startswith(start)), "not yet")
    home = str(getattr(value, "__module__", None) or getattr(value, "__name__", ""))
    return MAPPED if home.startswith("weft.compat") else THERE


def table(known: dict[str, dict[str, str]], commit: str) -> str:
    lines = [BEGIN, "", f"Ray's repository at {commit[:12]}.", "", "| module | there | mapped | not there, and why |"]
    lines.append("|---|---|---|---|")
    for module, names in known.items():
        missing: dict[str, list[str]] = {}
        for name, state in names.items():
            if state not in (THERE, MAPPED):
                missing.setdefault(state, []).append(f"`{name}`")
        why = "; ".join(f"{', '.join(sorted(group))}: {reason}" for reason, group in missing.items())
        counts = [sum(state == kind for state in names.values()) for kind in (THERE, MAPPED)]
        lines.append(f"| `{module}` | {counts[0]} | {counts[1]} | {why} |")
    states = [state for names in known.values() for state in names.values()]
    here = sum(state in (THERE, MAPPED) for state in states)
    return "\n".join([*lines, "", f"{here} of {len(states)} names are there or mapped.", END])


def look(repository: Path) -> None:
    commit = git(repository, "rev-parse", "HEAD").strip()
    known = {}
    for module in MODULES:
        names = public_names(text_of(repository, commit, module))
        if names:
            known[module] = {name: judged(module, name) for name in sorted(names)}
    KNOWN.write_text(json.dumps({"commit": commit, "names": known}, indent=1) + "\n")
    page = PAGE.read_text()
    begin, end = page.index(BEGIN), page.index(END) + len(END)
    PAGE.write_text(page[:begin] + table(known, commit) + page[end:])


def check() -> list[str]:
    """What is said to be there and is not; a page that does not say what is known."""
    kept = json.loads(KNOWN.read_text())
    wrong = [
        f"{module}.{name}"
        for module, names in kept["names"].items()
        for name, state in names.items()
        if state in (THERE, MAPPED) and judged(module, name) not in (THERE, MAPPED)
    ]
    return wrong if table(kept["names"], kept["commit"]) in PAGE.read_text() else [*wrong, "the table on the page"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", type=Path, help="a clone of Ray's repository")
    options = parser.parse_args()
    if options.repository is not None:
        look(options.repository)
    wrong = check()
    if wrong:
        print(f"not there: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
