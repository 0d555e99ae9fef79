# needs: daft
"""A query by Daft's runner on Ray."""

import daft
import ray

ray.init(num_cpus=2)
daft.set_runner_ray()
frame = daft.from_pydict({"key": ["a", "b", "a"], "value": [1, 2, 3]})
result = frame.groupby("key").agg(daft.col("value").sum()).sort("key").to_pydict()
assert result == {"key": ["a", "b"], "value": [4, 2]}, result
