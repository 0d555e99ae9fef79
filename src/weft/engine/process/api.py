"""`get`, `wait` and the rest of the core verbs. Thin: the native core does the work and the type checks.

The usual case adds one Python call to the native one; what is wrong is explained after the core has refused.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from weft import _native
from weft._native import ObjectRef
from weft.engine.process.actors.actor_class import ActorClass
from weft.engine.process.actors.actor_handle import ActorHandle
from weft.engine.process.calls.generator import ObjectRefGenerator, cancel_task, wait_for_any
from weft.engine.process.calls.mapping import Results
from weft.engine.process.calls.remote_function import P, RemoteFunction, RemoteFunctionVariant, map_items
from weft.engine.process.session import attached, context_state, rpc
from weft.engine.process.telling import progress
from weft.engine.wire.messages import KillActor
from weft.exceptions import WeftError
from weft.terminal import status_line

if TYPE_CHECKING:
    from weft.engine.process.calls.mapping import Results

T = TypeVar("T")
R = TypeVar("R")
_native_get = _native.get
_shows_progress = status_line.is_wanted()
_native_wait = progress.wait if _shows_progress else _native.wait
_CHECKED_WHOLE = 16
"""wait() on a list of at most so many refs looks for one that appears twice, or is none; on a longer one that would
cost more than the wait, a twin does no harm, and the core refuses what is no ref when it comes to it."""


# ---- values ----------------------------------------------------------------------------------------


@overload
def get(object_refs: ObjectRef[T], *, timeout: float | None = None, writable: bool = False) -> T: ...
@overload
def get(object_refs: Sequence[ObjectRef[T]], *, timeout: float | None = None, writable: bool = False) -> list[T]: ...
@overload
def get(
    object_refs: Sequence[ObjectRef[Any]], *, timeout: float | None = None, writable: bool = False
) -> list[Any]: ...
def get(object_refs: Any, timeout: float | None = None, writable: bool = False) -> Any:  # keywords cost 10 ns each
    """The value of a ref, or the values of a list of refs, waiting for them.

    Arrays of NumPy and frames of pandas lie in memory that all share, and are read-only. With `writable` they can be
    written to, at the cost of a copy of each page (4 KiB) that is; nobody else sees it. Tensors always can.

    Raises what the task raised (also as a TaskError), GetTimeoutError after `timeout` seconds (0: do not wait),
    and the engine's errors when the value cannot be had: WorkerCrashedError, ActorDiedError, OwnerDiedError...

    >>> weft.get([weft.put(1), weft.put(2)])
    [1, 2]
    """
    try:
        if writable:
            _check_flag("writable", writable)
            return _get_writable(object_refs, timeout)
        if _shows_progress and not context_state.state.is_worker:
            return progress.get(_native_get, object_refs, -1.0 if timeout is None else _timeout(timeout))
        if timeout is None:
            return _native_get(object_refs)
        return _native_get(object_refs, _timeout(timeout))
    except (TypeError, RuntimeError) as error:
        if (
            isinstance(error, WeftError)
            or attached.was_shut_down(error)
            or (_are_refs(object_refs) and _native.is_attached())
        ):
            raise
        return _get_slowly(object_refs, timeout, writable)


def _get_writable(object_refs: Any, timeout: float | None) -> Any:
    seconds = -1.0 if timeout is None else _timeout(timeout)
    if _shows_progress and not context_state.state.is_worker:
        return progress.get(lambda refs, left_s: _native_get(refs, left_s, True), object_refs, seconds)
    return _native_get(object_refs, seconds, True)


def _get_slowly(object_refs: Any, timeout: float | None, writable: bool) -> Any:
    """Not attached yet, no refs, or a tuple or other sequence of refs."""
    attached.ensure()
    if isinstance(object_refs, ObjectRefGenerator):
        return object_refs
    if _are_refs(object_refs):
        refs = object_refs if isinstance(object_refs, ObjectRef) else list(object_refs)
        return _native_get(refs, -1.0 if timeout is None else _timeout(timeout), writable)
    if isinstance(object_refs, list):
        wrong = next(entry for entry in object_refs if not isinstance(entry, ObjectRef))
        raise ValueError(
            f"Invalid type of object refs, {type(wrong)}, is given in the list. All elements must be refs, "
            f"but got {wrong!r}.{_instead(wrong)}"
        ) from None
    raise ValueError(
        f"Invalid type of object refs, {type(object_refs)}, is given. 'object_refs' must either be an ObjectRef or "
        f"a list of ObjectRefs, but got {object_refs!r}.{_instead(object_refs)}"
    ) from None


def _instead(value: Any) -> str:
    """What to write where this was given to get()."""
    if isinstance(value, ActorHandle):
        return " The methods of an actor give refs: handle.method.remote(...)."
    if hasattr(value, "remote") or isinstance(value, _native.RemoteCall | _native.ActorCall):
        return " It was not called: f.remote(...) gives a ref."
    if callable(getattr(value, "result", None)):
        return " It has a result() of its own."
    if isinstance(value, list):
        return " A list of lists: get each of them."
    if isinstance(value, tuple) and [type(part) for part in value] == [list, list]:
        return " wait() gives two lists: ready, others = wait(refs)."
    if isinstance(value, Mapping):
        return " Get the values of the dictionary, as a list."
    if isinstance(value, Results):
        return " list(...) of it, or a loop, takes the values."
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return " Make a list of it: get(list(refs))."
    return " It is no ref, so it may be a value already: f.remote(...) and put(...) give refs."


def _are_refs(value: Any) -> bool:
    return isinstance(value, ObjectRef) or (
        isinstance(value, list) and all(isinstance(entry, ObjectRef) for entry in value)
    )


def _timeout(timeout: float) -> float:
    if isinstance(timeout, ObjectRef):
        raise TypeError("several refs are given as one list: get([a, b])")
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"timeout must be a number of seconds or None, but got {timeout!r}")
    if timeout != timeout or (timeout < 0 and timeout != -1):
        raise ValueError(f"The 'timeout' argument must be non-negative or None, but got {timeout}")
    return -1.0 if timeout == -1 else float(timeout)


def wait(
    object_refs: list[ObjectRef[T]], *, num_returns: int = 1, timeout: float | None = None, fetch_local: bool = True
) -> tuple[list[ObjectRef[T]], list[ObjectRef[T]]]:
    """(ready, not ready): waits until `num_returns` of the refs are ready, or for `timeout` seconds.

    Both lists keep the order given. A failed task's ref is ready. With `fetch_local` the bytes of a ready value are on
    this node, and those of values on other nodes are brought; without it is enough that the value exists somewhere.

    >>> ready, rest = weft.wait([weft.put(1), weft.put(2)], num_returns=2)
    >>> len(ready), len(rest)
    (2, 0)
    """
    if type(object_refs) is not list or type(num_returns) is not int or not 0 < num_returns <= len(object_refs):
        if isinstance(object_refs, list) and not object_refs:
            return [], []
        _check_wait(object_refs, num_returns)
    if len(object_refs) <= _CHECKED_WHOLE:
        _check_wait(object_refs, num_returns)
    if fetch_local is not True and fetch_local is not False:
        raise TypeError(f"fetch_local must be True or False, but got {fetch_local!r}")
    try:
        if not fetch_local:
            return _native_wait(object_refs, num_returns, -1.0 if timeout is None else _timeout(timeout), 0, False)
        if timeout is None:
            return _native_wait(object_refs, num_returns)
        return _native_wait(object_refs, num_returns, _timeout(timeout))
    except (TypeError, ValueError, RuntimeError) as error:
        if attached.was_shut_down(error):
            raise
        attached.ensure()
        _check_wait(object_refs, num_returns)
        seconds = -1.0 if timeout is None else _timeout(timeout)
        if any(isinstance(entry, ObjectRefGenerator) for entry in object_refs):
            return wait_for_any(object_refs, num_returns, seconds)
        return _native_wait(object_refs, num_returns, seconds, 0, fetch_local)


def _check_wait(object_refs: Any, num_returns: Any) -> None:
    if isinstance(object_refs, ObjectRef):
        raise TypeError("wait() expected a list of weft.ObjectRef, but got a single weft.ObjectRef: wait([ref])")
    if not isinstance(object_refs, list):
        raise TypeError(f"wait() expected a list of weft.ObjectRef, but got {type(object_refs)}")
    for entry in object_refs:
        if not isinstance(entry, ObjectRef | ObjectRefGenerator):
            raise TypeError(f"wait() expected a list of weft.ObjectRef, but got a list containing {type(entry)}")
    if isinstance(num_returns, bool) or not isinstance(num_returns, int):
        raise TypeError(f"num_returns must be an int, but got {num_returns!r}")
    if num_returns <= 0:
        raise ValueError(f"Invalid number of objects to return {num_returns}: num_returns must be at least 1")
    if num_returns > len(object_refs):
        raise ValueError(f"num_returns must be at most the number of refs, {len(object_refs)}, but got {num_returns}")
    if len(set(object_refs)) == len(object_refs):
        return
    refs = list(object_refs)  # another thread may have changed it between the two
    if len(set(refs)) != len(refs):
        raise ValueError("Wait requires a list of unique object refs, but some appear twice.")


# ---- actors and tasks ------------------------------------------------------------------------------


def kill(actor: ActorHandle[Any], *, no_restart: bool = True) -> None:
    """End an actor at once; what it runs and what is queued fails with ActorDiedError. No exit functions run.

    With `no_restart=False` it starts again if `max_restarts` allows.

    >>> @weft.remote
    ... class Victim:
    ...     def wait(self):
    ...         import time
    ...         while True: time.sleep(1)
    >>> victim = Victim.remote()
    >>> ref = victim.wait.remote()
    >>> weft.kill(victim)
    >>> weft.get(ref)
    Traceback (most recent call last):
    weft.exceptions.ActorDiedError: ...
    """
    if not isinstance(actor, ActorHandle):
        raise ValueError(f"weft.kill() only supported for actors. Got: {type(actor)}. For tasks, use weft.cancel().")
    _check_flag("no_restart", no_restart)
    attached.ensure()
    local = context_state.state.local
    if local is not None:
        local.actors.kill(actor._weft_token.binary(), no_restart)
        return
    rpc.send(KillActor(actor._weft_token.binary(), no_restart))


def cancel(ref: ObjectRef[Any] | ObjectRefGenerator, *, force: bool = False, recursive: bool = True) -> None:
    """Cancel the task that makes the ref, and with `recursive` what it has submitted. `get` of it then raises
    TaskCancelledError, unless the task was done already.

    What waits is not started; in what runs KeyboardInterrupt is raised, asyncio.CancelledError in a coroutine; a
    plain method of an actor can look at `get_runtime_context().is_canceled()`. `force` ends the task's worker.

    >>> @weft.remote
    ... def wait_for_ever():
    ...     import time
    ...     while True: time.sleep(0.01)
    >>> ref = wait_for_ever.remote()
    >>> weft.cancel(ref)
    >>> weft.get(ref)
    Traceback (most recent call last):
    weft.exceptions.TaskCancelledError: ...
    """
    _check_flag("force", force)
    _check_flag("recursive", recursive)
    if isinstance(ref, ObjectRefGenerator):
        ref.cancel(force, recursive)
        return
    if not isinstance(ref, ObjectRef):
        raise TypeError(f"weft.cancel() only supported for object refs. Got: {type(ref)}. For actors, use weft.kill().")
    attached.ensure()
    local = context_state.state.local
    if local is not None:
        local.cancel(ref, force)
        return
    cancel_task(ref, force, recursive)


def _check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, but got {value!r}")


def get_actor(name: str, namespace: str | None = None) -> ActorHandle[Any]:
    """A handle to the living actor of that name; ValueError when there is none.

    Such a handle does not keep the actor alive.

    >>> @weft.remote
    ... class Registry:
    ...     def size(self): return 0
    >>> held = Registry.options(name="registry").remote()
    >>> weft.get(weft.get_actor("registry").size.remote())
    0
    """
    from weft.engine.process.actors import named_actors

    return named_actors.find(name, namespace)


def map(
    function: Callable[..., R] | RemoteFunction[..., R] | RemoteFunctionVariant[..., R],
    /,
    *iterables: Iterable[Any],
    order: bool = True,
    chunk: int | None = None,
    progress: bool | str | None = None,
) -> Results[R]:
    """`function` of each item, in parallel: an iterator over the results. As the builtin `map`, with several iterables
    the function takes an argument of each.

    `order=False` gives the results as they come. `chunk`: so many items go to a task; by default as many as take some
    50 ms. `progress`: a bar, at a terminal or in a notebook; True shows it at once, None when it takes longer than a
    second, a text is its label, False shows none.

    The input is read as it is needed, a bounded way ahead, so it may be a generator without an end. What the function
    raises is raised in its turn, with the item named. Leaving the loop early ends what was under way.
    The options of a remote function (num_cpus, max_retries, ...) hold for the tasks.

    >>> list(weft.map(lambda x: x * x, range(4)))
    [0, 1, 4, 9]
    """
    return map_items(function, iterables, order, chunk, progress)


# ---- remote ----------------------------------------------------------------------------------------


@overload
def remote(__function: type[T]) -> ActorClass[T]: ...  # type: ignore[overload-overlap]
@overload
def remote(__function: Callable[P, R]) -> RemoteFunction[P, R]: ...
@overload
def remote(**options: Any) -> Callable[[Any], Any]: ...
def remote(*args: Any, **options: Any) -> Any:
    """Make a function's calls tasks, or a class's instances actors; with options when called with keywords. All but
    max_calls and concurrency_groups can also be given for one call: `f.options(num_cpus=2).remote()`.

    What it needs:
        num_cpus, num_gpus: held while it runs; fractions are fine. A task holds 1 CPU by default; an actor holds none,
            and 1 decides where it starts.
        memory: bytes that it is expected to use. object_store_memory (actors): bytes of objects.
        resources: other resources, as {"name": amount}. accelerator_type: a GPU's kind.
        runtime_env: packages, variables, folders of its worker, as in `weft.init`.
    Where it runs:
        scheduling_strategy: "DEFAULT", "SPREAD", or one of weft.util.scheduling_strategies.
        label_selector: labels that the node must have, as {"zone": "in(a, b)"}.
        priority: of two that wait, the one with the higher number is started first.
        placement_group, placement_group_bundle_index, placement_group_capture_child_tasks: of a placement group.
        fallback_strategy: [{"label_selector": {...}}, ...], tried in turn where no node fulfils label_selector.
    Both:
        name: what it is called in the dashboard and in errors; an actor is found by it with `weft.get_actor`.
        enable_task_events: accepted; there is nothing to turn off.
    Tasks:
        num_returns: so many refs come back, each of one value of the tuple returned; "streaming" for a generator.
        max_retries: how often it is tried again when its worker or node dies: 3 by default, -1 without end.
        retry_exceptions: True, or a list of exception types: also when it raises (one of) them.
        max_calls: a worker ends after so many calls of this function.
        writable_args: True lets it write to arrays and frames that it is given, as `get(ref, writable=True)` does;
            nobody else sees it. Of an actor's method with `weft.method`.
    Actors:
        max_restarts: how often it is started again when its process dies: 0 by default, -1 without end.
        max_task_retries: how often a call is tried again when the actor dies under it.
        checkpoint: save its state every so many calls, so that a restart loses nothing.
        max_concurrency: so many calls run at a time; 1,000 for a class with coroutines.
        concurrency_groups: {"io": 2}: so many calls of the methods of each group.
        max_pending_calls: so many unfinished calls of one caller; more raise PendingCallsLimitExceeded.
        lifetime: "detached" outlives its driver. namespace: where its name is found.
        get_if_exists: True returns the actor of that name, if there is one.
        allow_out_of_order_execution: a call need not wait for the arguments of the calls before it.
        enable_tensor_transport: without effect; tensors stay on their device by themselves.

    >>> @weft.remote(num_cpus=2)
    ... def f(): ...
    >>> @weft.remote
    ... class Counter: ...
    """
    if len(args) == 1 and not options and callable(args[0]):
        return _make_remote(args[0], {})
    if args or not options:
        raise TypeError(
            "The @weft.remote decorator must be applied either with no arguments and no parentheses, for example "
            "'@weft.remote', or with options as keywords, for example '@weft.remote(num_cpus=2)', "
            f"but got {args!r}."
        )
    return lambda target: _make_remote(target, options)


def _make_remote(target: Any, options: dict[str, Any]) -> Any:
    if isinstance(target, type):
        return ActorClass(target, options)
    if isinstance(target, RemoteFunction | ActorClass):
        raise TypeError(f"{target!r} is remote already: @weft.remote must be applied once")
    if not callable(target) or not hasattr(target, "__module__"):
        raise TypeError(
            f"The @weft.remote decorator must be applied to either a function or a class, but got {target!r}."
        )
    if isinstance(target, types.MethodType):
        raise TypeError(
            f"The @weft.remote decorator must be applied to a function or a class, but got the bound method "
            f"{target.__qualname__}: make the class an actor, or wrap the call in a function."
        )
    return RemoteFunction(target, options)
