"""`weft rl train`, `weft rl watch` and `weft rl settings`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from weft.library.settings import SettingError, documentation
from weft.rl.curve import draw

TRAIN_EXAMPLES = """examples:
  weft rl train --env CartPole-v1 --algo PPO
  weft rl train --env Pendulum-v1 --algo SAC --timesteps 30000 --seed 1
  weft rl train --env my_module:make_env --algo PPO --workers 2 --set learning_rate=1e-3 --set hidden=[64,64]
  weft rl train --env CartPole-v1 --algo PPO --reward 475 --checkpoint cartpole --tensorboard logs
  weft rl train --resume cartpole --timesteps 500000
"""
WATCH_EXAMPLES = """examples:
  weft rl watch cartpole                      pictures in the terminal
  weft rl watch cartpole --video cartpole.gif
  weft rl watch taxi --mode ansi --fps 4
"""


def add(parser: argparse.ArgumentParser) -> None:
    """The commands, each with the function that runs it as `command`."""
    parser.description = "Train policies by reinforcement learning, and watch them. docs/rl says more."
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_train(commands)
    _add_watch(commands)
    settings = commands.add_parser(
        "settings",
        help="what an algorithm can be told, with defaults",
        description="Prints every setting of an algorithm: its type, its default and what it does.",
    )
    settings.add_argument("algo", metavar="ALGO", help="its name, such as PPO; `weft rl settings all` lists them")
    settings.set_defaults(command=_settings)


def _add_train(commands: Any) -> None:
    train = commands.add_parser(
        "train",
        help="train an algorithm in an environment, with its curve at the terminal",
        description="Train until a reward, a number of steps or Ctrl-C, and save.",
        epilog=TRAIN_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    train.add_argument("--env", metavar="ENV", help="a Gymnasium id, module:name of a class or function, or envpool:ID")
    train.add_argument("--algo", metavar="ALGO", default="PPO", help="its name (default: PPO)")
    train.add_argument("--workers", type=int, metavar="N", help="rollout worker processes (default: the algorithm's)")
    train.add_argument("--seed", type=int, metavar="N", help="makes the run repeatable")
    train.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        dest="settings",
        help="a setting of the algorithm; may be given again (`weft rl settings ALGO` lists them)",
    )
    train.add_argument("--reward", type=float, metavar="R", help="stop when the mean reward of episodes reaches it")
    train.add_argument("--timesteps", type=int, metavar="N", help="stop after so many steps")
    train.add_argument("--iterations", type=int, metavar="N", help="stop after so many iterations")
    train.add_argument("--checkpoint", metavar="DIR", help="save here when training ends, also by Ctrl-C")
    train.add_argument("--resume", metavar="DIR", help="go on from this checkpoint")
    train.add_argument("--tensorboard", metavar="DIR", help="write event files for TensorBoard here")
    train.add_argument("--plain", action="store_true", help="a line an iteration instead of the curve")
    train.set_defaults(command=_train)


def _add_watch(commands: Any) -> None:
    watch = commands.add_parser(
        "watch",
        help="play episodes of a checkpoint's policy and show them",
        description="Show in the terminal, or record, what a checkpoint's policy does.",
        epilog=WATCH_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    watch.add_argument("checkpoint", metavar="DIR", help="what `weft rl train --checkpoint` or algo.save() wrote")
    watch.add_argument("--env", metavar="ENV", help="another environment than the checkpoint's")
    watch.add_argument("--episodes", type=int, default=1, metavar="N", help="how many (default: 1)")
    watch.add_argument("--mode", choices=("rgb_array", "ansi"), help="how to render (default: what there is)")
    watch.add_argument("--video", metavar="FILE", help="write a .gif (with Pillow) or a .mp4 (with ffmpeg) instead")
    watch.add_argument("--fps", type=int, default=30, metavar="N", help="pictures a second (default: 30)")
    watch.add_argument("--seed", type=int, default=0, metavar="N", help="of the first episode (default: 0)")
    watch.add_argument("--explore", action="store_true", help="act as in training")
    watch.set_defaults(command=_watch)


def _train(options: argparse.Namespace) -> int:
    from weft.rl import get_algorithm, load

    _search_here()
    settings = parsed_settings(options.settings)
    for name in ("workers", "seed", "tensorboard", "env"):
        if getattr(options, name) is not None:
            settings[name] = getattr(options, name)
    if options.resume is None and options.env is None:
        raise SettingError("say in which environment: --env CartPole-v1, or go on from a checkpoint with --resume DIR")
    algorithm = load(options.resume, **settings) if options.resume else get_algorithm(options.algo)(**settings)
    screen = Screen(f"{algorithm.name} on {settings.get('env', options.resume)}", options.plain)
    with algorithm:
        interrupted = False
        try:
            _iterate(algorithm, options, screen)
        except KeyboardInterrupt:
            interrupted = True
        screen.end()
        if options.checkpoint:
            folder = algorithm.save(options.checkpoint)
            print(f"saved to {folder}; `weft rl watch {options.checkpoint}` shows the policy")
    return 130 if interrupted and not options.checkpoint else 0


def _iterate(algorithm: Any, options: argparse.Namespace, screen: Screen) -> None:
    while True:
        result = algorithm.train()
        screen.show(result)
        if options.reward is not None and result["episode_reward_mean"] >= options.reward:
            return
        if options.timesteps is not None and result["timesteps_total"] >= options.timesteps:
            return
        if options.iterations is not None and result["training_iteration"] >= options.iterations:
            return


def _watch(options: argparse.Namespace) -> int:
    from weft.rl import Policy, video
    from weft.rl.checkpoint import read_state

    _search_here()
    config = read_state(options.checkpoint)["config"]
    env = options.env or config["env"]
    policy = Policy.from_checkpoint(options.checkpoint, **({"env": options.env} if options.env else {}))
    mode = "rgb_array" if options.video else options.mode or video.mode_of(env, config["env_config"])
    player = video.Player(policy, env, config["env_config"], mode, options.seed, options.explore)
    if options.video:
        count = video.write_video(options.video, player.scenes(options.episodes), options.fps)
        print(f"{count} pictures in {options.video}")
    else:
        _show(player, options, mode)
    for episode, reward in enumerate(player.rewards):
        print(f"episode {episode}: reward {reward:g}")
    return 0


def _show(player: Any, options: argparse.Namespace, mode: str) -> None:
    from weft.rl.video import blocks

    is_terminal = sys.stdout.isatty()
    columns = min(80, shutil.get_terminal_size().columns)
    for scene in player.scenes(options.episodes):
        shown = blocks(scene, columns) if mode == "rgb_array" else str(scene)
        if is_terminal:
            print(f"\x1b[H\x1b[J{shown}", flush=True)
            time.sleep(1 / options.fps)
        elif mode == "ansi":  # pictures in half blocks are nothing for a file
            print(shown)


def _settings(options: argparse.Namespace) -> int:
    from weft.rl import get_algorithm
    from weft.rl.registry import algorithm_names

    if options.algo == "all":
        print("\n".join(algorithm_names()))
    else:
        print(documentation(get_algorithm(options.algo).config_class))
    return 0


class Screen:
    """The progress of a run: at a terminal a curve that is drawn anew each time, else a line an iteration."""

    def __init__(self, title: str, plain: bool) -> None:
        self._title = title
        self._is_live = sys.stdout.isatty() and not plain
        self._points: list[tuple[float, float]] = []
        self._lines = 0

    def show(self, result: Mapping[str, Any]) -> None:
        self._points.append((float(result["timesteps_total"]), float(result["episode_reward_mean"])))
        rate = result["timesteps_this_iter"] / max(result["time_this_iter_s"], 1e-9)
        line = (
            f"{result['timesteps_total']:>9} steps  reward {result['episode_reward_mean']:8.1f}  "
            f"episodes {result['episodes_total']:>6}  {rate:8.0f} steps/s  {result['time_total_s']:6.1f} s"
        )
        if not self._is_live:
            print(line, flush=True)
            return
        width = max(20, min(100, shutil.get_terminal_size().columns - 12))
        text = f"{self._title}: mean reward of episodes\n{draw(self._points, width, 12)}\n{line}"
        up = f"\x1b[{self._lines}F\x1b[J" if self._lines else ""
        print(f"{up}{text}", flush=True)
        self._lines = text.count("\n") + 1

    def end(self) -> None:
        self._lines = 0


def parsed_settings(given: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE pairs; a value is JSON, or else text.

    >>> parsed_settings(["hidden=[64, 64]", "learning_rate=1e-3", "memory=lstm", "target_kl=null"])
    {'hidden': [64, 64], 'learning_rate': 0.001, 'memory': 'lstm', 'target_kl': None}
    """
    settings: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise SettingError(f"a setting is NAME=VALUE, but got {pair!r}")
        try:
            settings[name] = json.loads(value)
        except ValueError:
            settings[name] = value
    return settings


def _search_here() -> None:
    """Environments named module:name may be in the working directory."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
