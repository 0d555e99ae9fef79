"""The sets of benchmarks/data.py: tables shaped like TPC-H's, and ten columns of telemetry, as Parquet files.

    python benchmarks/data_sets.py FOLDER [--scale 1.0]

Scale 1 is 6 million line items, 1.5 million orders and 50 million rows of telemetry, 3 GB in all.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS_A_FILE = 2_000_000
ROWS_A_GROUP = 250_000


def choices(random: np.random.Generator, rows: int, values: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(random.integers(0, len(values), rows), values).cast(pa.string())


def days(random: np.random.Generator, rows: int) -> pa.Array:
    return pa.array(random.integers(8036, 10591, rows).astype("int32")).cast(pa.date32())


def lineitem(random: np.random.Generator, first: int, rows: int, orders: int) -> pa.Table:
    return pa.table(
        {
            "l_orderkey": random.integers(0, orders, rows),
            "l_partkey": random.integers(0, orders // 7 + 1, rows),
            "l_suppkey": random.integers(0, orders // 150 + 1, rows),
            "l_quantity": random.integers(1, 51, rows).astype(float),
            "l_extendedprice": (random.random(rows) * 100_000).round(2),
            "l_discount": random.integers(0, 11, rows) / 100,
            "l_tax": random.integers(0, 9, rows) / 100,
            "l_returnflag": choices(random, rows, ["A", "N", "R"]),
            "l_linestatus": choices(random, rows, ["F", "O"]),
            "l_shipdate": days(random, rows),
            "l_shipmode": choices(random, rows, ["AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"]),
            "l_comment": pa.array([f"about item {number}" for number in random.integers(0, 10**6, rows)]),
        }
    )


def order(random: np.random.Generator, first: int, rows: int, orders: int) -> pa.Table:
    return pa.table(
        {
            "o_orderkey": np.arange(first, first + rows),
            "o_custkey": random.integers(0, orders // 10 + 1, rows),
            "o_totalprice": (random.random(rows) * 400_000).round(2),
            "o_orderdate": days(random, rows),
            "o_orderpriority": choices(random, rows, ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]),
            "o_clerk": pa.array([f"Clerk#{number:09d}" for number in random.integers(0, 1000, rows)]),
        }
    )


def telemetry(random: np.random.Generator, first: int, rows: int, orders: int) -> pa.Table:
    return pa.table(
        {
            "time": pa.array(np.arange(first, first + rows) * 1000, pa.timestamp("us")),
            "device": random.integers(0, 10_000, rows).astype("int32"),
            "kind": choices(random, rows, [f"sensor-{number}" for number in range(8)]),
            "temperature": random.normal(20, 5, rows),
            "pressure": random.normal(1000, 10, rows),
            "humidity": random.random(rows).astype("float32"),
            "counter": random.integers(0, 1 << 40, rows),
            "level": random.integers(0, 100, rows).astype("int16"),
            "alarm": random.random(rows) < 0.1,
            "voltage": random.normal(3.3, 0.1, rows).astype("float32"),
        }
    )


def write(folder: Path, name: str, make: object, rows: int, orders: int) -> None:
    target = folder / name
    if target.exists():
        return
    target.mkdir(parents=True)
    for number, first in enumerate(range(0, rows, ROWS_A_FILE)):
        count = min(ROWS_A_FILE, rows - first)
        table = make(np.random.default_rng(number), first, count, orders)  # type: ignore[operator]
        pq.write_table(table, target / f"{number:03d}.parquet", row_group_size=ROWS_A_GROUP)


def generate(folder: Path, scale: float) -> Path:
    made = folder / f"scale-{scale:g}"
    orders = int(1_500_000 * scale)
    write(made, "lineitem", lineitem, int(6_000_000 * scale), orders)
    write(made, "orders", order, orders, orders)
    write(made, "telemetry", telemetry, int(50_000_000 * scale), orders)
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    print(generate(options.folder, options.scale))
