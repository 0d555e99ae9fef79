"""`init`, `shutdown` and all between: which node this process is attached to.

A driver is attached at most once at a time; a worker always is. The node that `init` starts ends with the driver. In
a forked child of a driver nothing is attached: the session belongs to the process that made it.

Runs on the user's threads; a lock keeps two of them from starting two nodes.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from weft import _native
from weft.devices import hooks
from weft.engine.process.options.init_options import ADDRESS_VARIABLES, OF_A_NODE, InitOptions
from weft.engine.process.session import attached, context_state

if TYPE_CHECKING:
    from weft.engine.process.session.session_context import SessionContext
    from weft.engine.wire.messages import DriverHello
    from weft.terminal.uncaught import Uncaught

_lock = threading.RLock()
_current: Session | None = None
_LAST_OUTPUT_S = 2.0
_INFO = 20
"""`logging.INFO`, which is not imported for it."""


class Session:
    """One attachment of a driver."""

    def __init__(self, attachment: Any, host: Any, options: InitOptions) -> None:
        self.attachment = attachment
        self.host = host
        self.options = options
        self.pid = os.getpid()
        self.uncaught = _uncaught(self)
        self.node_goes_on = getattr(attachment, "process", None) is None and not options.local_mode
        """When this driver leaves it."""


def _uncaught(session: Session) -> Uncaught:
    from weft.exceptions import WeftError
    from weft.terminal.uncaught import Uncaught

    def show_output() -> None:
        if _current is session and _native.is_attached():
            _show_last_output(session)
            session.host.logs.flush()

    return Uncaught(show_output, WeftError)


def attach_once() -> None:
    """With the defaults, unless another thread was first."""
    with _lock:
        if not _native.is_attached():
            init()


def init(address: str | None = None, **given: Any) -> SessionContext:
    """Attach to a node, by default to one that is started for this program. What it returns ends the session after a
    `with` block; else `weft.shutdown()` or the program's end does. Without `init` the first call does it.

    Where:
        address: None (the variable WEFT_ADDRESS; under `srun` the cluster that its tasks form; a cluster that this
            process has started; else a node is started), "local" (start a node), "auto" (the newest cluster of
            `weft start` on this machine, else the newest node), a cluster's "host:port", or the `address` of another
            driver's context.
        local_mode: True starts nothing: tasks and actors run in this process, at the line that submits them, where
            breakpoints and debuggers find them.
    The node that is started:
        num_cpus: how many CPUs it offers; by default those that this process may use.
        num_gpus: how many GPUs it offers; by default those that are found.
        resources: what else it offers, as {"name": amount}.
        labels: texts that tasks may ask for with label_selector, as {"key": "value"}.
        object_store_memory: bytes of shared memory for objects; by default a part of the machine's memory.
        storage: the folder for values of put(durable=True); by default one below TMPDIR.
    This driver:
        namespace: where its named actors are found; by default one of its own.
        runtime_env: what its workers need: {"env_vars": ..., "working_dir": ..., "pip": [...], "py_modules": [...]}.
        ignore_reinit_error: True returns the session that runs already, in the place of an error.
        log_to_driver: False does not print here what workers print.
    Logging:
        logging_config: a weft.LoggingConfig for the loggers of workers.
        logging_level, logging_format: of Weft's own loggers. configure_logging=False leaves them as they are.

    Raises RuntimeError when attached already (in a notebook it goes on with the session that runs, and says so),
    ConnectionError when there is no such node, TypeError and ValueError for a wrong option.

    >>> context = weft.init(num_cpus=2)
    >>> context["address"] != ""
    True
    >>> weft.shutdown()
    """
    if address is None and "SLURM_PROCID" in os.environ:
        address, given = _slurm_cluster(given)
    options = InitOptions.of(address if address is not None else _own_cluster(given), given)
    if _native.is_fork() and context_state.state.is_worker:
        raise RuntimeError(
            f"weft.init(): a fork of a worker is no driver, and cannot become one. {attached.in_a_fork()}"
        )
    with _lock:
        if _native.is_attached():
            if options.ignore_reinit_error:
                return context()
            from weft.terminal.status_line import in_notebook

            if in_notebook():  # a cell is run again and again
                return _go_on(given)
            raise RuntimeError(
                "Maybe you called weft.init twice by accident? This process is already attached to a node. "
                "Call weft.shutdown() first, or pass ignore_reinit_error=True."
            )
        _attach(options)
        made = context()
    _greet(made, options)
    return made


def _go_on(given: Mapping[str, Any]) -> SessionContext:
    """The session that runs already, and a line that says so."""
    told = f"; {', '.join(given)} have no effect on it" if given else ""
    print(f"weft: this notebook goes on with the session that it has{told}. weft.shutdown() ends it.", file=sys.stderr)
    return context()


def _greet(made: SessionContext, options: InitOptions) -> None:
    """Where the dashboard is, for a person at a terminal; nothing in a pipe, a test or a notebook."""
    is_quiet = options.own_logging is not None and options.own_logging.level > _INFO
    if is_quiet or options.local_mode or options.given.get("include_dashboard") is False or not sys.stderr.isatty():
        return
    with contextlib.suppress(RuntimeError, OSError):  # no port is free: the session is not worse for it
        print(f"weft: the dashboard is at {made.dashboard_url}", file=sys.stderr, flush=True)


def _slurm_cluster(given: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """Under `srun` with several tasks: the cluster that they form, of nodes such as `given` describes."""
    from weft.slurm import slurm_cluster

    step = slurm_cluster.step()
    if step is None or _native.is_attached() or any(os.environ.get(name) for name in ADDRESS_VARIABLES):
        return None, given
    InitOptions.of("local", given)  # what is wrong is told before anything is started
    return slurm_cluster.form(step, given), {name: value for name, value in given.items() if name not in OF_A_NODE}


def _own_cluster(given: Mapping[str, Any]) -> str | None:
    """The address of the cluster that this process has started, unless a node of its own is described."""
    launch = sys.modules.get("weft.engine.cluster.launch")
    if launch is None or any(os.environ.get(name) for name in ADDRESS_VARIABLES) or set(given) & OF_A_NODE:
        return None
    found: str | None = launch.own_cluster()
    return found


def _attach(options: InitOptions) -> None:
    global _current
    _forget()
    attachment = _find_or_start(options)
    from weft.engine.process.objects import ref_callbacks
    from weft.engine.process.options import lineage_limits
    from weft.engine.process.session import rpc
    from weft.engine.process.session.host import DriverHost

    local = attachment if options.local_mode else None
    host = DriverHost(attachment.daemon_log)
    try:
        _native.attach(
            attachment.segment_fd,
            attachment.event_fd,
            attachment.slot,
            attachment.generation,
            host,
            attachment.root_task,
            False,
            -1 if local is not None else attachment.socket.fileno(),
        )
        lineage_limits.apply()
        ref_callbacks.install()
        context_state.reset(
            job=attachment.job,
            node_id=attachment.node_id,
            node_ip=attachment.node_ip,
            address=attachment.address,
            namespace=options.namespace or os.urandom(16).hex(),
            slot=attachment.slot,
            generation=attachment.generation,
            driver_pid=os.getpid(),
            local=local,
        )
        _current = Session(attachment, host, options)
        if local is not None:
            local.start()
        elif options.runtime_env:
            from weft.engine.process.runtime_env.effective import effective

            context_state.state.runtime_env = effective(options.runtime_env)
        rpc.send(_hello(options))
        if options.logging_config is not None:
            from weft.engine.process.telling import logging_config

            logging_config.apply(options.logging_config)
        if options.own_logging is not None:
            from weft.engine.process.telling import own_logging

            own_logging.apply(options.own_logging)
            own_logging.LOGGER.debug("attached to node %s at %s", attachment.node_id, attachment.address)
    except BaseException:
        if _current is not None:
            _current.uncaught.withdraw()
        _current = None
        if _native.is_attached():
            _native.detach()
        attachment.close()
        _drop_copies()
        raise


def _find_or_start(options: InitOptions) -> Any:
    if options.local_mode:
        from weft.local.local_node import LocalNode

        return LocalNode(options)
    from weft.engine.node import launch
    from weft.engine.node.config import NodeConfig

    if options.address == "auto":
        from weft.engine.cluster.launch import newest

        found = newest()
        if not found:
            raise ConnectionError(
                "Could not find any running Weft node on this machine for address='auto'. Leave the address out to "
                "start one."
            )
        return launch.join_node(found)
    if ":" in options.address:
        from weft.engine.cluster.launch import is_cluster_address, local_node

        if is_cluster_address(options.address):
            return launch.join_node(local_node(options.address))
    if options.address:
        return launch.join_node(options.address)
    return launch.start_node(
        NodeConfig(
            options.num_cpus,
            options.num_gpus,
            dict(options.resources),
            options.object_store_bytes,
            dict(options.labels),
            storage=options.storage,
        ),
        meanwhile=_import_the_rest,
    )


def _import_the_rest() -> None:
    """What an attached driver needs and `init` does not, while the node comes up."""
    from weft.engine.process.objects import ref_callbacks  # noqa: F401
    from weft.engine.process.options import lineage_limits  # noqa: F401
    from weft.engine.process.session import host, session_context  # noqa: F401
    from weft.terminal import uncaught  # noqa: F401


def _hello(options: InitOptions) -> DriverHello:
    """What this driver's workers need: they import what it can import, in the same folder and environment."""
    from weft.engine.wire.messages import DriverHello
    from weft.exceptions import package_name

    environment = dict(os.environ)
    if package_name() == "ray":
        environment["RAY_MEANS_WEFT"] = "1"
    if options.logging_config is not None:
        environment["WEFT_LOGGING"] = options.logging_config.text()
    if options.own_logging is not None:
        environment |= options.own_logging.variables()
    return DriverHello(
        pid=os.getpid(),
        sys_path=[os.path.abspath(entry) if entry else os.getcwd() for entry in sys.path],
        cwd=os.getcwd(),
        environment=environment,
        namespace=context_state.state.namespace,
        log_to_driver=options.log_to_driver,
        runtime_env=context_state.state.runtime_env,
    )


