"""Simulate, train and serve in one program: the loop that Weft was made for. `weft demo`, about two minutes.

Two simulation actors balance poles, a learner improves the policy after every round, the policy is served from the
first moment on, and a player asks the served policy for its every move, over and over, while training goes on. What it
plays is learned from as well. On the way one of the simulation actors is killed.
"""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import time

import gymnasium

from weft import serve
from weft.demos import Options, chart
from weft.demos.live_ppo import LivePPO
from weft.demos.story import chapter, duration, say, session

TRAIN_S, SHORT_S = 60.0, 4.0
TOLD_EVERY_S = 5.0
KILL_AFTER = 0.25  # of the time, so that it is still learning
GOAL = 475.0
GAMES = 10


@dataclasses.dataclass
class Course:
    """How the run went: points of (seconds, reward), and when the worker was killed."""

    simulated: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    live: list[tuple[float, float]] = dataclasses.field(default_factory=list)
    killed_at_s: float | None = None
    solved_at_s: float | None = None


def main(options: Options) -> None:
    began_s = time.perf_counter()
    with session():
        course = play(SHORT_S if options.short else TRAIN_S)
    series = {"simulated": course.simulated, "live, against the served policy": course.live}
    series = {name: points for name, points in series.items() if points}
    print(f"\nReward of an episode over {course.simulated[-1][0]:.0f} s (500 is the most there is):\n")
    print(chart.sketch(series))
    killed = {} if course.killed_at_s is None else {"a worker is killed": course.killed_at_s}
    options.plot.write_text(
        chart.lines(series, "One program: simulate, train, serve", "seconds", "reward", marks=killed)
    )
    print(f"\nThe plot is in {options.plot}. The whole took {duration(time.perf_counter() - began_s)}.")


def play(seconds: float) -> Course:
    with chapter("Starting: two simulation actors, a learner, and a policy that knows nothing yet"):
        algorithm = LivePPO(env="CartPole-v1", workers=2, envs_per_worker=4, seed=1)
        policy = serve_policy(algorithm)
        algorithm.play_against(policy)
        say("the policy is served, and a player asks it for every move in four games at once")
    try:
        with chapter(f"Training for {seconds:.0f} s while it serves"):
            course = train(algorithm, seconds)
        if course.solved_at_s is not None:
            say(f"the simulated episodes reached {GOAL:.0f} after {duration(course.solved_at_s)}")
        with chapter(f"The served policy plays {GAMES} games at once, now without trying things out"):
            rewards = games(policy, GAMES)
            say(f"rewards, of 500: {', '.join(f'{reward:.0f}' for reward in rewards)}")
    finally:
        algorithm.stop()
        serve.shutdown()
    return course


def train(algorithm: LivePPO, seconds: float) -> Course:
    """Train, give every new policy to the server, kill a worker on the way."""
    course = Course()
    algorithm.train()  # compiles the learner's update
    began_s = told_s = time.perf_counter()
    while (now_s := time.perf_counter() - began_s) < seconds or algorithm.live_steps == 0:
        if course.killed_at_s is None and now_s > seconds * KILL_AFTER:
            course.killed_at_s = now_s
            kill_a_worker(algorithm)
        result = algorithm.train()
        serve_policy(algorithm)
        now_s = time.perf_counter() - began_s
        reward = float(result["episode_reward_mean"])
        if math.isfinite(reward):
            course.simulated.append((now_s, reward))
        if algorithm.live_rewards:
            course.live.append((now_s, sum(algorithm.live_rewards) / len(algorithm.live_rewards)))
        if course.solved_at_s is None and reward >= GOAL:
            course.solved_at_s = now_s
        if time.perf_counter() - told_s > TOLD_EVERY_S:
            told_s = time.perf_counter()
            tell(algorithm, reward)
    say(f"{algorithm.live_episodes} live episodes and {algorithm.live_steps:,} live steps were learned from")
    say(f"workers replaced after a death: {algorithm.workers.restarted}")
    return course


def serve_policy(algorithm: LivePPO) -> serve.DeploymentHandle:
    """Serve the policy as it is now; where it is served already, the replica gets its new weights without a pause."""
    application = serve.policy_app(algorithm.policy, actor_options={"num_cpus": 0})
    return serve.run(application, name="cartpole", route_prefix=None)


def kill_a_worker(algorithm: LivePPO) -> None:
    process = int(algorithm.workers.statistics()[0]["pid"])
    os.kill(process, signal.SIGKILL)
    say(f"killed simulation actor 0 (process {process}) with SIGKILL; another takes its place")


def tell(algorithm: LivePPO, reward: float) -> None:
    live = algorithm.live_rewards
    served = f"{sum(live) / len(live):3.0f} live" if live else "none played live yet"
    say(f"{algorithm.metrics.timesteps:9,} steps: reward {reward:3.0f} simulated, {served}")


def games(policy: serve.DeploymentHandle, count: int) -> list[float]:
    """Rewards of games played side by side, each move asked of the served policy."""
    environments = [gymnasium.make("CartPole-v1") for _ in range(count)]
    observations = {number: game.reset(seed=number)[0] for number, game in enumerate(environments)}
    rewards = [0.0] * count
    while observations:
        asked = {number: policy.remote(observation) for number, observation in observations.items()}
        for number, answer in asked.items():
            observations[number], gained, terminated, truncated, _ = environments[number].step(answer.result())
            rewards[number] += float(gained)
            if terminated or truncated:
                del observations[number]
                environments[number].close()
    return rewards
