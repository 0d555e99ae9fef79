# needs: fugue
"""A function over a data frame, by Fugue's engine on Ray."""

import fugue.api as fa
import pandas as pd
import ray


def scaled(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(scaled=frame.value - frame.value.mean())


ray.init(num_cpus=2)
frame = pd.DataFrame({"key": ["a", "b", "a", "b"], "value": [1.0, 2.0, 3.0, 6.0]})
result = fa.transform(frame, scaled, schema="*,scaled:double", partition={"by": "key"}, engine="ray", as_local=True)
result = fa.as_pandas(result).sort_values(["key", "value"])
assert result.scaled.tolist() == [-1.0, 1.0, -2.0, 2.0]
