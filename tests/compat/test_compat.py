"""`import ray` finds Weft where it was asked to, in the driver and in workers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
import ray
from ray.util import ActorPool
import ray.exceptions

@ray.remote
def where():
    import ray
    import ray.util.queue
    return ray.__name__, ray.is_initialized()

ray.init(num_cpus=1)
print(ray.__name__, ActorPool.__module__, ray.get(where.remote()), sys.argv[1:])
try:
    import ray.no_such_module
except ModuleNotFoundError as error:
    print("missing:", error.name)
"""


def test_a_script_for_ray_runs_with_the_alias(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "weft.compat", str(script), "--flag"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "weft weft.util.actor_pool ('weft', True) ['--flag']" in done.stdout
    assert "missing: ray.no_such_module" in done.stdout


def test_the_alias_leaves_weft_as_it_is() -> None:
    code = (
        "import weft, weft.compat; before = weft.__spec__; weft.compat.install_as_ray(); import ray, ray.util; "
        "assert ray is weft and ray.util is weft.util and weft.__spec__ is before and weft.util.__name__ == 'weft.util'"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_real_ray_that_was_imported_before_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "ray.py").write_text("")
    code = "import ray, weft.compat; weft.compat.install_as_ray()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "ray is imported already" in done.stderr
