"""Imported by a worker of a driver that says `import ray`, before its first function is loaded."""

from weft.compat import alias

alias.install_quietly()
