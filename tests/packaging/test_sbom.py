"""The bill of materials names what is installed, what needs what, and the files of others that are carried along."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).resolve().parents[2] / "deploy/sbom.py"


def bill() -> Any:
    spec = importlib.util.spec_from_file_location("sbom", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.bill()


def test_it_has_every_requirement_with_its_version_and_all_that_is_carried_along() -> None:
    made = bill()
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.5")
    rows = {row["name"]: row for row in made["components"]}
    for name in ("cloudpickle", "msgspec", "numpy"):
        assert rows[name]["purl"] == f"pkg:pypi/{name}@{importlib.metadata.version(name)}"
    assert len(rows["echarts.min.js"]["hashes"][0]["content"]) == 64
    refs = {row["bom-ref"] for row in (*made["components"], made["metadata"]["component"])}
    assert len(refs) == len(made["components"]) + 1
    needs = {row["ref"]: row["dependsOn"] for row in made["dependencies"]}
    assert refs.issuperset(ref for row in needs.values() for ref in row)
    assert rows["msgspec"]["bom-ref"] in needs[made["metadata"]["component"]["bom-ref"]]
