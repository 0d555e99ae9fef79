"""Tuning a small JAX network: two interleaved half moons, ASHA over learning rate, width and momentum.

python examples/tune_jax.py
"""

import numpy as np

from weft import tune
from weft.tune.schedulers import ASHAScheduler


def half_moons(count, seed):
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, np.pi, count)
    label = rng.integers(0, 2, count)
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    points[label == 1] = [1, 0.5] - points[label == 1]
    return points + rng.normal(0, 0.15, points.shape), label


def train(config):
    import jax
    import jax.numpy as jnp

    points, labels = half_moons(500, seed=0)
    test_points, test_labels = half_moons(500, seed=1)
    keys = jax.random.split(jax.random.PRNGKey(0), 2)
    params = {
        "w1": jax.random.normal(keys[0], (2, config["width"])),
        "b1": jnp.zeros(config["width"]),
        "w2": jax.random.normal(keys[1], (config["width"],)) * 0.1,
        "b2": 0.0,
    }

    def logits(params, x):
        return jnp.tanh(x @ params["w1"] + params["b1"]) @ params["w2"] + params["b2"]

    def loss(params):
        z = logits(params, points)
        return jnp.mean(jnp.maximum(z, 0) - z * labels + jnp.log1p(jnp.exp(-jnp.abs(z))))

    @jax.jit
    def epoch(params, velocity):
        def step(_, state):
            params, velocity = state
            slope = jax.grad(loss)(params)
            velocity = jax.tree.map(lambda v, s: config["momentum"] * v - config["lr"] * s, velocity, slope)
            return jax.tree.map(jnp.add, params, velocity), velocity

        return jax.lax.fori_loop(0, 20, step, (params, velocity))

    velocity = jax.tree.map(jnp.zeros_like, params)
    while True:
        params, velocity = epoch(params, velocity)
        accuracy = jnp.mean((logits(params, test_points) > 0) == test_labels)
        tune.report(accuracy=float(accuracy), loss=float(loss(params)))


def main(num_samples=20, epochs=27, storage_path=None):
    tuner = tune.Tuner(
        train,
        param_space={
            "lr": tune.loguniform(1e-2, 1),
            "width": tune.choice([8, 16, 32]),
            "momentum": tune.uniform(0.5, 0.95),
        },
        tune_config=tune.TuneConfig(
            metric="accuracy",
            mode="max",
            num_samples=num_samples,
            scheduler=ASHAScheduler(max_t=epochs, grace_period=2, reduction_factor=3),
            seed=0,
        ),
        run_config=tune.RunConfig(storage_path=storage_path),
    )
    grid = tuner.fit()
    best = grid.get_best_result()
    print(f"{len(grid)} trials; the best has accuracy {best.metrics['accuracy']:.3f} with {best.config}")
    return grid


if __name__ == "__main__":
    main()
