"""What goes wrong in a search, by whose fault it is."""

from __future__ import annotations

__all__ = ["LedgerError", "SearchSpaceError", "TrialError", "TuneError"]


class TuneError(Exception):
    """The experiment as a whole is wrong: a metric that nobody reports, a scheduler that leaves trials behind."""


class SearchSpaceError(TuneError, ValueError):
    """A search space that cannot be meant; the message names the key."""


class LedgerError(TuneError):
    """The ledger of an experiment is missing, or is not one."""


class TrialError(TuneError):
    """One trial failed. `traceback` is what its process said."""

    def __init__(self, trial_id: str, message: str, traceback: str = "") -> None:
        super().__init__(trial_id, message, traceback)
        self.trial_id = trial_id
        self.message = message
        self.traceback = traceback

    def __str__(self) -> str:
        return f"trial {self.trial_id}: {self.message}"
