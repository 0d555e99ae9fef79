"""weft.data beside pandas, Polars, Dask and Ray Data, on the same Parquet files, each in a process of its own.

    python benchmarks/data.py FOLDER [--scale 0.1] [--rounds 3] [--cases sort,join] [--engines weft,polars]
        [--other-python PYTHON_WITH_PANDAS_POLARS_DASK] [--ray-python PYTHON_WITH_RAY_DATA]

A case's time is from the files to its result, the best of the rounds; starting and importing do not count. Sorts and
shuffles end with all rows in memory or in the arena.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CASES = ("scan", "scan_wide", "group", "group_many", "join", "sort", "shuffle")
ENGINES = ("weft", "polars", "pandas", "dask", "ray")
FAILED: dict[str, Any] = {"seconds": [float("nan")], "cpu_seconds": [float("nan")]}
Cases = dict[str, Callable[[], Any]]
ITEM_COLUMNS = ["l_returnflag", "l_linestatus", "l_quantity", "l_extendedprice", "l_discount"]


def weft_cases(folder: Path) -> Cases:
    import weft
    from weft import data

    weft.init(num_cpus=2)
    col = data.col
    items, telemetry = data.read_parquet(str(folder / "lineitem")), data.read_parquet(str(folder / "telemetry"))
    orders = data.read_parquet(str(folder / "orders"))
    sold = items.with_column("revenue", col("l_extendedprice") * (1 - col("l_discount")))
    return {
        "scan": lambda: (
            items.filter((col("l_discount") >= 0.05) & (col("l_quantity") < 24))
            .with_column("r", col("l_extendedprice") * col("l_discount"))
            .sum("r")
        ),
        "scan_wide": lambda: telemetry.filter(col("level") < 10).mean("temperature"),
        "group": lambda: (
            sold.groupby("l_returnflag", "l_linestatus")
            .agg(l_quantity="sum", revenue="sum", l_discount="mean", l_extendedprice="max")
            .to_pandas()
        ),
        "group_many": lambda: telemetry.groupby("device").agg(temperature=["mean", "max"], pressure="sum").to_pandas(),
        "join": lambda: (
            sold.join(orders, "l_orderkey", right_on="o_orderkey")
            .groupby("o_orderpriority")
            .agg(revenue="sum")
            .to_pandas()
        ),
        "sort": lambda: items.sort("l_extendedprice").materialize(),
        "shuffle": lambda: items.random_shuffle(seed=1).materialize(),
    }


def polars_cases(folder: Path) -> Cases:
    import polars as pl

    col = pl.col
    items, telemetry = pl.scan_parquet(folder / "lineitem"), pl.scan_parquet(folder / "telemetry")
    orders = pl.scan_parquet(folder / "orders")
    sold = items.with_columns(revenue=col("l_extendedprice") * (1 - col("l_discount")))

    def run(frame: Any) -> Any:
        return frame.collect(engine="streaming")

    return {
        "scan": lambda: run(
            items.filter((col("l_discount") >= 0.05) & (col("l_quantity") < 24)).select(
                (col("l_extendedprice") * col("l_discount")).sum()
            )
        ),
        "scan_wide": lambda: run(telemetry.filter(col("level") < 10).select(col("temperature").mean())),
        "group": lambda: run(
            sold.group_by("l_returnflag", "l_linestatus").agg(
                col("l_quantity").sum(), col("revenue").sum(), col("l_discount").mean(), col("l_extendedprice").max()
            )
        ),
        "group_many": lambda: run(
            telemetry.group_by("device").agg(
                col("temperature").mean(), col("temperature").max().alias("most"), col("pressure").sum()
            )
        ),
        "join": lambda: run(
            sold.join(orders, left_on="l_orderkey", right_on="o_orderkey")
            .group_by("o_orderpriority")
            .agg(col("revenue").sum())
        ),
        "sort": lambda: run(items.sort("l_extendedprice")),
        "shuffle": lambda: run(items).sample(fraction=1.0, shuffle=True, seed=1),
    }


def frame_cases(read: Callable[..., Any], run: Callable[[Any], Any], shuffle: Callable[[Any], Any]) -> Cases:
    """pandas and Dask share their words."""

    def scan() -> Any:
        items = read("lineitem", ["l_discount", "l_quantity", "l_extendedprice"])
        items = items[(items.l_discount >= 0.05) & (items.l_quantity < 24)]
        return run((items.l_extendedprice * items.l_discount).sum())

    def scan_wide() -> Any:
        rows = read("telemetry", ["level", "temperature"])
        return run(rows[rows.level < 10].temperature.mean())

    def group() -> Any:
        items = read("lineitem", ITEM_COLUMNS)
        items = items.assign(revenue=items.l_extendedprice * (1 - items.l_discount))
        wanted = {"l_quantity": "sum", "revenue": "sum", "l_discount": "mean", "l_extendedprice": "max"}
        return run(items.groupby(["l_returnflag", "l_linestatus"]).agg(wanted))

    def group_many() -> Any:
        rows = read("telemetry", ["device", "temperature", "pressure"])
        return run(rows.groupby("device").agg({"temperature": ["mean", "max"], "pressure": "sum"}))

    def join() -> Any:
        items = read("lineitem", ["l_orderkey", "l_extendedprice", "l_discount"])
        items = items.assign(revenue=items.l_extendedprice * (1 - items.l_discount))
        orders = read("orders", ["o_orderkey", "o_orderpriority"])
        joined = items.merge(orders, left_on="l_orderkey", right_on="o_orderkey")
        return run(joined.groupby("o_orderpriority").revenue.sum())

    return {
        "scan": scan,
        "scan_wide": scan_wide,
        "group": group,
        "group_many": group_many,
        "join": join,
        "sort": lambda: run(read("lineitem", None).sort_values("l_extendedprice")),
        "shuffle": lambda: run(shuffle(read("lineitem", None))),
    }


def pandas_cases(folder: Path) -> Cases:
    import pandas as pd

    return frame_cases(
        lambda name, columns: pd.read_parquet(folder / name, columns=columns),
        lambda result: result,
        lambda frame: frame.sample(frac=1.0, random_state=1),
    )


def dask_cases(folder: Path) -> Cases:
    import dask.dataframe as dd

    def shuffled(frame: Any) -> Any:
        mixed = frame.map_partitions(lambda part: part.assign(place=part.l_extendedprice.sample(frac=1.0).to_numpy()))
        return mixed.shuffle("place").map_partitions(lambda part: part.sample(frac=1.0))

    return frame_cases(
        lambda name, columns: dd.read_parquet(folder / name, columns=columns), lambda result: result.compute(), shuffled
    )


def ray_cases(folder: Path) -> Cases:
    import ray
    from ray import data
    from ray.data.aggregate import Max, Mean, Sum

    ray.init(num_cpus=2, logging_level="error", log_to_driver=False)
    data.DataContext.get_current().enable_progress_bars = False

    def read(name: str, columns: list[str] | None = None) -> Any:
        return data.read_parquet(str(folder / name), columns=columns)

    def revenue(batch: Any) -> Any:
        return batch.assign(revenue=batch.l_extendedprice * (1 - batch.l_discount))

    def kept(batch: Any) -> Any:
        batch = batch[(batch.l_discount >= 0.05) & (batch.l_quantity < 24)]
        return batch.assign(r=batch.l_extendedprice * batch.l_discount)

    def group() -> Any:
        items = read("lineitem", ITEM_COLUMNS).map_batches(revenue, batch_format="pandas")
        wanted = [Sum("l_quantity"), Sum("revenue"), Mean("l_discount"), Max("l_extendedprice")]
        return items.groupby(["l_returnflag", "l_linestatus"]).aggregate(*wanted).take_all()

    def join() -> Any:
        items = read("lineitem", ["l_orderkey", "l_extendedprice", "l_discount"])
        items = items.map_batches(revenue, batch_format="pandas")
        orders = read("orders", ["o_orderkey", "o_orderpriority"])
        joined = items.join(orders, "inner", 2, on=("l_orderkey",), right_on=("o_orderkey",))
        return joined.groupby("o_orderpriority").sum("revenue").take_all()

    columns = ["l_discount", "l_quantity", "l_extendedprice"]
    rows = ["device", "temperature", "pressure"]
    return {
        "scan": lambda: read("lineitem", columns).map_batches(kept, batch_format="pandas").sum("r"),
        "scan_wide": lambda: (
            read("telemetry", ["level", "temperature"])
            .map_batches(lambda batch: batch[batch.level < 10], batch_format="pandas")
            .mean("temperature")
        ),
        "group": group,
        "group_many": lambda: (
            read("telemetry", rows)
            .groupby("device")
            .aggregate(Mean("temperature"), Max("temperature"), Sum("pressure"))
            .take_all()
        ),
        "join": join,
        "sort": lambda: read("lineitem").sort("l_extendedprice").materialize(),
        "shuffle": lambda: read("lineitem").random_shuffle(seed=1).materialize(),
    }


def measure(engine: str, names: list[str], folder: Path, rounds: int) -> dict[str, dict[str, list[float]]]:
    """By case; in a process of its own."""
    cases: Cases = globals()[f"{engine}_cases"](folder)
    if engine in ("weft", "ray"):
        cases["scan"]()  # workers import what they need
    return {name: times(cases[name], rounds) for name in names}


def times(run: Callable[[], Any], rounds: int) -> dict[str, list[float]]:
    seconds, cpu_seconds = [], []
    for _ in range(rounds):
        begun, cpu_begun = time.perf_counter(), cpu_time_s()
        result = run()
        seconds.append(time.perf_counter() - begun)
        cpu_seconds.append(cpu_time_s() - cpu_begun)
        del result
    return {"seconds": seconds, "cpu_seconds": cpu_seconds}


def cpu_time_s() -> float:
    """Of this process and all below it that live, which tells more than the clock where others use the cores too."""
    import psutil

    total = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def run_child(options: argparse.Namespace, folder: Path, engine: str, case: str) -> dict[str, Any] | None:
    python = {"weft": sys.executable, "ray": options.ray_python}.get(engine, options.other_python)
    if python is None:
        return None
    command = [python, __file__, str(folder), "--child", engine, case, "--rounds", str(options.rounds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout_s)
    except subprocess.TimeoutExpired:
        return {"seconds": [float("inf")], "cpu_seconds": [float("inf")]}
    for line in reversed(done.stdout.splitlines()):
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)[case]
            return found
    print(f"{engine} failed at {case}: {done.stderr[-800:]}", file=sys.stderr)
    return FAILED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--other-python")
    parser.add_argument("--ray-python")
    parser.add_argument("--timeout-s", type=float, default=300)
    parser.add_argument("--child", nargs=2, metavar=("ENGINE", "CASES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        engine, names = options.child
        print("\n" + json.dumps(measure(engine, names.split(","), options.folder, options.rounds)), flush=True)
        return
    from data_sets import generate

    folder = generate(options.folder, options.scale)
    engines = options.engines.split(",")
    others = ", ".join(engines[1:])
    print("| case | " + " | ".join(engines) + f" | times weft's: {others} | of CPU time |")
    print("|---" * (len(engines) + 3) + "|")
    for case in options.cases.split(","):
        found = [run_child(options, folder, engine, case) or FAILED for engine in engines]
        best = [min(one["seconds"]) for one in found]
        cpu = [min(one["cpu_seconds"]) for one in found]
        shown = " | ".join(f"{wall:.2f} s, {work:.2f} s CPU" for wall, work in zip(best, cpu, strict=True))
        ratios = [", ".join(f"{one / figures[0]:.2f}" for one in figures[1:]) for figures in (best, cpu)]
        print(f"| {case} | {shown} | {ratios[0]} | {ratios[1]} |", flush=True)


if __name__ == "__main__":
    main()
