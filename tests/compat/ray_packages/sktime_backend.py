# needs: sktime
"""Forecasters of several series, fitted by sktime's backend on Ray."""

import ray
from sktime.datasets import load_airline
from sktime.forecasting.model_evaluation import evaluate
from sktime.forecasting.naive import NaiveForecaster
from sktime.split import ExpandingWindowSplitter

ray.init(num_cpus=2)
splitter = ExpandingWindowSplitter(initial_window=72, step_length=24, fh=[1, 2, 3])
results = evaluate(
    forecaster=NaiveForecaster(strategy="last"),
    y=load_airline(),
    cv=splitter,
    backend="ray",
    backend_params={"ray_remote_args": {"num_cpus": 1}, "shutdown_ray": False},
)
assert len(results) == 3 and results.iloc[:, 0].notna().all()
