"""The checks of single option values; `call_options.py` says which option uses which. Pure.

Each is called with the option's name and a value of the right type, and raises ValueError.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

_SMALLEST_AMOUNT = 0.0001
_LONGEST_NAME_BYTES = 10_000
_MOST_RETURNS = 1 << 24
"""Each is an object with a ref of its own in the caller: so many take gigabytes before the task has run."""
_MOST_ATTEMPTS = (1 << 31) - 1
"""What records have room for."""
_LABEL_PART = re.compile(r"^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$")
_LABEL_PREFIX = re.compile(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$")


def count(infinite: bool) -> Callable[[str, Any], None]:
    """A number of times: not negative, or -1 for without end where that makes sense."""

    def check(name: str, value: int) -> None:
        if infinite and value < -1:
            raise ValueError(
                f"The keyword '{name}' only accepts None, 0, -1 or a positive integer, where -1 represents infinity. "
                f"It must be at least -1, but got {value}."
            )
        if not infinite and value < 0:
            raise ValueError(
                f"The keyword '{name}' only accepts None, 0 or a positive integer. It must not be negative, "
                f"but got {value}."
            )

    return check


def unused_store_memory(name: str, value: int) -> None:
    """Of actors, where Ray has it, too, without effect."""
    count(False)(name, value)
    warnings.warn(
        f"Setting '{name}' for actors is deprecated: it has no effect, an actor's objects are in its node's store",
        DeprecationWarning,
        stacklevel=2,
    )


def attempts(name: str, value: int) -> None:
    """How often something is tried again; -1 is without end."""
    count(True)(name, value)
    if value > _MOST_ATTEMPTS:
        raise ValueError(
            f"The keyword '{name}' must be at most {_MOST_ATTEMPTS}, or -1 for without end, but got {value}"
        )


def checkpoint(name: str, value: Any) -> None:
    from weft.engine.process.actors.checkpoints import policy_of

    policy_of(value)


def resource_amount(name: str, value: float) -> None:
    if value != value or value in (float("inf"), float("-inf")):
        raise ValueError(f"The quantity of resource {name} must be a finite number, but got {value}")
    if value < 0:
        raise ValueError(f"The quantity of resource {name} cannot be negative, but got {value}")
    if isinstance(value, float) and 0 < value < _SMALLEST_AMOUNT:
        raise ValueError(
            f"The precision of the fractional quantity of resource {name} cannot go beyond {_SMALLEST_AMOUNT}, "
            f"but got {value}"
        )
    if name in ("num_gpus", "GPU") and value > 1 and value != int(value):
        raise ValueError(f"{name} must be a whole number when it is above 1, but got {value}")


def resources(name: str, value: dict[Any, Any]) -> None:
    for resource, amount in value.items():
        if resource in ("CPU", "GPU"):
            raise ValueError(
                "Use the 'num_cpus' and 'num_gpus' keyword instead of 'CPU' and 'GPU' in 'resources' keyword"
            )
        if not isinstance(resource, str) or not resource:
            raise ValueError(f"The names in 'resources' must be non-empty strings, but got {resource!r}")
        if isinstance(amount, bool) or not isinstance(amount, int | float):
            raise ValueError(f"The quantity of resource {resource} must be a number, but got {amount!r}")
        resource_amount(resource, amount)


def label(name: str, value: str) -> None:
    """The name of a task: shown in messages and listings, so of any characters, but it travels with every call."""
    if len(value.encode("utf-8", "surrogatepass")) > _LONGEST_NAME_BYTES:
        raise ValueError(
            f"The keyword '{name}' takes at most {_LONGEST_NAME_BYTES} bytes, but got {len(value)} characters"
        )
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"The keyword '{name}' must be text that UTF-8 can hold, but got {value!r}: {error}") from None


def namespace(name: str, value: str) -> None:
    if not value:
        raise ValueError(f'"" is not a valid {name}: leave it out for the session\'s own')
    label(name, value)


TRANSPORTS = ("object_store", "nccl", "gloo", "cuda_ipc", "nixl")
"""Ray's names. Tensors stay where they are, and are opened there, so each of them asks for what is done anyway."""


