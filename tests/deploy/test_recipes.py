"""The recipes for containers and conda install what pyproject.toml says, and the extra `all` has every extra."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml", reason="pyyaml is not installed")
ROOT = Path(__file__).resolve().parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text()


def listed(name: str) -> list[str]:
    """The strings of an array of pyproject.toml; Python 3.10 has no reader for it."""
    found = re.search(rf"^{name} = \[(.*?)\]$", PROJECT, re.MULTILINE | re.DOTALL)
    assert found, name
    return re.findall(r'"([^"]+)"', found[1])


def spaced(requirement: str) -> str:
    return re.sub(r"(?=>=)", " ", requirement)


def test_the_extra_all_has_every_extra() -> None:
    table = PROJECT.partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    extras = set(re.findall(r"^([\w-]+) = ", table, re.MULTILINE)) - {"all"}
    named = {extra for entry in listed("all") for extra in re.findall(r"[\w-]+", entry.partition("[")[2])}
    assert len(extras) > 10 and named == extras


def test_the_conda_recipe_needs_what_the_package_needs() -> None:
    recipe = yaml.safe_load(re.sub(r"\$\{\{.*?\}\}", "filled-in", (ROOT / "deploy/conda/recipe.yaml").read_text()))
    version = re.search(r'^version = "(.*)"$', PROJECT, re.MULTILINE)
    assert version and recipe["context"]["version"] == version[1]
    needs = recipe["requirements"]
    assert set(map(spaced, listed("dependencies"))) <= set(needs["run"])
    assert set(map(spaced, listed("requires"))) <= set(needs["host"])
    assert "python >=3.10" in needs["run"] and 'requires-python = ">=3.10"' in PROJECT


def test_the_containers_can_be_read() -> None:
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert container["postCreateCommand"] == "make build"
    stages = re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert len(stages) == 2 and len(set(stages)) == 1
