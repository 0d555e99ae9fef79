# needs: dask[array,dataframe]
"""Dask's collections, computed by Ray's scheduler for them."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import ray
from ray.util.dask import disable_dask_on_ray, enable_dask_on_ray, ray_dask_get

ray.init(num_cpus=2)
array = da.from_array(np.arange(10_000.0).reshape(100, 100), chunks=(25, 25))
assert float((array + array.T).sum().compute(scheduler=ray_dask_get)) == 2 * np.arange(10_000.0).sum()
enable_dask_on_ray()
frame = dd.from_pandas(pd.DataFrame({"key": [1, 2, 1, 2], "value": [1, 2, 3, 4]}), npartitions=2)
assert frame.groupby("key").value.sum().compute().to_dict() == {1: 4, 2: 6}
kept = array.persist()
assert float(kept.mean().compute()) == np.arange(10_000.0).mean()


@dask.delayed
def double(value):
    return 2 * value


assert dask.compute(double(3), double(4)) == (6, 8)
disable_dask_on_ray()
