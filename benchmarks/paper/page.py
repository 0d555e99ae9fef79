"""Makes docs/paper.md of what the scripts here have measured.

python benchmarks/paper/page.py
"""

from __future__ import annotations

import json
from pathlib import Path

from reproduction import HERE, RESULTS, shown

ORDER = (
    "locality scaling objects chain flushing fault_tasks fault_actors all_reduce parameter_server serving simulation "
    "evolution proximal"
).split()
PAGE = HERE.parent.parent / "docs" / "paper.md"
OPENING = """# The Ray paper's evaluation, on Weft

Made by `make paper`; do not edit. Each section is one figure or table of Moritz et al., *Ray: A Distributed Framework
for Emerging AI Applications* (OSDI 2018), measured again by one script in `benchmarks/paper/`. The paper's machines
were clusters of AWS instances; what is here is one machine, so a number of ours beside one of theirs shows an order
of magnitude and a shape, not a race. Where the paper draws a curve and gives no number, the table says so. A section
says how busy the machine was: figures from a busy one are not to be quoted.
"""


def write_page() -> Path:
    sections = []
    for name in ORDER:
        path = RESULTS / f"{name}.json"
        sections.append(shown(json.loads(path.read_text())) if path.exists() else f"## {name}\n\nNot measured yet.\n")
    PAGE.write_text("\n".join([OPENING, *sections]))
    return PAGE


if __name__ == "__main__":
    print(write_page())
