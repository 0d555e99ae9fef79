"""The native core's interface. One process attaches to one segment at a time; the state is the process's."""

from asyncio import Future as AsyncFuture
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextvars import Context, ContextVar
from typing import Any, Generic, Literal, NoReturn, Protocol, TypeAlias, TypeVar

T_co = TypeVar("T_co", covariant=True)

# ---- the node daemon's end -------------------------------------------------------------------------

SpillCode: TypeAlias = Literal[
    "done", "no_room", "nothing", "gone", "elsewhere", "disk_failed", "over_limit", "stopped"
]
"""What became of a request to the spill file; see `native/spilling.hpp`."""

class SessionEnded(RuntimeError):
    """The session ended while the call was running."""

class VirtualProcess:
    """What a process submits, in a simulation: `native/virtual_process.hpp`. Processes are numbers from 1 on."""

    def __init__(self, is_alive: Callable[[int], bool]) -> None: ...
    def set_time(self, now_ns: int) -> None:
        """Of the events that follow."""
    def submit(self, bunch: int, count: int, function: int, shape: int, retries: int) -> None: ...
    def create_actor(self, actor: bytes, spec: bytes, task: bytes) -> None: ...
    def call(self, actor: bytes, bunch: int, count: int, retries: int) -> None: ...
    def hear(self, kind: int, payload: bytes) -> None:
        """A record of the daemon's; of the process numbered n the name is (2**20 + n, 1)."""
    def answered(self, worker: int, bunch: int, indices: list[int], took_ns: int) -> int:
        """How many of them were that worker's to answer, as far as is known here."""
    def handed_back(self, worker: int, bunch: int, indices: list[int]) -> None: ...
    def return_idle(self) -> int:
        """Leases that were idle for long go back; in how many nanoseconds the next one is due, -1 for none."""
    def take_sent(self) -> list[tuple[int, int, bytes | list[int]]]:
        """In order: to the daemon (0, kind, record); to others (number, bunch, indices of tasks)."""
    def take_done(self) -> list[tuple[int, int, bool]]:
        """Tasks that are over: bunch, index, whether it failed."""
    @property
    def leases(self) -> int: ...

