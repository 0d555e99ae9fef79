# needs: datatrove[processing] orjson loguru regex
"""A text pipeline whose ranks are tasks."""

from pathlib import Path

import ray
from datatrove.data import Document
from datatrove.executor.ray import RayPipelineExecutor
from datatrove.pipeline.filters import LambdaFilter
from datatrove.pipeline.writers import JsonlWriter

ray.init(num_cpus=2)
documents = [Document(text="word " * number, id=str(number)) for number in range(20)]


def source(data, rank: int = 0, world_size: int = 1):
    yield from documents[rank::world_size]


executor = RayPipelineExecutor(
    pipeline=[source, LambdaFilter(lambda document: len(document.text) > 50), JsonlWriter("out", compression=None)],
    tasks=2,
    workers=2,
    logging_dir="logs",
    mem_per_cpu_gb=1,
)
executor.run()
lines = sum(len(path.read_text().splitlines()) for path in Path("out").iterdir())
assert lines == 9, lines
