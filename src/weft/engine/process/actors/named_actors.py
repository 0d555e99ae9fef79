"""Actors by name. The node daemon keeps the names; a named actor's entry holds its id and description."""

from __future__ import annotations

import pickle
import sys
from typing import Any, cast

from weft import _native
from weft.engine.process.actors.actor_description import ActorDescription
from weft.engine.process.actors.actor_handle import ActorHandle
from weft.engine.process.calls import calls_made
from weft.engine.process.options import option_checks
from weft.engine.process.session import attached, context_state, rpc
from weft.exceptions import ActorAlreadyExistsError

Entry = tuple[bytes, ActorDescription]


def dump_handle(actor: bytes, description: ActorDescription) -> bytes:
    """What the daemon keeps for `get_actor`: no counted reference, so it does not keep the actor alive."""
    return pickle.dumps((actor, description), protocol=5)


def lookup(name: str, namespace: str) -> Entry | None:
    """The living actor of that name, or one that is about to live."""
    handle = rpc.request("get_actor", name=name, namespace=namespace)
    if not handle:
        return None
    entry: Entry = pickle.loads(handle)
    return entry


def find(name: Any, namespace: str | None) -> ActorHandle[Any]:
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"Please supply a non-empty name to get_actor, but got {name!r}")
    if namespace is not None and not isinstance(namespace, str):
        raise TypeError(f"namespace must be a string, but got {namespace!r}")
    if namespace is not None:
        option_checks.namespace("namespace", namespace)
    attached.ensure()
    chosen = context_state.here().namespace if namespace is None else namespace
    entry = lookup(name, chosen)
    if entry is None and (replayed := _replayed(name, namespace)) is not None:
        return cast(ActorHandle[Any], replayed)
    if entry is None:
        raise ValueError(
            f"Failed to look up actor with name '{name}': no living actor has it in namespace '{chosen}'. It was never "
            "created, has died, or is in another namespace."
        )
    if context_state.state.records_calls:
        calls_made.note_name(name, namespace, entry[1].class_name, entry[0])
    return handle_of(entry)


def _replayed(name: str, namespace: str | None) -> Any:
    """In `weft replay`: what stands for the actor that the task found when it ran."""
    recorded = sys.modules.get("weft.replay.recorded_actors")
    return None if recorded is None else recorded.named(name, namespace)


def handle_of(entry: Entry) -> ActorHandle[Any]:
    """Uncounted."""
    return ActorHandle(_native.actor_token(entry[0]), entry[1])


def claim(
    actor: bytes, description: ActorDescription, name: str, namespace: str, get_if_exists: bool
) -> ActorHandle[Any] | None:
    """Take the name for an actor that is about to be created. The other actor's handle when it is taken and
    `get_if_exists`, ActorAlreadyExistsError when it is taken and not."""
    try:
        taken = rpc.request(
            "claim_actor_name",
            actor=actor,
            name=name,
            namespace=namespace,
            handle=dump_handle(actor, description),
            get_if_exists=get_if_exists,
        )
    except ValueError:
        raise ActorAlreadyExistsError(
            f"The name '{name}' is already taken by an actor in namespace '{namespace}'. Please use a different name, "
            "find that actor with weft.get_actor(), or pass get_if_exists=True."
        ) from None
    return None if taken is None else handle_of(pickle.loads(taken))


def list_named_actors(all_namespaces: bool = False) -> list[Any]:
    """Names of living actors in this namespace; {"name", "namespace"} of all with `all_namespaces`.

    >>> @weft.remote
    ... class Known: ...
    >>> held = Known.options(name="known").remote()
    >>> "known" in list_named_actors()
    True
    """
    attached.ensure()
    found = rpc.request("list_named_actors", all_namespaces=all_namespaces, namespace=context_state.here().namespace)
    entries = [(entry["name"], entry["namespace"]) for entry in found]
    if all_namespaces:
        return [{"name": name, "namespace": namespace} for name, namespace in entries]
    return [name for name, namespace in entries if namespace == context_state.here().namespace]
