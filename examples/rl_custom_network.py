"""Your own networks and your own loss in weft.rl: a Flax module, and plain JAX functions.

python examples/rl_custom_network.py
"""

import flax.linen as nn
import jax
import jax.numpy as jnp

from weft.rl import DQN, PPO
from weft.rl.algorithms import ppo


class Residual(nn.Module):
    """A Flax module that gives features; the algorithm puts its heads on them."""

    width: int = 32

    @nn.compact
    def __call__(self, observations):
        hidden = nn.tanh(nn.Dense(self.width)(observations))
        return hidden + nn.tanh(nn.Dense(self.width)(nn.LayerNorm()(hidden)))


def init(key, observations):
    """Plain JAX: any tree of arrays will do for parameters."""
    first, second = jax.random.split(key)
    width = observations.shape[-1]
    return {"in": 0.5 * jax.random.normal(first, (width, 32)), "out": 0.1 * jax.random.normal(second, (32, 32))}


def apply(params, observations):
    return nn.relu(nn.relu(observations @ params["in"]) @ params["out"])


def calm_loss(model, config, evaluate):
    """PPO's own loss, and a price on large logits."""
    original = ppo.make_loss(model, config, evaluate)

    def loss(params, minibatch):
        total, said = original(params, minibatch)
        inputs, _ = evaluate(params, minibatch)
        size = jnp.mean(inputs**2)
        return total + 1e-3 * size, {**said, "logit_size": size}

    return loss


def main(iterations=15):
    rewards = {}
    runs = {
        "Flax module and own loss": PPO(env="CartPole-v1", network=Residual(), make_loss=calm_loss, seed=1),
        "plain JAX functions": DQN(env="CartPole-v1", network=(init, apply), learning_starts=500, seed=1),
    }
    for name, algo in runs.items():
        with algo:
            for _ in range(iterations):
                result = algo.train()
        rewards[name] = result["episode_reward_mean"]
        print(f"{name}: reward {rewards[name]:.1f} after {result['timesteps_total']} steps")
    return rewards


if __name__ == "__main__":
    main()
