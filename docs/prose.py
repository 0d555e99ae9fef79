"""A linter for the prose of the pages, in `make check`: sentences that are too long, and phrases that say less than
their words. Single words that the house does not use are in words.txt, which codespell reads.

    python docs/prose.py PAGE ...        # prints what it finds, and fails if that is anything
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

LONGEST = 45
"""Words in a sentence; code in backticks, a list of it and a formula are one."""
PHRASES = {
    "a large number of": "many",
    "as a matter of fact": "",
    "at the present time": "now",
    "can not": "cannot",
    "due to the fact that": "because",
    "for the purpose of": "for",
    "has the ability to": "can",
    "in case of": "when there is",
    "in order to": "to",
    "in spite of": "despite",
    "in the event of": "when",
    "in the process of": "",
    "is able to": "can",
    "it is important to note that": "",
    "it should be noted that": "",
    "make use of": "use",
    "makes use of": "uses",
    "needless to say": "",
    "prior to": "before",
    "subsequent to": "after",
    "the fact that": "that",
    "with regard to": "about",
    "with respect to": "about",
}
_CODE = re.compile(r"^ *(```|:::).*?^ *\1|^(?: {4,}[^ *-].*\n)+|<!--.*?-->", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_NAMES = re.compile(r"(?:(?:`[^`]+`|\$[^$]+\$)(?:,| and| or)?\s*)+")
_ITEM = re.compile(r"\n(?= *(?:[-*]|\d+\.) )")
_END = re.compile(r"(?<=[.!?:;])\s+")


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Of a page of Markdown, each with the line on which its paragraph, or item of a list, begins. Code, tables and
    headings have none."""
    text = _CODE.sub(lambda found: "\n" * found[0].count("\n"), text)
    line = 1
    for block in re.split(r"(\n\s*\n)", text):
        is_prose = block.strip() and not block.lstrip().startswith(("|", "#", "<", "!["))
        for item in _ITEM.split(block):
            plain = _NAMES.sub("`code` ", _LINK.sub(r"\1", item))
            yield from ((line, " ".join(sentence.split())) for sentence in _END.split(plain) if is_prose)
            line += item.count("\n") + 1
        line -= 1


def faults(text: str) -> Iterator[tuple[int, str]]:
    """What is wrong, with the line."""
    for line, sentence in sentences(text):
        words = len(sentence.split())
        if words > LONGEST:
            yield line, f"a sentence of {words} words, {LONGEST} at most: {sentence[:60]}…"
        for phrase, better in PHRASES.items():
            if re.search(rf"\b{phrase}\b", sentence, re.IGNORECASE):
                yield line, f"{phrase!r} ==> {better or 'leave it out'!r}: {sentence[:60]}"


def main(pages: list[str]) -> int:
    found = [f"{page}:{line}: {fault}" for page in pages for line, fault in faults(Path(page).read_text("utf-8"))]
    print("\n".join(found), end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
