# needs: modin
"""Modin's own engine on Ray."""

import os

os.environ["MODIN_ENGINE"] = "ray"
os.environ["MODIN_CPUS"] = "2"
import modin.pandas as pd
import numpy as np
import ray

ray.init(num_cpus=2)
frame = pd.DataFrame({"key": np.arange(2000) % 7, "value": np.arange(2000.0)})
assert frame.value.sum() == np.arange(2000.0).sum()
assert frame.groupby("key").value.sum().sum() == np.arange(2000.0).sum()
assert (frame.value.apply(lambda value: value + 1) - frame.value).eq(1).all()
merged = frame.merge(pd.DataFrame({"key": [0, 1], "name": ["a", "b"]}), on="key")
assert sorted(merged.name.unique()) == ["a", "b"]
