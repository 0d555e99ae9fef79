"""`weft replay`: a failed task again, here in the foreground, from the inputs that were recorded when it failed."""

from __future__ import annotations

import argparse
import importlib
import os
import pickle
import sys
import traceback
from typing import Any

from weft.cli.options import Commands, add_address, add_command
from weft.cli.state import printable
from weft.engine.cluster.client import Client


def add(commands: Commands) -> None:
    replay = add_command(
        commands,
        "replay",
        _replay,
        "run a failed task again, here, under a debugger",
        "Runs a task that failed again, in this process, with the function and the arguments that it had. A node keeps "
        "the inputs of the tasks that failed last, 16 MiB in all and 1 MiB each; not of those that were given refs "
        "inside other values, nor of calls of actors. Ends with 0 when it returns this time, with 1 when it raises.",
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
    found = [(task, inputs) for node in client.ask("inputs", task=options.task.lower()) for task, inputs in node]
    if not found:
        raise LookupError(
            f"no inputs of a failed task {options.task} are kept. It may not have failed, be a call of an actor, have "
            "had refs or more than 1 MiB in its arguments, or be too long ago"
        )
    if len(found) > 1:
        raise LookupError(f"several tasks begin so: {', '.join(task for task, _ in found)}")
    task, inputs = found[0]
    function, args, kwargs = _unpacked(inputs)
    name = printable(getattr(function, "__qualname__", function))
    print(f"weft: replays {name}, task {task}, in {os.getcwd()}", flush=True)
    return _run(options, function, args, kwargs)


def _unpacked(inputs: bytes) -> Any:
    """(function, args, kwargs). Modules are found where the task found them, and files from its folder."""
    path, folder, packed = pickle.loads(inputs)
    sys.path += [entry for entry in path if entry not in sys.path]
    if os.path.isdir(folder):
        os.chdir(folder)
    try:
        return pickle.loads(packed)
    except ModuleNotFoundError as error:
        raise LookupError(f"a module of the task is not found here: {error}") from error


def _run(options: argparse.Namespace, function: Any, args: Any, kwargs: Any) -> int:
    debugger: Any = None if options.debugger == "none" else importlib.import_module(options.debugger)
    try:
        if options.stop:
            value = (debugger or importlib.import_module("pdb")).runcall(function, *args, **kwargs)
        else:
            value = function(*args, **kwargs)
    except Exception as error:
        traceback.print_exception(type(error), error, error.__traceback__ and error.__traceback__.tb_next)
        if debugger is not None:
            debugger.post_mortem(error.__traceback__)
        return 1
    print(f"weft: it returned {printable(repr(value), 1000)} this time")
    return 0
