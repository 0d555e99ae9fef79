"""Runtime environments in Ray's words: `RuntimeEnv` and `RuntimeEnvConfig`."""

from weft.environments.runtime_env import RuntimeEnv as RuntimeEnv
from weft.environments.runtime_env import RuntimeEnvConfig as RuntimeEnvConfig

__all__ = ["RuntimeEnv", "RuntimeEnvConfig"]
