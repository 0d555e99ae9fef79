"""The control store: a replicated table in processes of its own, which runs no task. The engine is its user."""
