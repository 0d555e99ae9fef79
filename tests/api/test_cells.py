"""What a notebook's user sees, in a real kernel; and what an error says that nobody caught."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from typing import Any

import pytest

CELLS = [
    "import numpy as np\nimport weft\ncontext = weft.init(num_cpus=1)",
    "@weft.remote\ndef told(x):\n    print('told', x)\n    return 2 * x\nweft.get(told.remote(4))",
    "[weft.get(told.remote(x)) for x in range(2)]",
    "@weft.remote\ndef fails(x):\n    return 1 / x  # here\nweft.get(fails.remote(0))",
    "array = weft.get(weft.put(np.ones(100_000)))\narray[0] = 2",
    "weft.shutdown()",
    "1 / 0",
]
RUN = """
    import sys, json, nbclient, nbformat
    cells = [nbformat.v4.new_code_cell(source) for source in json.load(sys.stdin)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(notebook, allow_errors=True, timeout=120).execute()
    print(json.dumps([cell.outputs for cell in cells]))
"""


@pytest.fixture(scope="module")
def outputs() -> list[str]:
    """What each cell shows, without colours."""
    import json

    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(RUN)],
        input=json.dumps(CELLS),
        capture_output=True,
        text=True,
        check=True,
    )
    return [re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(map(_text, cell))) for cell in json.loads(done.stdout)]


def _text(output: dict[str, Any]) -> str:
    if output["output_type"] == "error":
        return "\n".join(output["traceback"])
    return output.get("text") or "".join(output["data"]["text/plain"])


def test_what_workers_print_is_in_the_cell_that_made_them(outputs: list[str]) -> None:
    assert re.search(r"\(told pid=\d+\) told 4", outputs[1])
    assert re.search(r"told 0(.|\n)*told 1", outputs[2])


def test_a_traceback_has_the_users_frames_alone_and_the_line_that_failed(outputs: list[str]) -> None:
    assert "/weft/" not in outputs[3]
    assert "----> 4 weft.get(fails.remote(0))" in outputs[3]
    assert re.search(r'File ".*", line 3, in fails\n    return 1 / x  # here\nZeroDivisionError', outputs[3])
    assert outputs[3].startswith("-") and "TaskError(ZeroDivisionError)" in outputs[3]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors have notes from Python 3.11 on")
def test_a_write_to_a_shared_array_says_what_to_do(outputs: list[str]) -> None:
    assert "weft.get(ref, writable=True)" in outputs[4]
    program = "import weft, numpy\nweft.init(num_cpus=1)\nweft.get(weft.put(numpy.ones(100_000)))[0] = 2"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ValueError: assignment destination is read-only\nArrays that a task is given or gets" in done.stderr


def test_after_the_session_all_is_as_it_was(outputs: list[str]) -> None:
    assert outputs[5] == "" and "ZeroDivisionError" in outputs[6] and "weft" not in outputs[6]
