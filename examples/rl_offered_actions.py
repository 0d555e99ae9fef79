"""Actions that are offered: a different number in each step, each described by a vector, scored by an own network.

python examples/rl_offered_actions.py
"""

import flax.linen as nn
import gymnasium
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from weft.rl import PPO


class Market(gymnasium.Env):
    """Each step offers two to five goods, each a vector; the one most like what is wanted earns most."""

    observation_space = spaces.Dict(
        {
            "wanted": spaces.Box(-1.0, 1.0, (3,), np.float32),
            "offers": spaces.Box(-1.0, 1.0, (5, 3), np.float32),
            "action_mask": spaces.MultiBinary(5),
        }
    )
    action_space = spaces.Discrete(5)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.show(), {}

    def step(self, action):
        self.time += 1
        reward = float(self.seen["offers"][action] @ self.seen["wanted"])
        return self.show(), reward, self.time == 10, False, {}

    def show(self):
        count = self.np_random.integers(2, 6)
        goods = self.np_random.uniform(-1, 1, (6, 3)).astype(np.float32)
        goods[1 + count :] = 0
        mask = (np.arange(5) < count).astype(np.int8)
        self.seen = {"wanted": goods[0], "offers": goods[1:], "action_mask": mask}
        return self.seen


class Chooser(nn.Module):
    """Scores each offer by itself, however many there are, and gives the value too: no heads are added."""

    @nn.compact
    def __call__(self, seen):
        wanted = nn.Dense(16)(seen["wanted"])
        scores = jnp.einsum("nk,nok->no", wanted, nn.Dense(16)(seen["offers"]))
        return scores, nn.Dense(1)(nn.tanh(nn.Dense(16)(seen["wanted"])))


def main(iterations=15):
    with PPO(env=Market, network=Chooser(), gamma=0.0, learning_rate=1e-2, seed=1) as algo:
        rewards = [algo.train()["episode_reward_mean"] for _ in range(iterations)]
    print(f"reward of ten choices: {rewards[0]:.1f} at first, {rewards[-1]:.1f} after {iterations} iterations")
    return rewards


if __name__ == "__main__":
    main()
