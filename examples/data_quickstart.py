"""Datasets in ten lines: files in, a question asked of all cores, batches out for training.

python examples/data_quickstart.py
"""

import tempfile

from weft import data


def main():
    with tempfile.TemporaryDirectory() as folder:
        data.range(100_000).map_batches(make_trips).write_parquet(folder)

        trips = data.read_parquet(folder).filter(data.col("fare") > 0)
        by_city = trips.groupby("city").agg(fare=["mean", "max"]).sort("city")
        print(by_city.to_pandas())

        scaled = trips.with_column("scaled", data.col("fare") / 100).select("scaled", "minutes")
        for batch in scaled.iter_batches(batch_size=4096):
            print(f"{len(batch['scaled'])} rows, mean fare {100 * batch['scaled'].mean():.2f}")
            break
        return by_city.take_all()


def make_trips(batch):
    number = batch["id"]
    return {"city": number % 5, "fare": (number * 7919 % 1000) / 10.0, "minutes": number % 60}


if __name__ == "__main__":
    main()
