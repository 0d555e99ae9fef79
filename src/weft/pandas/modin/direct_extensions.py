"""Extensions that a program registers with Modin: from then on their name is Modin's to look up and to call.

Told at the registration, so that no call and no access of an attribute has to look whether there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import modin.pandas
from modin.pandas.api.extensions import extensions
from modin.pandas.base import BasePandasDataset


def watch(owners: tuple[Any, ...], told: Callable[[Any, str], None]) -> None:
    """`told` is called with the owner, a class or `modin.pandas`, and the name of each extension of one of them that is
    registered from now on, and of those that there are already. Modin keeps its own methods in the same table, for all
    backends, as functions."""
    for owner in (*owners, BasePandasDataset):
        tables = getattr(owner, "_extensions", extensions._GENERAL_EXTENSIONS).items()
        names = [
            name
            for backend, table in tables
            for name, extension in table.items()
            if backend is not None or not callable(extension)
        ]
        for name in names:
            _tell(owners, told, owner, name)
    set_attribute = extensions._set_attribute_on_obj

    def watched(name: str, extensions: Any, backend: str | None, obj: Any, **keywords: Any) -> Callable[[Any], Any]:
        register = set_attribute(name, extensions, backend, obj, **keywords)

        def decorator(extension: Any) -> Any:
            registered = register(extension)
            _tell(owners, told, obj, name)
            return registered

        return decorator

    extensions._set_attribute_on_obj = watched


def _tell(owners: tuple[Any, ...], told: Callable[[Any, str], None], owner: Any, name: str) -> None:
    for ours in owners:
        if owner is ours or (owner is BasePandasDataset and ours is not modin.pandas):
            told(ours, name)
