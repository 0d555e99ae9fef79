"""Every command says what it does, and shells complete what there is."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import weft
from weft.cli import completion, main


def every_parser(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [parser, *(made for action in below for one in action.choices.values() for made in every_parser(one))]


WHOLE = main._whole_parser()
PARSERS = {parser.prog: parser for parser in every_parser(WHOLE)}


@pytest.mark.parametrize("command", sorted(PARSERS))
def test_a_command_and_all_its_options_are_explained(command: str) -> None:
    parser = PARSERS[command]
    assert parser.description
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            assert action.help, f"{command} {action.option_strings or action.dest}"
        else:
            assert len(action._choices_actions) == len(action.choices)
            assert all(choice.help for choice in action._choices_actions)


@pytest.mark.parametrize("command", sorted(PARSERS))
def test_help_fits_a_terminal(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    examples = PARSERS[command].epilog or ""
    shown = [line for line in PARSERS[command].format_help().splitlines() if line.strip() not in examples]
    assert [line for line in shown if len(line) > 80] == []


def test_the_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"weft {weft.__version__} on Python 3.")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ([], "start a node"),
        (["serve"], "serve an application over HTTP"),
        (["rl"], "what an algorithm can be told"),
        (["job"], "end a job and all that it has started"),
        (["list"], "cluster-events"),
    ],
)
def test_a_command_that_is_not_whole_prints_its_help(
    given: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(given) == 2
    assert shown in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["lst"], "list"),
        (["lst", "tasks"], "list"),
        (["list", "taks"], "tasks"),
        (["job", "sumbit"], "submit"),
        (["serve", "shutdwon"], "shutdown"),
        (["rl", "trian"], "train"),
        (["demo", "enginee"], "engine"),
        (["status", "--jsno"], "--json"),
        (["job", "list", "--adress", "here:1"], "--address"),
    ],
)
def test_a_misspelt_word_is_answered_with_what_was_meant(
    given: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(given) == 2
    assert f"Did you mean {meant}?" in capsys.readouterr().err


def test_a_word_like_no_other_is_answered_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["serve", "breakfast"]) == 2
    told = capsys.readouterr().err
    assert "invalid choice: 'breakfast'. There are: run, deploy, rollback, shutdown, status." in told


WITHOUT_SAFETENSORS = """
import sys
class Finder:
    def find_spec(self, name, *_):
        if name == "safetensors":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize("given", [["rl", "train", "--env", "CartPole-v1"], ["rl", "settings", "PPO"]])
def test_a_command_of_a_library_that_is_not_installed_says_what_to_install(given: list[str]) -> None:
    program = f"{WITHOUT_SAFETENSORS}from weft.cli.main import main; sys.exit(main({given!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=280, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(r"weft: weft\.rl needs safetensors: pip install 'weft\[rl\]'\n", done.stderr), done.stderr


def status_of(given: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main.main(given)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main.main(["completion", shell]) == 0
    path = tmp_path / f"weft.{shell}"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("weft st", {"start", "stop", "status", "stack"}),
        ("weft job su", {"submit"}),
        ("weft job submit --working", {"--working-dir"}),
        ("weft memory --group-by ", {"owner", "site", "none"}),
        ("weft serve d", {"deploy"}),
        ("weft completion z", {"zsh"}),
    ],
)
def test_bash_completes(line: str, offered: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = " ".join(f'"{word}"' for word in line.split(" "))
    program = (
        f"source {script('bash', tmp_path, capsys)}; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
        '_weft; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    assert set(done.stdout.split()) == offered


@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here")
def test_fish_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = (
        f"source {script('fish', tmp_path, capsys)}; complete -C 'weft job su'; complete -C 'weft memory --group-by '"
    )
    done = subprocess.run(["fish", "-c", program], check=True, stdout=subprocess.PIPE, text=True)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["submit", "none", "owner", "site"]


ZSH = """
autoload -U compinit
compinit -D -u
{setup}
weft() {{ print -r -- "<$*>" }}
"""


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh here")
@pytest.mark.parametrize("is_sourced", [True, False], ids=["sourced", "from fpath"])
def test_zsh_completes_what_is_typed(is_sourced: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = script("zsh", tmp_path, capsys)
    made.rename(tmp_path / "_weft")
    setup = f"source {tmp_path}/_weft" if is_sourced else ""
    (tmp_path / ".zshrc").write_text(f"fpath=({tmp_path} $fpath)" * (not is_sourced) + ZSH.format(setup=setup))
    typed = {
        "weft job su\t\n": "<job submit>",
        "weft memory --group-by ow\t\n": "<memory --group-by owner>",
        "weft serve dep\t\n": "<serve deploy>",
        "weft completion z\t\n": "<completion zsh>",
    }
    shown = type_into(["zsh", "-i"], {"ZDOTDIR": str(tmp_path)}, "".join(typed) + "exit\n")
    assert [line for line in shown.splitlines() if line.startswith("<")] == list(typed.values())


def type_into(shell: list[str], environment: dict[str, str], keys: str) -> str:
    """What a shell writes to its terminal while somebody types, up to its end."""
    terminal, inside = os.openpty()
    with subprocess.Popen(
        shell, stdin=inside, stdout=inside, stderr=inside, env={**os.environ, "TERM": "dumb", **environment},
        start_new_session=True,
    ):  # fmt: skip
        os.close(inside)
        os.write(terminal, keys.encode())
        shown = b""
        with contextlib.suppress(OSError):  # EIO: nobody has the terminal open any more
            while chunk := os.read(terminal, 65_536):
                shown += chunk
    os.close(terminal)
    return shown.decode().replace("\r", "")


def test_every_command_is_a_place() -> None:
    assert {place.path for place in completion.places(WHOLE)} == set(PARSERS)
