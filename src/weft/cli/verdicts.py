"""What a check of `weft doctor` finds."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARNING, FAILURE = "ok", "warning", "failure"


@dataclass(frozen=True)
class Verdict:
    subject: str
    level: str
    finding: str
    advice: str = ""