class NodePort:
    """Slots 0 and 1 of a new segment. Used by the daemon's one thread only."""

    def __init__(self, arena_bytes: int, events: int = 8192, slots: int = 1024) -> None: ...
    @property
    def segment_fd(self) -> int: ...
    @property
    def event_fd(self) -> int:
        """Readable when `drain` has something; non-blocking."""
    def reserve_slot(self) -> tuple[int, int]:
        """A fresh (slot, generation); records may be sent to it before its process exists."""
    def drain(self) -> list[tuple[int, int, int, bytes]]:
        """All records that have come: (slot, generation, kind, payload), in order for each slot."""
    def linger(self, limit_ns: int) -> bool:
        """Stay awake for a moment after a request: whether something came, which the next drain has."""
    def send(self, slot: int, generation: int, kind: int, payload: bytes) -> bool:
        """False when that process is dead."""
    def take_ledger(
        self, slot: int, generation: int
    ) -> list[tuple[bytes, bool, int, int, list[bytes], tuple[int, int, int] | None, bytes]]:
        """What a dead process had lent: (id, is it lent, function, shape, ids it needs, entry, body).

        An entry of the arena has its generation and its bytes with it.

        Before `mark_dead`."""

    def take_objects(self, slot: int, generation: int) -> list[tuple[int, int]]:
        """The entries that a dead process of another node owned here: the daemon's from now on. Before `mark_dead`."""
    def mark_dead(self, slot: int, generation: int) -> list[tuple[int, int]]:
        """Clear its pins, take back its memory, and name the processes that share a ring with it.

        Each of them must be sent PEER_DIED. Call `drain` first: what it had published still counts."""
    def release_slot(self, slot: int, generation: int) -> bool:
        """Give the slot back. False while a living peer still holds a ring with it; try again later."""
    def statistics(self) -> dict[str, int]:
        """arena_bytes, used_bytes, objects, slots_used, ring_blocks_used."""
    def events(self, since: dict[int, int], most: int) -> list[tuple[int, int, int, int, bytes]]:
        """[(slot, skipped, first, written, events)]: of each slot that recorded any, those from the number on that
        `since` has for it, at most the newest `most`. `first` is the number of the first one, `written` of the one
        behind the last, `skipped` how many were left out so far; `observe/event_records.py` reads them."""
    def tallies(self) -> list[int]:
        """Sums over all processes that ever were, in the order of `engine.observe.events.TALLIES`."""
    def record(self, kind: int, at_ns: int, duration_ns: int, bytes: int, name: str = "") -> None:
        """An event of the daemon's own."""
    def begin_recording(self, folders: list[str], limit: int) -> None:
        """From now on a thread keeps what the rings had, in a file without a name of so many bytes at most."""
    def end_recording(self) -> None:
        """Ends that thread and its file."""
    def take_recorded(self) -> tuple[int, int, int, int, list[tuple[bytes, int, int, int, int, int]]]:
        """Events (recorded, missed, thinned out, refused by the disk), and of each function (name, runs, failed,
        retried, ns, ns of the longest), since the last call; `refused` since the beginning."""
    def find_runs(self, from_ns: int, to_ns: int, name: bytes, is_unwell: bool, is_longest: bool, most: int) -> bytes:
        """Events of the runs that ended in that time, as `events` has them: the newest first, or the longest. Waits for
        the disk; any thread may call it."""
    def begin_spilling(self, folders: list[str], limit: int) -> None:
        """Once, before what follows: where the spill file may be, and how many bytes it may have."""
    def end_spilling(self) -> None:
        """Ends the thread that works on the file, and the file. What is asked for and not done is left as it is."""
    @property
    def spill_fd(self) -> int:
        """Readable when `take_spilled` has something; non-blocking."""
    def ask_room(self, bytes: int) -> int:
        """Spill until so much is free in one piece: a ticket."""
    def ask_restore(self, entry: int, generation: int) -> int:
        """Bring a spilled object back: a ticket."""
    def take_spilled(self) -> list[tuple[int, SpillCode, int, int, str]]:
        """(ticket, code, bytes, errno, folder) of what is done. `no_room` has the bytes that were to be read."""
    def has_entry(self) -> bool:
        """Whether the object table takes one more."""
    def room_may_come(self, slot: int) -> bool:
        """Whether what could not be spilled may be now or later: an object that nobody reads is there, a process other
        than that one reads one, or one is being written, moved or freed."""
    def largest_objects(self, count: int) -> list[tuple[int, int, int]]:
        """(bytes, owner slot, pins) of the largest objects in the arena."""
    def close(self) -> None: ...

    # -- other nodes: a process elsewhere has a name here, its proxy; records to and from it go through the relay --
    def add_proxy(self, node: int, far_slot: int, far_generation: int) -> tuple[int, int]:
        """A (slot, generation) that stands for that process of another node, until its death (mark_dead).

        RuntimeError when more are known than there are names for."""
    def is_proxy(self, slot: int) -> bool: ...
    def is_alive(self, slot: int, generation: int) -> bool:
        """Of a process of this node, or of one that a proxy stands for."""
    def set_node(self, node: int) -> None:
        """This node's own number."""
    def far_name(self, slot: int, generation: int) -> tuple[int, int, int]:
        """(node, slot, generation) of a process as its own node knows it."""
    def name_import(
        self, entry: int, generation: int, node: int, far_entry: int, far_generation: int, size: int
    ) -> None:
        """Where the bytes of an import are."""
    def forget_import(self, entry: int, generation: int) -> None: ...
    def pass_on(self, node: int, sender: tuple[int, int], to: tuple[int, int], kind: int, payload: bytes) -> None:
        """Append a record to the node's batch, in the link's names. ValueError when it is cut short."""
    def nodes_with_output(self) -> list[int]:
        """Nodes that `take_batch` has something for.

        Call it once all that `drain` gave is handled: only then `take_batch` gives what was read with it."""
    def take_batch(self, node: int) -> bytes:
        """What processes of this node have sent to that one since the last call, as of the last `drain`."""
    def hold_link(self, node: int) -> None:
        """Read no more records for that node: its link is full."""
    def release_link(self, node: int) -> None:
        """Go on; `event_fd` becomes readable."""
    def remove_link(self, node: int) -> None:
        """The node is gone."""
    def deliver(
        self, node: int, batch: bytes | bytearray | memoryview, at: int, refusal: bytes
    ) -> tuple[
        int,
        tuple[list[tuple[int, int, int]], list[tuple[int, int, int, int]], tuple[int, int], int]
        | tuple[tuple[int, int], tuple[int, int], int, bytes]
        | None,
    ]:
        """Write the records of a batch, from `at` on, to the processes that they are for. ValueError when it is none.

        How far it came, and None at its end. Otherwise what must be decided before it goes on: the processes and
        objects that the next record speaks of and that are not known here, whom it is for, and its kind; or a record
        from or to a daemon: sender, receiver, kind, payload.

        A `refusal` is an error value: in the first record it stands for each object that is not known here."""
    def refuse_records(self, slot: int, generation: int) -> None:
        """That process is about to end: drop what other nodes send to it."""
    def to_link(self, kind: int, payload: bytes) -> bytes:
        """A record of this daemon, in the link's names, as `deliver` takes it. ValueError when it is malformed."""
    def row_to_link(self, body: bytes) -> bytes:
        """The body of a row of a ledger, in the link's names. ValueError when it is cut short."""
    def row_from_link(
        self, body: bytes, dead: tuple[int, int, int]
    ) -> tuple[bytes, list[tuple[int, int, int]], list[tuple[int, int, int, int]]]:
        """The same in this node's names: (body, processes, objects); of no use while there are names that are new here.

        What that dead process owned has no owner in it."""
    def import_object(self, size: int, slot: int, generation: int) -> tuple[int, int]:
        """(entry, generation) for an object whose bytes are on another node, owned by that local process or proxy.

        A reader asks for it with RESTORE."""
    def begin_receiving(self, entry: int, generation: int, size: int) -> memoryview | None:
        """Where to write the bytes of an imported object; None when there is no room, or it is gone, or here."""
    def end_receiving(self, entry: int, generation: int, arrived: bool) -> None: ...
    def begin_sending(self, entry: int, generation: int) -> memoryview | None:
        """The bytes of an object, kept in place until end_sending; None when they are not in memory here."""
    def end_sending(self, entry: int, generation: int) -> None: ...
    def exists(self, entry: int, generation: int) -> bool:
        """False once it was deleted and its entry freed."""
    def accept(self, entry: int, generation: int) -> None:
        """The owner, on another node, has learnt of it: it no longer dies with its writer."""
    def remove(self, entry: int, generation: int) -> None:
        """Nobody refers to it any more: free it once nobody reads it."""

