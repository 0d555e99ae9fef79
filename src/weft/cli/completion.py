"""`weft completion`: a script that lets a shell complete commands and options.

The scripts are made from the parsers themselves, so they know what this version of Weft knows, and run no Python when
somebody presses the key.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from weft.cli.options import Commands, add_command


@dataclass(frozen=True)
class Place:
    """Where a reader of the command line is, such as `weft job submit`, and what may come there."""

    path: str
    words: tuple[tuple[str, str], ...]
    """(a command, an option or one of the values of an argument, what it is)"""
    values: tuple[tuple[str, tuple[str, ...]], ...]
    """(an option, the values that it takes), where these are known"""


def add(commands: Commands, parser: Callable[[], argparse.ArgumentParser]) -> None:
    """`parser` makes the parser of the whole command line."""
    made = add_command(
        commands,
        "completion",
        lambda options: _run(options.shell, parser()),
        "print a script that completes commands and options in a shell",
        "Prints a script for bash, zsh or fish that completes the commands and options of weft. Read it in your "
        "shell's start-up file, or write it where the shell looks for such scripts.",
        "source <(weft completion bash)        # in ~/.bashrc\n"
        "source <(weft completion zsh)         # in ~/.zshrc, after compinit\n"
        "weft completion fish > ~/.config/fish/completions/weft.fish",
    )
    made.add_argument("shell", choices=sorted(SCRIPTS), help="which shell: bash, fish or zsh", metavar="SHELL")


def _run(shell: str, parser: argparse.ArgumentParser) -> int:
    print(SCRIPTS[shell](list(places(parser))), end="")
    return 0


def places(parser: argparse.ArgumentParser) -> Iterator[Place]:
    """Every command and what may follow it, the whole line first."""
    words: list[tuple[str, str]] = []
    values: list[tuple[str, tuple[str, ...]]] = []
    below: list[argparse.ArgumentParser] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            words += [(name, summaries.get(name, "")) for name in action.choices]
            below += action.choices.values()
        elif action.option_strings:
            words += [(option, action.help or "") for option in action.option_strings]
            if action.choices is not None:
                values += [(option, tuple(map(str, action.choices))) for option in action.option_strings]
        elif action.choices is not None:
            words += [(str(choice), "") for choice in action.choices]
    yield Place(parser.prog, tuple(words), tuple(values))
    for command in below:
        yield from places(command)


def _bash(found: list[Place]) -> str:
    commands = "|".join(f'"{place.path}"' for place in found[1:])
    values = "".join(
        f'        "{place.path} {option}") known="{" ".join(choices)}" ;;\n'
        for place in found
        for option, choices in place.values
    )
    words = "".join(
        f'        "{place.path}") known="{" ".join(word for word, _ in place.words)}" ;;\n' for place in found
    )
    return f"""# bash completion for weft
_weft() {{
    local place=weft known="" word
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$place $word" in {commands}) place="$place $word" ;; esac
    done
    case "$place ${{COMP_WORDS[COMP_CWORD-1]}}" in
{values}        *) case "$place" in
{words}        esac ;;
    esac
    COMPREPLY=($(compgen -W "$known" -- "${{COMP_WORDS[COMP_CWORD]}}"))
}}
complete -o default -F _weft weft
"""


def _zsh(found: list[Place]) -> str:
    commands = "|".join(f'"{place.path}"' for place in found[1:])
    values = "".join(
        f'        ("{place.path} {option}") known=({" ".join(choices)}) ;;\n'
        for place in found
        for option, choices in place.values
    )
    offers = [(place.path, [_quoted(_described(word, text)) for word, text in place.words]) for place in found]
    words = "".join(f'        ("{path}") known=({" ".join(offered)}) ;;\n' for path, offered in offers)
    return f"""#compdef weft
_weft() {{
    local place=weft word
    local -a known
    for word in ${{words[2,CURRENT-1]}}; do
        case "$place $word" in ({commands}) place="$place $word" ;; esac
    done
    case "$place ${{words[CURRENT-1]}}" in
{values}        (*) case "$place" in
{words}        esac ;;
    esac
    _describe weft known || _files
}}
# Read from a folder of $fpath this file is the function itself; read by `source` it only defines it.
if [[ $funcstack[1] == _weft ]]; then _weft; else compdef _weft weft; fi
"""


def _fish(found: list[Place]) -> str:
    commands = " ".join(f'"{place.path}"' for place in found[1:])
    lines = [
        "# fish completion for weft",
        "function __weft_at",
        "    set -l place weft",
        "    for word in (commandline -opc)[2..-1]",
        f'        if contains -- "$place $word" {commands}',
        '            set place "$place $word"',
        "        end",
        "    end",
        '    test "$place" = "$argv[1]"',
        "end",
    ]
    for place in found:
        at = f"complete -c weft -n '__weft_at \"{place.path}\"'"
        known = dict(place.values)
        for word, text in place.words:
            if word.startswith("--"):
                values = f" -x -a {_quoted(' '.join(known[word]))}" if word in known else ""
                lines.append(f"{at} -l {word[2:]} -d {_quoted(_plain(text))}{values}")
            elif word.startswith("-"):
                lines.append(f"{at} -s {word[1:]} -d {_quoted(_plain(text))}")
            else:
                lines.append(f"{at} -f -a {word} -d {_quoted(_plain(text))}")
    return "\n".join(lines) + "\n"


def _described(word: str, text: str) -> str:
    return f"{word}:{_plain(text)}" if text else word


def _plain(text: str) -> str:
    """Help as one line of a list."""
    return " ".join(text.split()).replace("%%", "%")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "’") + "'"


SCRIPTS: dict[str, Callable[[list[Place]], str]] = {"bash": _bash, "fish": _fish, "zsh": _zsh}
