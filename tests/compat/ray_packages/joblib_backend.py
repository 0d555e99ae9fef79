# needs: joblib scikit-learn
"""A grid search of scikit-learn's, by joblib's backend on Ray."""

import joblib
import numpy as np
import ray
from ray.util.joblib import register_ray
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

ray.init(num_cpus=2)
register_ray()
with joblib.parallel_backend("ray", n_jobs=2):
    squares = joblib.Parallel()(joblib.delayed(np.square)(number) for number in range(50))
    digits = load_digits()
    search = GridSearchCV(SVC(), {"C": [0.1, 1, 10], "gamma": [1e-3, 1e-2]}, cv=3)
    search.fit(digits.data[:400], digits.target[:400])
assert [int(square) for square in squares] == [number**2 for number in range(50)]
assert search.best_params_["gamma"] == 1e-3 and search.best_score_ > 0.9
