"""Which files of a folder are left out: patterns as in .gitignore. Pure.

>>> rules = parse(["*.log", "!keep.log", "/build/"])
>>> [decide([("", rules)], path, False) for path in ("a/b.log", "keep.log", "x.py")]
[True, False, False]
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """One pattern; the last that matches decides."""

    pattern: re.Pattern[str]
    includes: bool
    """It begins with '!'."""
    folders_only: bool


def parse(lines: Iterable[str]) -> list[Rule]:
    """The rules of a .gitignore file, or of a list of patterns."""
    rules = []
    for line in lines:
        text = line.rstrip("\r\n")
        text = text.rstrip() if not text.endswith("\\ ") else text
        if not text or text.startswith("#"):
            continue
        includes = text.startswith("!")
        text = text[1:] if includes or text.startswith(("\\#", "\\!")) else text
        folders_only = text.endswith("/")
        text = text.rstrip("/")
        if not text:
            continue
        head = "" if "/" in text else "(?:.*/)?"
        rules.append(Rule(re.compile(head + _translate(text.lstrip("/")) + r"\Z"), includes, folders_only))
    return rules


def decide(levels: Iterable[tuple[str, list[Rule]]], path: str, is_folder: bool) -> bool:
    """Whether `path` is left out. Each level is (folder of the rules, "" for the root, and the rules)."""
    left_out = False
    for base, rules in levels:
        inner = path[len(base) + 1 :] if base else path
        for rule in rules:
            if (is_folder or not rule.folders_only) and rule.pattern.match(inner):
                left_out = not rule.includes
    return left_out


def _translate(glob: str) -> str:
    """A pattern as a regular expression over a path with slashes."""
    out, at = "", 0
    while at < len(glob):
        if glob.startswith("**/", at) and (at == 0 or glob[at - 1] == "/"):
            out, at = out + "(?:.*/)?", at + 3
        elif glob[at:] == "**" and (at == 0 or glob[at - 1] == "/"):
            out, at = out + ".+", at + 2
        elif glob[at] == "*":
            out, at = out + "[^/]*", at + 1
        elif glob[at] == "?":
            out, at = out + "[^/]", at + 1
        elif glob[at] == "[" and (end := glob.find("]", at + 2)) > 0:
            inside = glob[at + 1 : end].replace("\\", "\\\\")
            inside = "^" + inside[1:] if inside[0] == "!" else inside
            out, at = f"{out}[{inside}]", end + 1
        else:
            at += glob[at] == "\\" and at + 1 < len(glob)
            out, at = out + re.escape(glob[at]), at + 1
    return out
