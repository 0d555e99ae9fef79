"""Which line of the program put an object, for `weft memory`; recorded where WEFT_CALL_SITES=1 is in the environment.

Off by default: a look at the stack costs more than a small put. Bounded: of more than `MOST` puts the oldest give way.
"""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from typing import Any

VARIABLE = "WEFT_CALL_SITES"
MOST = 100_000
_sites: OrderedDict[bytes, str] = OrderedDict()


def is_wanted() -> bool:
    return os.environ.get(VARIABLE, "") not in ("", "0")


def note(ref: Any, depth: int = 2) -> None:
    """The caller's caller put it."""
    frame = sys._getframe(depth)
    _sites[ref.binary()] = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
    if len(_sites) > MOST:
        _sites.popitem(last=False)


def of(object_id: bytes) -> str:
    """Empty when it is not known."""
    return _sites.get(object_id, "")
