"""XGBoost and LightGBM in their own distributed modes, scikit-learn through joblib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from weft import train

ROWS = 400


def table(share: slice) -> tuple[Any, Any]:
    inputs = np.random.default_rng(0).normal(size=(ROWS, 4))
    targets = 3 * inputs[:, 0] + (inputs[:, 1] > 0)
    return inputs[share], targets[share]


def error_of(predictions: Any) -> float:
    return float(np.abs(predictions - table(slice(None))[1]).mean())


def test_xgboost_trains_one_model_on_the_rows_of_all_workers(weft_session: Any, tmp_path: Path) -> None:
    parameters = {"max_depth": 3, "nthread": 1, "objective": "reg:squarederror", "base_score": 0.0}

    def loop() -> None:
        import xgboost

        context = train.get_context()
        inputs, targets = table(context.share(ROWS))
        booster = xgboost.train(parameters, xgboost.DMatrix(inputs, targets), num_boost_round=15)
        train.report({"trees": booster.num_boosted_rounds()}, checkpoint={"model": bytes(booster.save_raw())})

    import xgboost

    result = train.Trainer(loop, workers=2, backend="xgboost", storage_path=tmp_path).fit()
    assert result.checkpoint is not None
    together, alone = xgboost.Booster(), table(slice(0, ROWS))
    together.load_model(bytearray(result.checkpoint.to_dict()["model"]))
    whole = xgboost.train(parameters, xgboost.DMatrix(*alone), num_boost_round=15)
    errors = [error_of(booster.predict(xgboost.DMatrix(alone[0]))) for booster in (together, whole)]
    assert errors[0] < 1.2 * errors[1]  # their histograms' sketches differ a little


def test_lightgbm_trains_one_model_on_the_rows_of_all_workers(weft_session: Any, tmp_path: Path) -> None:
    parameters = {"objective": "regression", "num_leaves": 8, "num_threads": 1, "verbosity": -1, "tree_learner": "data"}

    def loop() -> None:
        import lightgbm

        context = train.get_context()
        dataset = lightgbm.Dataset(*table(context.share(ROWS)))
        booster = lightgbm.train({**parameters, **train.lightgbm_network()}, dataset, num_boost_round=30)
        train.report({"trees": booster.num_trees()}, checkpoint={"model": booster.model_to_string()})

    import lightgbm

    result = train.Trainer(loop, workers=2, backend="lightgbm", storage_path=tmp_path).fit()
    assert result.metrics == {"trees": 30}
    assert result.checkpoint is not None
    together = lightgbm.Booster(model_str=result.checkpoint.to_dict()["model"])
    inputs, targets = table(slice(0, ROWS))
    whole = lightgbm.train(parameters, lightgbm.Dataset(inputs, targets), num_boost_round=30)
    assert error_of(together.predict(inputs)) < 1.3 * error_of(whole.predict(inputs))


def test_scikit_learn_searches_through_joblib(weft_session: Any) -> None:
    import joblib
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV

    from weft.util.joblib import register_weft

    register_weft()
    with joblib.parallel_backend("weft", n_jobs=2):
        search = GridSearchCV(Ridge(), {"alpha": [1e-3, 1e3]}, cv=2).fit(*table(slice(0, ROWS)))
    assert search.best_params_ == {"alpha": 1e-3}
