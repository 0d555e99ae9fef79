"""An argument parser that answers a mistake with what was probably meant, and nothing with its help.

>>> Parser.guess("lst", ["list", "start"])
'Did you mean list? There are: list, start.'
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from weft._lazy import nearest


class Parser(argparse.ArgumentParser):
    """Parsers of subcommands are of the same class, since argparse makes them so."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Nothing is left for callers to know: an unknown option is an error of the command that it was given to."""
        given = list(sys.argv[1:] if args is None else args)
        if not given and any(action.required and not action.option_strings for action in self._actions):
            self.print_help(sys.stderr)
            self.exit(2)
        known, unknown = super().parse_known_args(given, namespace)
        if unknown:
            options = [option for action in self._actions for option in action.option_strings]
            near = nearest(unknown[0], options)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{f'. Did you mean {near}?' if near else ''}")
        return known, []

    @staticmethod
    def guess(word: str, choices: Iterable[str]) -> str:
        """What to say to a word that is none of the choices."""
        near = nearest(word, choices)
        return f"{f'Did you mean {near}? ' if near else ''}There are: {', '.join(choices)}."

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}. {self.guess(str(value), choices)}")
