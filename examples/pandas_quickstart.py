"""pandas on all cores: one import line is different.

python examples/pandas_quickstart.py
"""

import tempfile
from pathlib import Path

import numpy as np

import weft.pandas as pd


def main(rows=600_000):
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trips.csv"
        trips = pd.DataFrame({"city": random.integers(0, 5, rows), "fare": random.normal(20, 5, rows).round(2)})
        trips.to_csv(path, index=False)

        trips = pd.read_csv(path)
        by_city = trips.groupby("city").fare.agg(["mean", "max"])
        print(by_city)

        names = pd.DataFrame({"city": range(5), "name": ["Aix", "Bern", "Cork", "Delft", "Essen"]})
        print(trips.merge(names, on="city").groupby("name").fare.mean())
        print(pd.explain(trips))
        return by_city


if __name__ == "__main__":
    main()
