"""`evaluate_policy`, as Stable-Baselines3 has it: the mean and the spread of the rewards of whole episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from weft.library.settings import SettingError
from weft.rl import environments
from weft.rl.policy import Policy

if TYPE_CHECKING:
    from weft.rl.algorithm import Algorithm


@overload
def evaluate_policy(
    model: Algorithm[Any] | Policy,
    env: Any = None,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    *,
    return_episode_rewards: Literal[False] = False,
) -> tuple[float, float]: ...


@overload
def evaluate_policy(
    model: Algorithm[Any] | Policy,
    env: Any = None,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    *,
    return_episode_rewards: Literal[True],
) -> tuple[list[float], list[int]]: ...


def evaluate_policy(
    model: Algorithm[Any] | Policy,
    env: Any = None,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    *,
    return_episode_rewards: bool = False,
) -> Any:
    """(mean, standard deviation) of the rewards of whole episodes; or their rewards and lengths.

    `env` is an environment, or what makes one; None is the algorithm's own. Policies with a memory begin each episode
    anew.

    >>> from weft.rl import PPO
    >>> with PPO("CartPole-v1", fragment_steps=32, seed=1) as model:
    ...     mean, spread = evaluate_policy(model, n_eval_episodes=2)
    >>> mean >= 8.0
    True
    """
    policy = model if isinstance(model, Policy) else model.policy
    is_given = hasattr(env, "step") and not isinstance(env, type)
    if is_given:
        world = env
    elif env is not None:
        world = environments.make(env, {})
    elif isinstance(model, Policy):
        raise SettingError("a policy has no environment of its own: give evaluate_policy the environment, too")
    else:
        world = environments.make(model.env, model.config.env_config, model.config.episode_limit)
    try:
        episodes = [_episode(policy, world, deterministic) for _ in range(n_eval_episodes)]
    finally:
        if not is_given:
            world.close()
    rewards, lengths = [reward for reward, _ in episodes], [length for _, length in episodes]
    if return_episode_rewards:
        return rewards, lengths
    return float(np.mean(rewards)), float(np.std(rewards))


def _episode(policy: Policy, env: Any, deterministic: bool) -> tuple[float, int]:
    if not hasattr(env, "action_space") or hasattr(env, "num_envs") or hasattr(env, "possible_agents"):
        raise SettingError(f"evaluate_policy plays single environments, but got {env}; use the algorithm's evaluate()")
    observation, _ = env.reset()
    policy.reset()
    reward, length, is_over = 0.0, 0, False
    while not is_over:
        observation, earned, terminated, truncated, _ = env.step(policy.act(observation, explore=not deterministic))
        reward, length, is_over = reward + float(earned), length + 1, bool(terminated or truncated)
    return reward, length
