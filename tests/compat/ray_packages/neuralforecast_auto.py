# needs: neuralforecast
"""A search over models with Ray's Tune."""

import numpy as np
import pandas as pd
import ray
from neuralforecast import NeuralForecast
from neuralforecast.auto import AutoMLP
from ray import tune

ray.init(num_cpus=2)
frame = pd.DataFrame(
    {"unique_id": "a", "ds": pd.date_range("2020-01-01", periods=120, freq="D"), "y": np.sin(np.arange(120) / 5)}
)
config = {"input_size": 14, "max_steps": 5, "learning_rate": tune.loguniform(1e-4, 1e-2), "random_seed": 1}
model = AutoMLP(h=7, config=config, num_samples=2, cpus=1, gpus=0)
forecast = NeuralForecast(models=[model], freq="D")
forecast.fit(frame, val_size=14)
assert len(forecast.predict()) == 7
