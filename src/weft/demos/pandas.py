"""`weft demo pandas`: pandas on all cores; only the import line is different."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import weft.pandas
from weft.demos import Options
from weft.demos.story import chapter, say, session

pd: Any = weft.pandas  # every name of pandas


def main(options: Options) -> None:
    rows = 20_000 if options.short else 1_000_000
    random = np.random.default_rng(0)
    with session(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trips.csv"
        with chapter(f"A CSV file of {rows:,} rows"):
            frame = pd.DataFrame({"city": random.integers(0, 5, rows), "fare": random.normal(20, 5, rows).round(2)})
            frame.to_csv(path, index=False)
            say(f"{path.stat().st_size / 2**20:.1f} MiB")
        with chapter("read_csv, in parallel"):
            trips = pd.read_csv(path)
        with chapter("groupby, merge"):
            print(trips.groupby("city").fare.agg(["mean", "max"]))
            names = pd.DataFrame({"city": range(5), "name": ["Aix", "Bern", "Cork", "Delft", "Essen"]})
            print(trips.merge(names, on="city").groupby("name").fare.mean())
        with chapter("Where it was done, and why"):
            print(pd.explain(trips))