def transport(name: str, value: str) -> None:
    if value.lower() not in TRANSPORTS:
        raise ValueError(
            f"The keyword '{name}' must be one of {', '.join(TRANSPORTS)}, but got {value!r}: tensors on a device stay "
            "there and are opened by CUDA IPC, or come through the host; a transport of one's own has no counterpart"
        )


def priority(name: str, value: int) -> None:
    if not -(2**31) <= value < 2**31:
        raise ValueError(f"The keyword '{name}' must lie between -2**31 and 2**31 - 1, but got {value}")


def num_returns(name: str, value: Any) -> None:
    if value in ("dynamic", "streaming"):
        return
    if isinstance(value, int) and value > _MOST_RETURNS:
        raise ValueError(f"The keyword '{name}' must be at most {_MOST_RETURNS}, but got {value}: return a list")
    if isinstance(value, str) or value < 0:
        raise ValueError(
            f"The keyword '{name}' only accepts None, a non-negative integer, 'streaming' (for generators), or "
            f"'dynamic', but got {value!r}"
        )


def retry_exceptions(name: str, value: Any) -> None:
    if isinstance(value, bool):
        return
    for entry in value:
        if not (isinstance(entry, type) and issubclass(entry, Exception)):
            raise ValueError(f"{name} must be either a boolean or a list of exceptions, but got {value!r}")


def backpressure(name: str, value: int) -> None:
    if value == 0 or value < -1:
        raise ValueError(f"{name} must be above 0, or -1 for no limit, but got {value}")


def lifetime(name: str, value: str) -> None:
    if value not in ("detached", "non_detached"):
        raise ValueError(f"actor `{name}` argument must be one of 'detached', 'non_detached' and 'None', got {value!r}")


def concurrency_groups(name: str, value: Any) -> None:
    pairs = value.items() if isinstance(value, dict) else [(one["name"], one["max_concurrency"]) for one in value]
    for group, limit in pairs:
        if not isinstance(group, str) or not isinstance(limit, int) or limit < 1:
            raise ValueError(f"{name} must map names to positive numbers of calls, but got {group!r}: {limit!r}")


def label_selector(name: str, value: dict[Any, Any]) -> None:
    """{"key": "value"}, {"key": "!value"}, {"key": "in(a, b)"}, {"key": "!in(a, b)"}."""
    for key, wanted in value.items():
        if not isinstance(key, str) or not isinstance(wanted, str):
            raise ValueError(f"{name} must map strings to strings, but got {key!r}: {wanted!r}")
        prefix, _, label = key.rpartition("/")
        if (prefix and not _LABEL_PREFIX.match(prefix)) or not _LABEL_PART.match(label):
            raise ValueError(f"The label key in {name} must be [prefix/]name of letters, digits, '-_.', got {key!r}")
        condition = wanted.removeprefix("!")
        if condition.startswith("in(") and condition.endswith(")"):
            values = [entry.strip() for entry in condition[3:-1].split(",")]
        else:
            values = [condition]
        for entry in values:
            if not _LABEL_PART.match(entry):
                raise ValueError(f"The label value in {name} must be letters, digits, '-_.', got {wanted!r} of {key!r}")


def fallback_strategy(name: str, value: list[Any]) -> None:
    """[{"label_selector": {...}}, ...]: each is tried where no node fulfils those before it."""
    for entry in value:
        if (
            not isinstance(entry, dict)
            or set(entry) != {"label_selector"}
            or not isinstance(entry["label_selector"], dict)
        ):
            raise ValueError(f'{name} must be a list of {{"label_selector": {{...}}}}, but got {entry!r}')
        label_selector(name, entry["label_selector"])


def type_name_of(types: tuple[type, ...]) -> str:
    return str(types[0]) if len(types) == 1 else str(types)
