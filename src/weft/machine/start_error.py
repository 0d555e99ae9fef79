"""Why a node of this machine cannot come up."""


class StartError(RuntimeError):
    """For a reason that a person can mend, which it says."""