# ---- a driver's or a worker's end ------------------------------------------------------------------

class Host(Protocol):
    """What the core calls back. Every method runs with the GIL."""

    def serialize(self, value: object, what: str) -> tuple[bytes, list[Any]] | tuple[bytes, list[Any], bool]:
        """Pickle with protocol 5: the bytes, and the out-of-band buffers (anything with the buffer protocol).

        `what` names the value for errors: "args[0] of task f"."""
    def deserialize(self, data: memoryview, buffers: list[memoryview]) -> object: ...
    def raise_error(self, error: bytes) -> NoReturn:
        """Raise what an error value holds (see `error_value`)."""
    def on_event(self, kind: int, payload: bytes) -> None:
        """A CONTROL record from the daemon. Runs on the core's callback thread."""
    def on_daemon_lost(self) -> None:
        """The daemon is gone; everything pending has been failed. Runs on the callback thread."""
    # -- workers only --
    def bind_job(self, payload: bytes) -> None:
        """Before the first function is loaded: messages.BindJob."""
    def load_function(self, payload: bytes) -> Any:
        """Unpickle a function or a class."""
    def dump_error(self, error: BaseException, name: str, retry_types: bytes) -> tuple[bytes, bool]:
        """(error value, may be retried) for what a task or method raised."""
    def keep_inputs(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Of a task that raised, before `dump_error`: what it was called with."""
    def create_actor(self, cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], actor: bytes) -> Any:
        """Make the instance; `concurrency` below is asked for afterwards."""
    def is_concurrent(self) -> bool:
        """Whether the actor's calls go through `start_call` instead of being run one by one."""
    def start_call(self, call: PendingCall, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run it on a thread or an event loop, then call.finish(value) or call.fail(error)."""

class ObjectRef(Generic[T_co]):
    """A reference to a value that exists or will. Awaitable; what needs asyncio is added by `objects/refs.py`."""

    def __await__(self) -> Generator[Any, None, T_co]: ...
    def future(self) -> Future[T_co]: ...
    def as_future(self) -> AsyncFuture[T_co]: ...
    def done(self) -> bool: ...
    def result(self, timeout: float | None = None) -> T_co: ...
    def exception(self, timeout: float | None = None) -> BaseException | None: ...
    def add_done_callback(
        self, callback: Callable[[ObjectRef[T_co]], object], *, context: Context | None = None
    ) -> None: ...
    def remove_done_callback(self, callback: Callable[[ObjectRef[T_co]], object]) -> int: ...
    def binary(self) -> bytes: ...
    def hex(self) -> str: ...
    def is_ready(self) -> bool: ...
    def owner(self) -> tuple[int, int]: ...

class ActorToken:
    """One counted reference to an actor; pickles like a ref. The last one's end ends the actor."""

    def binary(self) -> bytes: ...
    def weak(self) -> ActorToken:
        """The same actor, uncounted."""

class PendingCall:
    """A call of a concurrent actor that is under way."""

    def finish(self, value: object) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def cancelled(self) -> None:
        """Answer that it was cancelled."""
    def cancel_children(self) -> None:
        """Cancel what it has submitted, if it was cancelled and its caller wants that."""
    def streams(self) -> bool:
        """Whether the caller wants a stream of items before finish(None)."""
    def item(self, value: object) -> int:
        """Stream one value: 1 go on, 0 wait until room() is not 0, -1 stop, nobody reads on."""
    def room(self) -> int: ...
    def task(self) -> tuple[bytes, str] | None:
        """(task id, name); None once answered."""

class RemoteCall:
    """`f.remote`: submits a task at each call. `prepare(self)` runs when the session is new to it and must `bind`, or
    return what to call in its place, this time."""

    def __init__(
        self,
        prepare: Callable[[RemoteCall], Callable[..., Any] | None],
        name: str,
        num_returns: int,
        max_retries: int,
        retry_exceptions: bool,
        retry_types: bytes,
        window: int = 256,
        check: tuple[Callable[..., object], int, int] | None = None,
        writable: bool = False,
    ) -> None:
        """`num_returns` -1: a generator, whose ref goes to `next_item`, at most `window` items ahead. `writable`: the
        task may write to its arguments.

        `check`: (function, least, most): called with the arguments, to raise TypeError, unless they are positional
        and their number lies between the two."""
    def bind(self, function_key: int, shape: int) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """A ref; None for num_returns 0; a list of refs for more than 1."""

class ActorCall:
    """`handle.method.remote`."""

    def __init__(
        self,
        actor: ActorToken,
        method: str,
        num_returns: int,
        max_retries: int,
        retry_exceptions: bool,
        name: str,
        window: int = 256,
        check: tuple[Callable[..., object], int, int] | None = None,
        ordered: bool = True,
        retry_types: bytes = b"",
        writable: bool = False,
    ) -> None:
        """As RemoteCall. Not `ordered`: a call whose arguments are there may overtake earlier ones."""
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

def attach(
    segment_fd: int,
    event_fd: int,
    slot: int,
    generation: int,
    host: Host,
    root_task: bytes,
    is_worker: bool,
    daemon_socket_fd: int = -1,
) -> None:
    """Join the segment. `root_task` (12 bytes, unique) is what ids derive from.

    A driver passes the socket to its daemon, whose end of file means that the daemon died."""

def detach(keeps_arrays: bool = False) -> list[Callable[[], object]]:
    """Leave it: pending calls of other threads end in an error, threads are joined, the mapping goes
    once no value reads from it. What `on_ready` and `on_item` were given and nothing came for is returned, to be
    called once the session is over."""

def is_attached() -> bool: ...
def is_fork() -> bool: ...
def is_lost() -> bool:
    """Whether the node daemon is gone; everything then fails at once."""

def session() -> int:
    """Counts attaches; 0 when not attached."""

def run_worker() -> int:
    """A worker's life; the exit status."""

def ring_when_idle(fd: int) -> bool:
    """Write to that eventfd when the worker's main thread, which calls this, needs the GIL no longer.

    False on another thread, and where no worker runs."""

class Exported:
    """A function or class that is known under `key` (a 64-bit hash), and sent to each process that needs it, once.

    Kept while this, or a RemoteCall that was bound to it, lives, and as long as a task needs it."""

    key: int
    def __init__(self, key: int, payload: bytes) -> None: ...

class DeviceLost(Exception):
    """Raised by what reads a value whose bytes were in memory of a device, and are gone with their process: the value
    is lost then, and made again if it can be."""

def put(value: object) -> ObjectRef[Any]: ...
def put_result(value: object) -> ObjectRef[Any]: ...
def _restore_ref(id: bytes, owner: int) -> ObjectRef[Any]:
    """As a pickled ref is read: slot and generation of the owner are the halves of that number."""

def put_error(error: bytes) -> ObjectRef[Any]:
    """A ref whose `get` raises what the error value holds."""

def promise() -> ObjectRef[Any]:
    """The ref of a value that this process gives later."""

def keep_promise(ref: ObjectRef[Any], value: object, error: bytes) -> None:
    """Give it: the value, or the error value when that is not empty. Only the first time counts."""

def get(refs: Any, timeout_s: float = -1.0, writable: bool = False) -> Any:
    """One ref's value, or a list's values. Raises weft's GetTimeoutError through `raise_error`."""

def set_loop_variable(variable: ContextVar[Any]) -> None:
    """Where coroutines, which share a thread, say to which call they belong: what they submit is that call's child."""

def allocate(bytes: int) -> Any:
    """A buffer for an array that is filled where it will be stored: in the object memory of the node. None where the
    process has half as many mappings as it may."""

def own_memory(buffer: Any) -> Any:
    """The bytes of a buffer, writable and seen by nobody else: private pages of what is in object memory, the buffer
    itself if it is writable, else a copy."""

def memory_of(owner: object, address: int, bytes: int) -> Any:
    """That memory as a buffer, which keeps the owner."""

def wait(
    refs: Sequence[Any], num_returns: int, timeout_s: float = -1.0, due_ns: int = 0, fetch_local: bool = True
) -> tuple[list[Any], list[Any]]:
    """(ready, rest). It spins for `due_ns` before it sleeps. With `fetch_local` the bytes of what is ready are here."""

def next_item(ref: ObjectRef[Any], timeout_s: float = -1.0) -> ObjectRef[Any] | None:
    """The next item of a generator task; None at its end. An exception of the generator is its last item."""

def on_item(ref: ObjectRef[Any], callback: Callable[[], None]) -> None:
    """Run it on the callback thread once an item, or the end, has come."""

def has_item(ref: ObjectRef[Any]) -> bool: ...
def close_stream(ref: ObjectRef[Any]) -> None:
    """No more items are wanted: the generator is closed, what has come is freed."""

def cancel(ref: ObjectRef[Any], force: bool, recursive: bool) -> int:
    """0 ended before it started, 1 its worker was asked to stop it, 2 it is over (or another process's),
    3 a call of an actor cannot be forced."""

def is_cancelled() -> bool:
    """Whether the task on this worker's main thread was cancelled.

    A call of a concurrent actor is cancelled by an event of kind 70 whose payload is its task id."""

def take_interrupt() -> bool:
    """Whether the handler of SIGUSR1 shall raise: the task was cancelled, its own code runs, and nothing was raised in
    it since. The signal comes again and again until this was true."""

def interrupt_again() -> None:
    """What the handler raised was caught by nobody."""

def title_prefix(prefix: str) -> None:
    """What stands before a task's name in this worker's title, as ps shows it."""

def exit_worker() -> None:
    """This worker ends once the current task is answered."""

def resign() -> None:
    """The call that this thread runs is its actor's last: it is answered with SystemExit, whatever it returns."""

def retire_worker() -> None:
    """This worker takes no further task: those that were sent to it go back, its lease too, and then it is ended."""

def on_freed(ref: ObjectRef[Any], callback: Callable[[], None]) -> None:
    """Call back, in the core's own thread, when no ref to an object of this process is left anywhere. Nobody does when
    the process ends, or another takes the object over from it."""

def mark() -> ObjectRef[Any]:
    """An object with nothing in it, whose refs are counted: `on_freed` tells that none is left. Its id is this
    process's own."""

def keep(ref: ObjectRef[Any]) -> None:
    """What outlives all processes is about to name it: its owner holds it from now on, and has the store know its
    row."""

def retry_in(cookie: int, shape: int) -> None:
    """Queue a task again whose worker was stopped for memory, among those of that shape."""

def on_ready(ref: ObjectRef[Any], callback: Callable[[], None]) -> None:
    """Run it on the callback thread once the ref is ready (soon, when it is already)."""

def send(kind: int, payload: bytes) -> None:
    """One record to the node daemon."""

def new_actor() -> ActorToken:
    """The token of an actor that this process owns; its id derives from the current task."""

def create_actor(
    token: ActorToken, spec: bytes, class_key: int, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Send the daemon the creation (messages.ActorSpec and the encoded call) once its arguments are ready."""

def actor_token(actor: bytes) -> ActorToken:
    """An uncounted token of an actor known by its id alone (a named or detached one)."""

def error_value(code: int, text: str) -> bytes:
    """An error value of the engine's own: b"S", the code, the text. Python's are b"P" and a pickle.

    Codes: 1 worker crashed, 2 actor died, 3 owner died, 4 object lost, 5 cancelled, 6 node lost,
    7 actor unavailable, 8 out of memory, 9 get timed out, 10 can never be placed."""

def current_task() -> tuple[bytes, int, str, bytes]:
    """(task id, attempt, name, actor id or b"") of the calling thread."""

def set_current_task(task: bytes, name: str) -> None:
    """Adopt a task on another thread of a concurrent actor."""

def explain(ref: ObjectRef[Any]) -> dict[str, Any]:
    """What this process knows of an object: state, task, worker, what is ahead of it, bytes, holds, how many refs are
    in it; arena, its entry and generation, where the state is "in the arena"…"""

def held_objects(most: int) -> list[dict[str, Any]]:
    """At most so many of the objects that this process holds: id, state, owner, bytes, holds, borrowers' counts."""

def submitted_tasks(most: int) -> list[dict[str, Any]]:
    """At most so many of this process's tasks: task, parent and actor ids, name, state, attempt, worker (slot, ...),
    shape (-1 of an actor's call), waits_for (ids of some arguments that are not there yet)."""

def long_waits(
    asked: list[bytes],
) -> tuple[list[tuple[int, int, float, str, list[bytes]]], list[tuple[bytes, str, list[bytes], int, str]]]:
    """What has waited for more than a second without a deadline: (number, thread, wall clock at its begin, task's name,
    ids of objects); and why those objects and the `asked` ones are not there, as far as they are this process's own:
    (object, kind, ids, shape, task's name). Kinds: "t" a task that was sent, "o" other objects, "a" an actor that is
    not up, "s" a worker of that shape."""

def waiting_tasks(most: int) -> tuple[bytes, list[bytes]]:
    """The task on this worker's main thread (or b""), and at most so many that wait for it to end."""

def break_wait(number: int, error: bytes) -> bool:
    """End that long wait with the error value; False when it is over."""

def statistics() -> dict[str, int]:
    """Counters of this process: tasks_submitted, tasks_run, objects_owned, objects_borrowed, pending_tasks,
    leases, lineage_tasks and lineage_bytes (in memory), lineage_disk_bytes, lineage_input_bytes (values that are kept
    only because lineage needs them), tasks_rebuilt, functions (that it may call), definitions (that others sent it),
    actors (that it knows of, dead ones included)."""

def limit_lineage(memory_bytes: int, disk_bytes: int) -> None:
    """How much lineage this process keeps in memory; what is older goes to disk, up to the second limit."""

def spin_limit_us(limit: int) -> None:
    """How long a waiter spins at most before it sleeps."""

# ---- collective operations -------------------------------------------------------------------------

class GroupMember:
    """One process's place in a group that works over one block of shared memory; see weft.util.shared_block.

    Leaves the group when it is collected. One thread may use it at a time."""

    def __init__(self, block: object, size: int, slot_bytes: int, rank: int, timeout_s: float) -> None:
        """`block` shows zeroed shared memory by the buffer protocol; a negative timeout means none."""
    @staticmethod
    def block_bytes(size: int, slot_bytes: int) -> int:
        """How large the block of such a group must be."""
    def perform(
        self,
        operation: int,
        element: int,
        reduction: int,
        root: int,
        shape: Sequence[int],
        source: object | None,
        target: object | None,
        peer: int = -1,
    ) -> tuple[str, int, int, _Request | None, _Request | None] | None:
        """None when it was done, else (what, rank, why, rank 0's request, that rank's request)."""
    def set_timeout(self, timeout_s: float) -> None: ...
    def sees_loss(self) -> bool:
        """Whether somebody is gone; the next operation says who, unless all had come to it."""
    def leave(self) -> None: ...

def exchange_bytes(flows: list[tuple[int, Sequence[Any], Sequence[Any]]], quiet_s: float) -> tuple[str, int] | None:
    """Send and receive over sockets that do not block, each (descriptor, buffers to send, buffers to fill), without the
    GIL. None when all is done, else ("closed" or "silent" for `quiet_s`, which of the flows)."""

def reduce_arrays(element: int, reduction: int, arrays: list[Any], out: object) -> None:
    """Reduce arrays of equal sizes, in their order, into `out`, which may be one of them, as a group does."""

_Request = tuple[int, int, int, int, tuple[int, ...]]
