"""Operations of weft.data on telemetry that is several times the arena: do they work, how long do they take?

    python benchmarks/data_larger.py FOLDER [--scale 1] [--files 25] [--times 5] [--operations scan,sort]

FOLDER is that of benchmarks/data.py. The arena is made as small as `--times` says. What comes out is checked against
what Polars says of the same files, and is not kept.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
from data_sets import generate

import weft
from weft import data

OPERATIONS = ("scan", "group", "join", "sort", "shuffle")


def sum_of(ds: data.Dataset, column: str) -> tuple[int, int]:
    """(rows, sum of a column of whole numbers), block by block."""
    rows = total = 0
    for batch in ds.iter_batches(batch_size=None, batch_format="arrow"):
        rows += batch.num_rows
        total += int(pl.from_arrow(batch.column(column)).sum() or 0)  # type: ignore[union-attr]
    return rows, total


def sorted_sum(ds: data.Dataset, key: str, column: str) -> tuple[int, int]:
    rows, total, last = 0, 0, float("-inf")
    for batch in ds.iter_batches(batch_size=None, batch_format="polars"):
        assert batch[key].is_sorted() and batch[key][0] >= last
        rows, total, last = rows + batch.height, total + int(batch[column].sum()), batch[key][-1]
    return rows, total


def operations(files: list[str]) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Of each: what weft.data does, and what Polars says that must come out."""
    telemetry, scanned = data.read_parquet(files), pl.scan_parquet(files)

    def all_rows() -> tuple[int, int]:
        return scanned.select(pl.len(), pl.col("counter").sum()).collect(engine="streaming").row(0)  # type: ignore[return-value]

    other = telemetry.select("time", (data.col("counter") * 2).alias("twice"))
    kept = data.col("level") < 10
    return {
        "scan": (
            lambda: telemetry.filter(kept).sum("counter"),
            lambda: scanned.filter(kept).select(pl.col("counter").sum()).collect(engine="streaming").item(),
        ),
        "group": (
            lambda: sum_of(telemetry.groupby("time").agg(counter="max"), "counter_max"),
            all_rows,
        ),
        "join": (
            lambda: sum_of(telemetry.join(other, "time"), "twice"),
            lambda: (all_rows()[0], 2 * all_rows()[1]),
        ),
        "sort": (lambda: sorted_sum(telemetry.sort("temperature"), "temperature", "counter"), all_rows),
        "shuffle": (lambda: sum_of(telemetry.random_shuffle(seed=1), "counter"), all_rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--files", type=int, default=25)
    parser.add_argument("--times", type=float, default=5.0)
    parser.add_argument("--operations", default=",".join(OPERATIONS))
    options = parser.parse_args()
    folder = generate(options.folder, options.scale) / "telemetry"
    files = [str(path) for path in sorted(folder.glob("*.parquet"))[: options.files]]
    first = pq.read_table(files[0])
    total_bytes = first.nbytes // first.num_rows * sum(pq.read_metadata(file).num_rows for file in files)
    arena_bytes = int(total_bytes / options.times)
    print(f"{total_bytes / 2**20:,.0f} MiB of rows, an arena of {arena_bytes / 2**20:,.0f} MiB", flush=True)
    weft.init(num_cpus=2, object_store_memory=arena_bytes)
    for name in options.operations.split(","):
        run, expected = operations(files)[name]
        begun = time.perf_counter()
        found = run()
        took = time.perf_counter() - begun
        print(f"{name}: {took:.1f} s, {'right' if found == expected() else 'WRONG'}", flush=True)
    weft.shutdown()


if __name__ == "__main__":
    main()
