"""Episodes of a policy as pictures: for the terminal, or as a video file.

Pictures are what an environment renders in its mode "rgb_array": arrays [height, width, 3] of uint8.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.rl import environments

FRAMES_PER_SECOND = 30


class CannotRender(RuntimeError):
    """The environment has no pictures, or there is no program to write them."""


class Player:
    """Plays episodes of a policy in an environment that renders; `scenes` are what it shows, step by step."""

    def __init__(
        self, policy: Any, env: Any, env_config: Mapping[str, Any], mode: str, seed: int = 0, explore: bool = False
    ) -> None:
        try:
            self._env = environments.make(env, {**env_config, "render_mode": mode})
        except (TypeError, ValueError) as error:
            raise CannotRender(f"{environments.describe(env)} does not render in mode {mode!r}: {error}") from error
        if getattr(self._env, "render_mode", None) != mode:
            self._env.close()
            raise CannotRender(f"{environments.describe(env)} does not render in mode {mode!r}")
        self._policy, self._seed, self._explore = policy, seed, explore
        self.rewards: list[float] = []  # of the episodes that have ended

    def scenes(self, episodes: int) -> Iterator[Any]:
        """What the environment renders before each step, and at each episode's end."""
        try:
            for episode in range(episodes):
                observation, _ = self._env.reset(seed=self._seed + episode)
                self._policy.reset()
                reward, done = 0.0, False
                yield self._render()
                while not done:
                    action = self._policy.act(observation, self._explore)
                    observation, earned, terminated, truncated, _ = self._env.step(action)
                    reward, done = reward + float(earned), bool(terminated or truncated)
                    yield self._render()
                self.rewards.append(reward)
        finally:
            self._env.close()

    def _render(self) -> Any:
        scene = self._env.render()
        if scene is None:
            raise CannotRender(f"{type(self._env.unwrapped).__name__} rendered nothing")
        return scene


def mode_of(env: Any, env_config: Mapping[str, Any]) -> str:
    """How an environment can be shown without a window: "rgb_array" or "ansi"."""
    probe = environments.make(env, env_config)
    try:
        modes = getattr(probe, "metadata", {}).get("render_modes", [])
    finally:
        probe.close()
    for mode in ("rgb_array", "ansi"):
        if mode in modes:
            return mode
    raise CannotRender(f"{environments.describe(env)} renders in {modes or 'no mode'}, but rgb_array or ansi is needed")


def write_video(path: str | os.PathLike[str], pictures: Iterable[NDArray[Any]], fps: int = FRAMES_PER_SECOND) -> int:
    """Write pictures to a .gif (needs Pillow) or a .mp4 (needs ffmpeg); how many."""
    suffix = Path(path).suffix.lower()
    if suffix == ".gif":
        return _write_gif(path, pictures, fps)
    if suffix == ".mp4":
        return _write_mp4(path, pictures, fps)
    raise CannotRender(f"a video is a .gif or a .mp4, but got {os.fspath(path)!r}")


def blocks(picture: NDArray[Any], width: int) -> str:
    """A picture in coloured half blocks, `width` characters wide."""
    height = max(2, round(picture.shape[0] / picture.shape[1] * width)) // 2 * 2
    rows = np.linspace(0, picture.shape[0] - 1, height).astype(int)
    columns = np.linspace(0, picture.shape[1] - 1, width).astype(int)
    small = picture[rows][:, columns]
    lines = []
    for upper, lower in zip(small[::2].tolist(), small[1::2].tolist(), strict=True):
        cells = [
            f"\x1b[38;2;{a[0]};{a[1]};{a[2]};48;2;{b[0]};{b[1]};{b[2]}m▀" for a, b in zip(upper, lower, strict=True)
        ]
        lines.append("".join(cells) + "\x1b[0m")
    return "\n".join(lines)


def _write_gif(path: str | os.PathLike[str], pictures: Iterable[NDArray[Any]], fps: int) -> int:
    try:
        from PIL import Image
    except ImportError as error:
        raise CannotRender("a .gif needs Pillow: pip install 'weft[rl-video]'") from error
    images = [Image.fromarray(np.asarray(picture, np.uint8)) for picture in pictures]
    if not images:
        raise CannotRender("there are no pictures to write")
    images[0].save(path, save_all=True, append_images=images[1:], duration=max(20, round(1000 / fps)), loop=0)
    return len(images)


def _write_mp4(path: str | os.PathLike[str], pictures: Iterable[NDArray[Any]], fps: int) -> int:
    program = shutil.which("ffmpeg")
    if program is None:
        raise CannotRender("a .mp4 needs the program ffmpeg, which is not on the path; write a .gif instead")
    writer: subprocess.Popen[bytes] | None = None
    count = 0
    try:
        for picture in pictures:
            count += 1
            if writer is None:
                height, width = picture.shape[:2]
                made_from = [
                    "-f",
                    "rawvideo",
                    "-pix_fmt",
                    "rgb24",
                    "-s",
                    f"{width}x{height}",
                    "-r",
                    str(fps),
                    "-i",
                    "-",
                ]
                form = ["-pix_fmt", "yuv420p", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"]
                command = [program, "-y", "-loglevel", "error", *made_from, *form, os.fspath(path)]
                writer = subprocess.Popen(command, stdin=subprocess.PIPE)
            assert writer.stdin is not None
            writer.stdin.write(np.ascontiguousarray(picture, np.uint8).tobytes())
    finally:
        if writer is not None and writer.stdin is not None:
            writer.stdin.close()
            writer.wait()
    if writer is None or writer.returncode:
        raise CannotRender(f"ffmpeg wrote no video to {os.fspath(path)}")
    return count
