"""What the native core calls back in this process: `DriverHost` in a driver, `WorkerHost` in a worker.

Both turn values into bytes and errors into exceptions. A worker's also loads functions, makes the actor and runs its
concurrent calls. Every method is called with the GIL; `on_event` and `on_daemon_lost` on the core's callback
thread, the rest on whichever thread submits, waits or executes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NoReturn

import msgspec

from weft import _native
from weft.devices import hooks
from weft.engine.process.calls import errors
from weft.engine.process.session import context_state, rpc
from weft.engine.process.worker import lifecycle
from weft.engine.wire import kinds
from weft.engine.wire.messages import (
    BindJob,
    BreakWait,
    ExitProcess,
    GroupChanged,
    LogLines,
    Reply,
    Request,
    Tell,
    TellWaits,
    Warn,
)
from weft.exceptions import RuntimeEnvSetupError, WeftError, package_name
from weft.terminal.logs import LogPrinter
from weft.values import serialize as values

_events = msgspec.msgpack.Decoder(Reply | LogLines | Warn | ExitProcess | GroupChanged | Tell | TellWaits | BreakWait)

hooks.node_id = lambda: context_state.state.node_id


class Host:
    """What drivers and workers share."""

    def __init__(self) -> None:
        self.logs = LogPrinter()
        self._warned: set[str] = set()

    def serialize(self, value: object, what: str = "") -> values.Pickled:
        """`what` says whose value it is, for the error: "args[0] of task f". A result is given away."""
        try:
            return values.serialize(value, what.startswith(("result", "item")))
        except WeftError:
            raise
        except Exception as error:
            from weft.values import culprit

            root, _, rest = what.partition(" ")
            raise culprit.explain(value, root or "value", f" {rest}" if rest else "", error) from error

    deserialize = staticmethod(values.deserialize)
    load_writable = staticmethod(values.load_writable)

    def raise_error(self, error: bytes) -> NoReturn:
        errors.raise_error(error)

    def on_event(self, kind: int, payload: bytes) -> None:
        try:
            self._act_on(kind, payload)
        except RuntimeError:
            if _native.is_attached():  # else the session has ended meanwhile, and nobody waits for an answer
                raise

    def _act_on(self, kind: int, payload: bytes) -> None:
        if kind == kinds.CANCEL:  # a call of a concurrent actor, by its task id
            self.cancel_call(payload)
            return
        if kind == kinds.WAITS_LONG:
            rpc.send(Request(0, "waits_long"))
            return
        if kind == kinds.WANTS_MEMORY:
            from weft.engine.process.calls import export

            export.retry_with_more_memory(payload)
            return
        if kind == kinds.LINEAGE_FORGOTTEN:
            self.warn(payload.decode())
            return
        message = _events.decode(payload)
        if isinstance(message, Reply):
            rpc.settle(message)
        elif isinstance(message, LogLines):
            self.logs.show(message.pid, message.stream, message.lines)
        elif isinstance(message, Warn):
            self.warn(message.text)
        elif isinstance(message, GroupChanged):
            from weft.engine.process.session import placement

            placement.changed(message)
        elif isinstance(message, Tell):
            from weft.engine.process.telling import own_tasks

            rpc.send(
                Request(0, "told", {"number": message.number, "rows": own_tasks.rows(message.what, message.limit)})
            )
        elif isinstance(message, TellWaits):
            from weft.engine.process.telling import waits

            rows = waits.rows(message.you, message.objects)
            rpc.send(Request(0, "waits_told", {"number": message.number, "rows": rows}))
        elif isinstance(message, BreakWait):
            _native.break_wait(message.number, errors.deadlock_value(message.cycle))
        else:
            self.exit_process(message)

    def warn(self, text: str) -> None:
        """Print it once; through Weft's own logger where its level was chosen."""
        if text in self._warned:
            return
        self._warned.add(text)
        own_logging = sys.modules.get("weft.engine.process.telling.own_logging")
        if own_logging is not None and own_logging.is_chosen():
            own_logging.LOGGER.warning(text)
        else:
            print(f"weft: {text}", file=sys.stderr, flush=True)

    def on_daemon_lost(self) -> None:
        rpc.fail_all()

    def cancel_call(self, task: bytes) -> None:
        """A call of this process's concurrent actor is not wanted any more."""

    def exit_process(self, message: ExitProcess) -> None:
        self.warn(f"the node daemon asks this process to end: {message.reason}")

    # -- workers only; a driver is never asked --

    def bind_job(self, payload: bytes) -> None:
        raise NotImplementedError("a driver runs no tasks")

    def load_function(self, payload: bytes) -> Any:
        raise NotImplementedError("a driver runs no tasks")

    def dump_error(self, error: BaseException, name: str, retry_types: bytes) -> tuple[bytes, bool]:
        return errors.dump_error(error, name, retry_types)

    def keep_inputs(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Of a task that raised: for a replay."""
        from weft.engine.process.telling import failures

        failures.keep_inputs(function, args, kwargs)

    def create_actor(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], actor: bytes) -> Any:
        raise NotImplementedError("a driver holds no actor")

    def is_concurrent(self) -> bool:
        return False

    def start_call(self, call: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        raise NotImplementedError("a driver holds no actor")


class DriverHost(Host):
    """A driver's."""

    def __init__(self, last_words: Callable[[], str]) -> None:
        super().__init__()
        self._last_words = last_words
        """What the node daemon has written, if this driver started it."""

    def on_daemon_lost(self) -> None:
        super().on_daemon_lost()
        text = "the node daemon ended; what was pending has failed. Call weft.shutdown(), then weft.init()."
        words = self._last_words().strip()
        self.warn(f"{text} Its last words were:\n{words}" if words else text)


class WorkerHost(Host):
    """A worker's. It serves one job, and at most one actor, for the whole of its life."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: Any = None
        self._system_calls: Any = None
        """Of a serial actor: its calls in the engine's own group, which run beside the others."""
        self._unfit = ""
        """Why nothing can run here: the runtime environment could not be made."""

    def bind_job(self, payload: bytes) -> None:
        self.bind(msgspec.msgpack.decode(payload, type=BindJob))

    def bind(self, job: BindJob, packages: Any = None, variables: Any = None, failure: str = "") -> None:
        """Whatever fails, fails each function that is to be loaded here."""
        from weft.engine.process.worker import binding

        try:
            if failure:
                job.runtime_env = ""
            binding.bind(job, packages, variables)
        except RuntimeEnvSetupError as error:
            failure = error.error_message
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
        self._unfit = failure

    def load_function(self, payload: bytes) -> Any:
        if self._unfit:
            raise errors.SetupFailure(f"[Node {context_state.state.node_ip or 'unknown'}] {self._unfit}")
        function = values.loads(payload)
        _native.title_prefix(f"{package_name()}::")
        context_state.state.modules[getattr(function, "__name__", "")] = getattr(function, "__module__", "")
        return function

    def dump_error(self, error: BaseException, name: str, retry_types: bytes) -> tuple[bytes, bool]:
        if isinstance(error, SystemExit) and self._calls is None:  # a concurrent actor's calls see to it themselves
            error = lifecycle.leave(error)
        from weft.engine.process.telling import failures

        failures.tell(error, name)
        return errors.dump_error(error, name, retry_types)

    def create_actor(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], actor: bytes) -> Any:
        from weft.engine.process.actors import actor_instance

        instance, self._calls = actor_instance.create(cls, args, kwargs, actor)
        context_state.state.calls = self._calls
        return instance

    def is_concurrent(self) -> bool:
        return self._calls is not None

    def start_call(self, call: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._calls is not None:
            self._calls.start(call, method, args, kwargs)
            return
        if self._system_calls is None:
            from weft.engine.process.actors.concurrency import ConcurrentCalls

            self._system_calls = ConcurrentCalls(context_state.state.actor_definition)
            self._system_calls.instance = context_state.state.actor_instance
        self._system_calls.start(call, method, args, kwargs)

    def cancel_call(self, task: bytes) -> None:
        for calls in (self._calls, self._system_calls):
            if calls is not None:
                calls.cancel(task)

    def on_daemon_lost(self) -> None:
        super().on_daemon_lost()
        lifecycle.end_now(1)

    def exit_process(self, message: ExitProcess) -> None:
        lifecycle.exit_process(message.reason, message.drain, self._calls)