def shutdown(_exiting_interpreter: bool = False) -> None:
    """Detach, and end the node if this driver started it. Nothing happens when not attached. Arrays that were read stay
    as they are; on a node that goes on, this process copies them for that.

    >>> context = weft.init(num_cpus=1)
    >>> weft.shutdown()
    >>> weft.shutdown()  # a second time is no mistake
    """
    global _current
    unanswered: list[Callable[[], object]] = []
    with _lock:
        session = _current
        if session is None or session.pid != os.getpid():
            return
        from weft.engine.process.session import rpc

        _current = None
        try:
            if _native.is_attached():
                _show_last_output(session)
                unanswered = _native.detach(keeps_arrays=session.node_goes_on and not _exiting_interpreter)
        finally:
            rpc.fail_all()
            session.attachment.close()
        _end_slurm_cluster()
        _drop_copies()
        hooks.end()
        session.uncaught.withdraw()
        session.host.logs.flush()
        if session.options.own_logging is not None:
            from weft.engine.process.telling import own_logging

            own_logging.withdraw()
        context_state.reset()
    for call in unanswered:
        _call(call)


def _call(call: Callable[[], object]) -> None:
    """Who awaits a value of the session learns that it is over. What a call raises is printed."""
    try:
        call()
    except Exception:
        import traceback

        traceback.print_exc()


