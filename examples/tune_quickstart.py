"""Tuning in ten lines: a training function, a space, the best result.

python examples/tune_quickstart.py
"""

from weft import tune


def train(config):
    accuracy = 0.0
    for _ in range(20):
        accuracy += config["alpha"] * (100 - accuracy) * 0.1 + config["beta"] * 0.1
        tune.report(mean_accuracy=accuracy)


def main():
    tuner = tune.Tuner(
        train,
        param_space={"alpha": tune.grid_search([0.2, 0.4, 0.6]), "beta": tune.uniform(1, 2)},
        tune_config=tune.TuneConfig(metric="mean_accuracy", mode="max", num_samples=4, scheduler="asha"),
    )
    results = tuner.fit()
    best = results.get_best_result()
    print(f"{len(results)} trials; the best has alpha={best.config['alpha']}: {best.metrics['mean_accuracy']:.1f}")


if __name__ == "__main__":
    main()
