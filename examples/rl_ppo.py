"""Train PPO on CartPole with two rollout workers, save it, and act with the result.

python examples/rl_ppo.py
"""

import tempfile

import gymnasium

from weft.rl import PPO


def main(iterations=40):
    with PPO(env="CartPole-v1", workers=2, seed=1) as algo, tempfile.TemporaryDirectory() as folder:
        for _ in range(iterations):
            result = algo.train()
            print(f"{result['timesteps_total']:7d} steps  reward {result['episode_reward_mean']:.0f}")
            if result["episode_reward_mean"] >= 475:
                break
        policy = PPO.load_policy(algo.save(folder))

    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    done, reward = False, 0.0
    while not done:
        observation, step_reward, terminated, truncated, _ = env.step(policy.act(observation))
        done, reward = terminated or truncated, reward + float(step_reward)
    print(f"one episode of the trained policy: {reward:.0f}")
    return reward


if __name__ == "__main__":
    main()
