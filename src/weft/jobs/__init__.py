"""Submitted jobs: the head's table, and the supervisor of each command. A service that the node daemon is host to."""
