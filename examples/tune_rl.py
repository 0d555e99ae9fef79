"""Tuning a weft.rl algorithm by name: two learning rates of PPO on CartPole, each trial with a rollout worker.

python examples/tune_rl.py --iterations 20
"""

import argparse

import weft
from weft import tune


def main(iterations=20, storage_path=None):
    trials = tune.run_experiments(
        {
            "cartpole": {
                "run": "PPO",
                "env": "CartPole-v1",
                "stop": {"training_iteration": iterations},
                "config": {"num_workers": 1, "lr": tune.grid_search([1e-4, 1e-3])},
                "storage_path": storage_path,
            }
        }
    )
    for trial in trials:
        print(trial, trial.status, f"{trial.last_result['episode_reward_mean']:.1f}")
    return trials


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=20)
    weft.init()
    main(parser.parse_args().iterations)
    weft.shutdown()
