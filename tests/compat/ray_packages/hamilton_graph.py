# needs: sf-hamilton
"""A dataflow whose functions are tasks."""

import importlib
import sys
from pathlib import Path

import pandas as pd
import ray
from hamilton import base, driver
from hamilton.plugins import h_ray

Path("spend_functions.py").write_text(
    "import pandas as pd\n"
    "def average(spend: pd.Series) -> pd.Series:\n    return spend.rolling(3).mean()\n"
    "def per_signup(spend: pd.Series, signups: pd.Series) -> pd.Series:\n    return spend / signups\n"
)
sys.path.insert(0, "")
spend_functions = importlib.import_module("spend_functions")

ray.init(num_cpus=2)
adapter = h_ray.RayGraphAdapter(result_builder=base.PandasDataFrameResult())
inputs = {"spend": pd.Series([10.0, 10, 20, 40]), "signups": pd.Series([1, 10, 50, 100])}
result = driver.Driver(inputs, spend_functions, adapter=adapter).execute(["average", "per_signup"])
assert result["per_signup"].tolist() == [10.0, 1.0, 0.4, 0.4]
