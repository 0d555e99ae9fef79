"""The commands `weft rl`, and what runs leave for the eye: curves, event files, videos."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from PIL import Image
from tensorboardX.proto.event_pb2 import Event
from worlds import Matching

from weft.cli.main import main
from weft.rl import PPO
from weft.rl.curve import draw
from weft.rl.video import CannotRender, blocks, write_video

HERE = Path(__file__).parent
QUICK = ["--set", "fragment_steps=16", "--set", "envs_per_worker=2", "--set", "minibatch=16", "--set", "epochs=1"]


class Shown(Matching):
    """Renders its time, as a picture or as text."""

    metadata = {"render_modes": ["rgb_array", "ansi"]}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__()
        self.render_mode = render_mode

    def render(self) -> Any:
        if self.render_mode == "ansi":
            return f"time {self._time}"
        return np.full((8, 12, 3), 20 * self._time, np.uint8)


class Hidden(gymnasium.Env[Any, Any]):
    observation_space = spaces.Box(0, 1, (1,), np.float32)
    action_space = spaces.Discrete(2)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


def train(tmp_path: Path, *more: str) -> int:
    checkpoint = str(tmp_path / "checkpoint")
    given = ["rl", "train", "--env", "test_rl_cli:Shown", "--algo", "PPO", "--checkpoint", checkpoint, "--seed", "1"]
    return main([*given, *QUICK, *more])


def test_training_prints_a_line_an_iteration_and_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, "--iterations", "2", "--tensorboard", str(tmp_path / "logs")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["32 steps" in lines[0], "64 steps" in lines[1], "weft rl watch" in lines[2]] == [True] * 3
    again = ["rl", "train", "--resume", str(tmp_path / "checkpoint"), "--timesteps", "96"]
    assert main(again) == 0
    assert "96 steps" in capsys.readouterr().out
    logged = [event for file in sorted((tmp_path / "logs").iterdir()) for event in events(file)]
    steps = {value.tag: event.step for event in logged for value in event.summary.value}
    assert max(event.step for event in logged) == 96 and {"episode_reward_mean", "learner/value_loss"} <= set(steps)


def events(file: Path) -> list[Any]:
    data, found, place = file.read_bytes(), [], 0
    while place < len(data):
        length = int.from_bytes(data[place : place + 8], "little")
        found.append(Event.FromString(data[place + 12 : place + 12 + length]))
        place += 16 + length
    return found


def test_watching_shows_text_and_writes_a_video(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, "--iterations", "1") == 0
    capsys.readouterr()
    assert main(["rl", "watch", str(tmp_path / "checkpoint"), "--mode", "ansi", "--episodes", "2"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[:2] == ["time 0", "time 1"] and len(shown) == 2 * 9 + 2
    assert shown[-1].startswith("episode 1: reward ")
    video = tmp_path / "video.gif"
    assert main(["rl", "watch", str(tmp_path / "checkpoint"), "--video", str(video)]) == 0
    assert "9 pictures" in capsys.readouterr().out
    with Image.open(video) as picture:
        assert (picture.n_frames, picture.size) == (9, (12, 8))


def test_at_a_terminal_a_curve_is_drawn_over_and_over(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "weft.cli", "rl", "train", "--env", "test_rl_cli:Shown", "--iterations", "3"]
    environment = {**os.environ, "PYTHONPATH": str(HERE)}
    process = subprocess.Popen([*command, *QUICK], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while select.select([ours], [], [], 100)[0]:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux says so when the last writer of a terminal has gone
            break
        if not part:
            break
        shown += part
    os.close(ours)
    assert process.wait() == 0, shown.decode()
    text = shown.decode()
    assert text.count("PPO on test_rl_cli:Shown: mean reward of episodes") == 3
    assert text.count("\x1b[15F\x1b[J") + text.count("\x1b[3F\x1b[J") == 2 and "┤" in text


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["train"], "say in which environment"),
        (["train", "--env", "CartPole-v1", "--algo", "PPPO"], "did you mean 'PPO'"),
        (["train", "--env", "CartPole-v1", "--set", "learning_rat=1"], "did you mean 'learning_rate'"),
        (["train", "--env", "CartPole-v1", "--set", "learning_rate"], "a setting is NAME=VALUE"),
        (["watch", "/nowhere"], "is no checkpoint"),
    ],
)
def test_what_makes_no_sense_is_said(given: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rl", *given]) == 1
    assert message in capsys.readouterr().err


def test_the_settings_of_an_algorithm_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rl", "settings", "SAC"]) == 0
    assert "initial_temperature: float = 1.0" in capsys.readouterr().out
    assert main(["rl", "settings", "all"]) == 0
    assert "MultiAgentPPO" in capsys.readouterr().out.split()


def test_an_algorithm_records_a_video(tmp_path: Path) -> None:
    with PPO(env=Shown, fragment_steps=16, seed=1) as algorithm:
        assert len(algorithm.record_video(tmp_path / "two.gif", episodes=2)) == 2
        with pytest.raises(CannotRender, match=r"a \.gif or a \.mp4"):
            algorithm.record_video(tmp_path / "two.avi")
    with Image.open(tmp_path / "two.gif") as picture:
        assert picture.n_frames == 18


def test_what_does_not_render_is_named(tmp_path: Path) -> None:
    with PPO(env=Hidden, fragment_steps=16, seed=1) as algorithm, pytest.raises(CannotRender, match="Hidden does not"):
        algorithm.record_video(tmp_path / "none.gif")
    with pytest.raises(CannotRender, match="no pictures"):
        write_video(tmp_path / "none.gif", [])


def test_a_curve_leaves_out_what_is_no_number_and_a_picture_fills_its_width() -> None:
    assert draw([(0, float("nan"))]) == "no episode has ended yet"
    lines = draw([(0, float("nan")), (1000, 1.0), (20_000, 3.0)], width=30, height=5).splitlines()
    assert len(lines) == 6 and lines[-1].split() == ["1000", "20k"]
    assert blocks(np.zeros((10, 20, 3), np.uint8), 8).count("▀") == 8 * 2
