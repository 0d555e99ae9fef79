"""`weft replay`: a failed task or call again, here in the foreground, from what was recorded when it failed."""

from __future__ import annotations

import argparse
import importlib
import os
import pickle
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import IO, Any

from weft.cli.options import Commands, add_address, add_command
from weft.engine.cluster.client import Client
from weft.net.shown import printable, printable_lines
from weft.replay import recorded_actors
from weft.replay.recorded_inputs import SMALL_BYTES, Inputs, read


def add(commands: Commands) -> None:
    replay = add_command(
        commands,
        "replay",
        _replay,
        "run a failed task, or an actor up to the failing call, again, here, under a debugger",
        "Runs a task that failed again, in this process, with the function and the arguments that it had. Of an "
        "actor's call the actor is made again: with all calls before it where WEFT_RECORD_CALLS=1 was set, else with "
        "the state that it had when the call had failed. What it submits runs here too. A node keeps the inputs of "
        "what failed last: 16 MiB of small ones, and 16 of up to 256 MiB each. Ends with 0 when it returns this time, "
        "with 1 when it raises.",
        "weft replay 3f2a91\nweft replay 3f2a91 --break\nweft replay 3f2a91 --debugger ipdb",
    )
    replay.add_argument("task", metavar="TASK", help="its id, or the beginning of it, as `weft explain` shows it")
    replay.add_argument("--break", dest="stop", action="store_true", help="stop at its first line")
    replay.add_argument(
        "--debugger",
        default="pdb" if sys.stdin.isatty() else "none",
        metavar="MODULE",
        help="with pdb's post_mortem() and runcall(); none: only the traceback (default: pdb at a terminal)",
    )
    add_address(replay)


def _replay(options: argparse.Namespace) -> int:
    client = Client(options.address, options.token_file)
    wanted = options.task.lower()
    if len(wanted) < 4:
        raise ValueError(f"a task's id, or at least four letters of it, is wanted, but got {options.task!r}")
    found = [(task, size) for node in client.ask("inputs", task=wanted) for task, size in node]
    if not found:
        raise LookupError(f"no inputs of a failed task {options.task} are kept: {_why_not(client, wanted)}")
    if len(found) > 1:
        raise LookupError(f"several tasks begin so: {', '.join(task for task, _ in found)}")
    task, size = found[0]
    with _fetched(client, task, size) as file:
        return _run(options, task, file)


def _why_not(client: Client, task: str) -> str:
    for node in client.ask("errors"):
        for row in node["errors"]:
            if row["task_id"].startswith(task) and row.get("why_not"):
                return str(printable(row["why_not"], 500))
    return "it may not have failed, or be too long ago"


def _fetched(client: Client, task: str, size: int) -> IO[bytes]:
    """All of it, part by part, at its beginning. LookupError when it has given way meanwhile."""
    file = tempfile.SpooledTemporaryFile(max_size=SMALL_BYTES)  # noqa: SIM115
    while (offset := file.tell()) < size:
        parts = [part for part in client.ask("inputs_part", task=task, offset=offset) if part]
        if not parts:
            raise LookupError(f"the inputs of task {task} have just given way to newer ones")
        file.write(parts[0])
    file.seek(0)
    return file


def _run(options: argparse.Namespace, task: str, file: IO[bytes]) -> int:
    import weft

    weft.init(local_mode=True)  # what it submits, and the refs inside its arguments, are in this process
    try:
        inputs = read(file)
        name = inputs.method or getattr(inputs.function, "__qualname__", inputs.function)
        print(f"weft: replays {printable(str(name))}, task {task}, in {os.getcwd()}", flush=True)
        if inputs.note:
            print(f"weft: {printable_lines(inputs.note)}", flush=True)
        return _run_here(options, inputs)
    finally:
        weft.shutdown()


def _run_here(options: argparse.Namespace, inputs: Inputs) -> int:
    debugger: Any = None if options.debugger == "none" else importlib.import_module(options.debugger)
    function = inputs.function if not inputs.method else getattr(_actor(inputs), inputs.method)
    recorded_actors.expect(inputs.answers, inputs.is_recorded)
    try:
        if options.stop:
            value = _whole(
                (debugger or importlib.import_module("pdb")).runcall(function, *inputs.args, **inputs.kwargs)
            )
        else:
            value = _whole(function(*inputs.args, **inputs.kwargs))
    except Exception as error:
        traceback.print_exception(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
        if debugger is not None:
            debugger.post_mortem(error.__traceback__)
        return 1
    print(f"weft: it returned {printable(repr(value), 1000)} this time")
    return 0


def _actor(inputs: Inputs) -> Any:
    """The instance as it was before the call."""
    from weft.engine.process.actors.recorded_calls import restore_state

    cls = pickle.loads(inputs.cls) if isinstance(inputs.cls, bytes) else inputs.cls
    if inputs.made is not None:
        args, kwargs = pickle.loads(inputs.made)
        recorded_actors.expect(inputs.answers_made, inputs.is_recorded)
        instance = cls(*args, **kwargs)
    else:
        assert inputs.state is not None
        instance = restore_state(cls, pickle.loads(inputs.state))
    for number, packed in enumerate(inputs.calls, 1):
        method, args, kwargs = pickle.loads(packed)
        if inputs.answers_before:
            recorded_actors.expect(inputs.answers_before[number - 1], inputs.is_recorded)
        words = f"weft: call {number} of {len(inputs.calls)} before it, {printable(method)}"
        try:
            _whole(getattr(instance, method)(*args, **kwargs))
            print(words, flush=True)
        except Exception as error:  # as it did the first time
            print(f"{words}, raised {printable(repr(error), 200)}", flush=True)
    return instance


def _whole(value: Any) -> Any:
    """What came of it: of a coroutine its result, of a generator all its items."""
    if hasattr(value, "__await__"):
        return _loop()(value)
    if hasattr(value, "__anext__"):
        return _loop()(_items(value))
    return list(value) if hasattr(value, "gi_frame") else value


async def _items(values: Any) -> list[Any]:
    return [value async for value in values]


_loops: list[Any] = []


def _loop() -> Callable[[Any], Any]:
    """Runs a coroutine on the one loop of all calls."""
    import asyncio

    if not _loops:
        _loops.append(asyncio.new_event_loop())
    return _loops[0].run_until_complete  # type: ignore[no-any-return]
