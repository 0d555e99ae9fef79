"""The program of 2018, word for word: a function with a reporter, a class with _setup and _train, run_experiments.

python examples/tune_2018.py
"""

import pickle

import weft
from weft import tune


def my_func(config, reporter):
    accuracy = 0.0
    for step in range(1, 1_000):
        accuracy += config["alpha"] + config["beta"]
        reporter(timesteps_total=step, mean_accuracy=accuracy)


class MyModel(tune.Trainable):
    def _setup(self, config):
        self.accuracy = 0.0

    def _train(self):
        self.accuracy += self.config["alpha"]
        return {"mean_accuracy": self.accuracy}

    def _save(self, checkpoint_dir):
        path = f"{checkpoint_dir}/model"
        with open(path, "wb") as file:
            pickle.dump(self.accuracy, file)
        return path

    def _restore(self, path):
        with open(path, "rb") as file:
            self.accuracy = pickle.load(file)


def main():
    weft.init(num_cpus=2)
    trials = tune.run_experiments(
        {
            "my_experiment": {
                "run": my_func,
                "stop": {"mean_accuracy": 100},
                "config": {"alpha": tune.grid_search([0.2, 0.4, 0.6]), "beta": tune.grid_search([1, 2])},
            },
            "my_model": {
                "run": MyModel,
                "stop": {"mean_accuracy": 10},
                "checkpoint_freq": 5,
                "trial_resources": {"cpu": 1},
                "config": {"alpha": tune.grid_search([0.5, 1.0])},
            },
        }
    )
    for trial in trials:
        print(trial, trial.status, trial.last_result["training_iteration"])
    weft.shutdown()


if __name__ == "__main__":
    main()
