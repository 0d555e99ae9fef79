"""Feeding a torch loop from Parquet files: `iter_torch_batches` beside torch's DataLoader with as many workers.

    python benchmarks/data_torch.py FOLDER [--scale 0.1] [--rounds 3]

Four columns of telemetry, batches of 4,096 rows as float32 tensors. The loader's workers read row groups with pyarrow
and give whole batches, which is the fastest way to use it. The loop adds up one column.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import torch
from data_sets import generate
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import weft
from weft import data

COLUMNS = ["temperature", "pressure", "humidity", "voltage"]
BATCH_ROWS = 4096
WORKERS = 2


class ParquetBatches(IterableDataset):  # type: ignore[type-arg, misc]
    def __init__(self, folder: Path) -> None:
        self._files = sorted(folder.glob("*.parquet"))

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        worker = get_worker_info()
        groups = [(file, number) for file in self._files for number in range(pq.read_metadata(file).num_row_groups)]
        for file, number in groups[worker.id :: worker.num_workers]:
            table = pq.ParquetFile(file).read_row_group(number, columns=COLUMNS, use_threads=False)
            for at in range(0, table.num_rows, BATCH_ROWS):
                piece = table.slice(at, BATCH_ROWS)
                yield {
                    name: torch.from_numpy(piece.column(name).to_numpy().copy()).to(torch.float32) for name in COLUMNS
                }


def consume(batches: Iterable[Any]) -> tuple[int, float]:
    """(rows, rows per second)."""
    begun, rows, total = time.perf_counter(), 0, 0.0
    for batch in batches:
        rows += len(batch["temperature"])
        total += float(batch["temperature"].sum())
    return rows, rows / (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    folder = generate(options.folder, options.scale) / "telemetry"
    weft.init(num_cpus=WORKERS)
    ds = data.read_parquet(str(folder)).select(*COLUMNS)
    loader = DataLoader(ParquetBatches(folder), batch_size=None, num_workers=WORKERS, prefetch_factor=8)
    ds.limit(10).take()  # workers import what they need
    figures: dict[str, list[float]] = {"weft.data": [], "DataLoader": []}
    for _ in range(options.rounds):
        for name, batches in (
            ("weft.data", ds.iter_torch_batches(batch_size=BATCH_ROWS, dtypes=torch.float32)),
            ("DataLoader", loader),
        ):
            rows, rate = consume(batches)
            assert rows == ds.count()
            figures[name].append(rate)
    for name, rates in figures.items():
        print(f"{name}: best {max(rates):,.0f}, median {statistics.median(rates):,.0f} rows/s")
    print(f"weft.data has {max(figures['weft.data']) / max(figures['DataLoader']):.2f} times the loader's best rate")
    weft.shutdown()


if __name__ == "__main__":
    main()
