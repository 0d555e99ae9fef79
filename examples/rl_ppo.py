"""Train PPO on CartPole with two rollout workers, save it, and act with the result."""

import tempfile

import gymnasium

from weft.rl import PPO

with PPO(env="CartPole-v1", workers=2, seed=1) as algo:
    for _ in range(40):
        result = algo.train()
        print(f"{result['timesteps_total']:7d} steps  reward {result['episode_reward_mean']:.0f}")
        if result["episode_reward_mean"] >= 475:
            break
    checkpoint = algo.save(tempfile.mkdtemp())

policy = PPO.load_policy(checkpoint)
env = gymnasium.make("CartPole-v1")
observation, _ = env.reset(seed=0)
done, reward = False, 0.0
while not done:
    observation, step_reward, terminated, truncated, _ = env.step(policy.act(observation))
    done, reward = terminated or truncated, reward + float(step_reward)
print(f"one episode of the trained policy: {reward:.0f}")
