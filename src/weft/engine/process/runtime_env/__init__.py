"""The engine's use of `weft.environments`: the environment of a call, and workers that are launched in one."""
