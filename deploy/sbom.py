"""A bill of materials of Weft, as CycloneDX 1.5: what it needs, as it is installed here, and what it carries along.

    python deploy/sbom.py [--output build/sbom.json]

Reads the metadata of the installed packages, of all extras that are there; nothing is fetched. `make sbom` runs it.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
VENDORED = ROOT / "src/weft/dashboard/static/vendor"
NAME = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)")


def canonical(name: str) -> str:
    """
    >>> canonical("Typing_Extensions")
    'typing-extensions'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(name: str) -> set[str]:
    """The packages that one names, whichever extra or marker they are under."""
    found = importlib.metadata.requires(name) or []
    return {canonical(match.group(1)) for text in found if (match := NAME.match(text)) is not None}


def installed(root: str) -> dict[str, set[str]]:
    """All packages below it that are installed here, each with those of them that it needs."""
    needs: dict[str, set[str]] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name in needs:
            continue
        try:
            needs[name] = requirements(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        waiting += needs[name]
    return {name: needed & needs.keys() for name, needed in needs.items()}


def component(name: str) -> dict[str, Any]:
    found = importlib.metadata.distribution(name)
    version = found.version
    row: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
    }
    text = found.metadata.get("License-Expression") or found.metadata.get("License") or ""
    if text and len(text) < 100:
        row["licenses"] = [{"license": {"name": text}}]
    return row


def carried() -> list[dict[str, Any]]:
    """Files of others that are part of the package."""
    return [
        {
            "type": "file",
            "bom-ref": f"file:{path.relative_to(ROOT)}",
            "name": path.name,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(path.read_bytes()).hexdigest()}],
        }
        for path in sorted(VENDORED.iterdir())
        if path.suffix in (".js", ".css")
    ]


def bill() -> dict[str, Any]:
    needs = installed("weft")
    refs = {name: component(name)["bom-ref"] for name in needs}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**component("weft"), "type": "application"}},
        "components": [*(component(name) for name in sorted(needs) if name != "weft"), *carried()],
        "dependencies": [
            {"ref": refs[name], "dependsOn": sorted(refs[other] for other in needs[name])} for name in sorted(needs)
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="a file; standard output without it")
    options = parser.parse_args()
    text = json.dumps(bill(), indent=2) + "\n"
    if options.output is None:
        sys.stdout.write(text)
    else:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text)
        print(f"{options.output}: {text.count('purl')} packages")


if __name__ == "__main__":
    main()
