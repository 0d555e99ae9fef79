"""`worker_process_setup_hook`: a function that every worker of the environment runs before its first task.

It travels as "module.function", or as a pickle in text. Its failure is the environment's: nothing runs there.
"""

from __future__ import annotations

import base64
import importlib
import traceback
from typing import Any

from weft.exceptions import RuntimeEnvSetupError


def to_wire(hook: Any) -> Any:
    """What stands for it in JSON. RuntimeEnvSetupError when it cannot be pickled."""
    if isinstance(hook, str) or (isinstance(hook, dict) and "pickle" in hook):
        return hook
    if not callable(hook):
        raise TypeError(
            "runtime_env['worker_process_setup_hook'] must be a function or the text 'module.function', "
            f"but got {hook!r}"
        )
    from weft.values import serialize

    try:
        data = serialize.dumps(hook)
    except Exception as error:
        raise RuntimeEnvSetupError(f"Failed to export the setup function. {type(error).__name__}: {error}") from error
    return {"pickle": base64.b85encode(data).decode(), "name": getattr(hook, "__qualname__", repr(hook))}


def run(hook: Any) -> None:
    """In a worker. RuntimeEnvSetupError with the traceback when it fails."""
    name = hook if isinstance(hook, str) else hook.get("name", "")
    try:
        _load(hook)()
    except BaseException as error:
        raise RuntimeEnvSetupError(
            f"Failed to execute the setup hook method. {name} (worker_process_setup_hook) raised:\n"
            + "".join(traceback.format_exception(error))
        ) from None


def _load(hook: Any) -> Any:
    if not isinstance(hook, str):
        from weft.values import serialize

        return serialize.loads(base64.b85decode(hook["pickle"]))
    module, _, name = hook.rpartition(".")
    if not module:
        raise ValueError(f"{hook!r} is not of the form 'module.function'")
    return getattr(importlib.import_module(module), name)