def _end_slurm_cluster() -> None:
    slurm = sys.modules.get("weft.slurm.slurm_cluster")
    if slurm is not None:
        slurm.end()


def _drop_copies() -> None:
    """The folders that were copied for runtime environments go with the job."""
    folders = sys.modules.get("weft.environments.env_folders")
    if folders is not None:
        folders.release()


def _show_last_output(session: Session) -> None:
    """What workers have written is printed before the session's end; a daemon that hangs is not waited for."""
    from weft.engine.process.session import rpc

    if session.options.log_to_driver and _native.statistics()["tasks_submitted"]:
        with contextlib.suppress(Exception):
            rpc.request("flush_output", timeout_s=_LAST_OUTPUT_S)


def _forget() -> None:
    """Drop what is left of a session whose daemon died, or of a parent process."""
    global _current
    if _current is not None:
        shutdown()
        _current = None


def context() -> SessionContext:
    """Of the session that runs now."""
    from weft.engine.process.session.session_context import SessionContext

    state = context_state.state
    return SessionContext(state.address, state.node_id, state.node_ip, state.namespace, shutdown)


def _at_exit() -> None:
    if _current is not None and _current.pid == os.getpid():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shutdown(True)


def _after_fork_in_child() -> None:
    """Another thread of the parent may have held it, and is not here to let go."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
