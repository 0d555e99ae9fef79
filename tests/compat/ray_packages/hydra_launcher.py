# needs: hydra-core hydra-ray-launcher
"""A sweep of Hydra's, each job a task."""

import subprocess
import sys
from pathlib import Path

Path("job.py").write_text(
    "import hydra\n"
    "from omegaconf import DictConfig\n"
    "@hydra.main(version_base=None, config_name=None)\n"
    "def main(config: DictConfig) -> None:\n"
    "    open('result.txt', 'w').write(str(config.number ** 2))\n"
    "main()\n"
)
subprocess.run(
    [sys.executable, "job.py", "--multirun", "hydra/launcher=ray", "+number=2,3", "hydra.sweep.dir=sweep"], check=True
)
assert sorted(path.read_text() for path in Path("sweep").rglob("result.txt")) == ["4", "9"]
