"""`weft demo data`: rows made, written as Parquet, grouped on all cores, and read in batches for training."""

from __future__ import annotations

import tempfile
import time
from typing import Any

from weft import data
from weft.demos import Options
from weft.demos.story import chapter, say, session


def make_trips(batch: dict[str, Any]) -> dict[str, Any]:
    number = batch["id"]
    return {"city": number % 5, "fare": (number * 7919 % 1000) / 10.0, "minutes": number % 60}


def main(options: Options) -> None:
    rows = 50_000 if options.short else 2_000_000
    with session(), tempfile.TemporaryDirectory() as folder:
        with chapter(f"{rows:,} trips, made in parallel and written as Parquet"):
            data.range(rows).map_batches(make_trips).write_parquet(folder)
        trips = data.read_parquet(folder).filter(data.col("fare") > 50)
        with chapter("Fares over 50, by city: only the columns and rows that are needed are read"):
            for row in trips.groupby("city").agg(fare=["mean", "max"]).sort("city").take_all():
                say("  ".join(f"{name} {value:.2f}" for name, value in row.items()))
        with chapter("The same rows as batches, for training"):
            began_s, seen = time.perf_counter(), 0
            for batch in trips.select("fare", "minutes").iter_batches(batch_size=4096):
                seen += len(batch["fare"])
            say(f"{seen:,} rows, {seen / (time.perf_counter() - began_s):,.0f} a second")
