"""Modin's view of Weft: run a function, store a value, get it, wait. Weft starts at the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft
from weft.exceptions import TaskError
from weft.pandas.modin.calls import SentFunction, function_task, lift_step, send_function, storable


class WeftWrapper:
    """What Modin's readers, writers and partitions call an engine's execution wrapper."""

    @classmethod
    def deploy(
        cls,
        func: Any,
        f_args: Sequence[Any] | None = None,
        f_kwargs: dict[str, Any] | None = None,
        return_pandas_df: bool | None = None,
        num_returns: int = 1,
    ) -> Any:
        """Run a function in a worker: the ref of its result, or a list of refs."""
        refs: list[Any] = []
        function = send_function(func) if callable(func) and not isinstance(func, SentFunction) else func
        step = lift_step((function, f_args or (), f_kwargs or {}), refs)
        return function_task(num_returns).remote(step, bool(return_pandas_df), *refs)

    @classmethod
    def is_future(cls, item: Any) -> bool:
        return isinstance(item, weft.ObjectRef)

    @classmethod
    def materialize(cls, obj_id: Any) -> Any:
        """The value of a ref, or a list with the values of the refs in it. What a task raised is raised as it was."""
        try:
            if isinstance(obj_id, weft.ObjectRef):
                return weft.get(obj_id)
            if not isinstance(obj_id, list | tuple):
                return obj_id
            refs = [entry for entry in obj_id if isinstance(entry, weft.ObjectRef)]
            values = iter(weft.get(refs)) if refs else iter(())
        except TaskError as error:
            raise _root(error) from error
        return [next(values) if isinstance(entry, weft.ObjectRef) else entry for entry in obj_id]

    @classmethod
    def put(cls, data: Any, **_: Any) -> Any:
        """A function becomes what workers load once; anything else goes into object memory."""
        if isinstance(data, weft.ObjectRef | SentFunction):
            return data
        return send_function(data) if callable(data) else weft.put(storable(data))

    @classmethod
    def wait(cls, obj_ids: Any, num_returns: int | None = None) -> None:
        """Until so many of them are there, by default all."""
        refs = list(dict.fromkeys(obj_ids if isinstance(obj_ids, list) else [obj_ids]))
        count = len(refs) if num_returns is None else num_returns
        if count > 0:
            weft.wait(refs, num_returns=count, fetch_local=False)


def _root(error: BaseException) -> BaseException:
    """What was raised first: a task that is given a failed ref fails with an error around that of the ref."""
    while isinstance(error, TaskError) and error.cause is not None:
        error = error.cause
    return error
