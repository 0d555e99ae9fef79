"""A policy as one file: safetensors with the weights by name, and in its metadata all that acting needs beside them.

    policy.safetensors    __metadata__["weft.rl.policy"]: JSON
        format            1
        algorithm, seed   whose policy it is
        observation, action    the spaces (`space_descriptions.py`), from which the preprocessing follows
        behaviour         how actions are chosen, and the network: its class and sizes, part by part

A running mean of observations is among the weights. Reading takes NumPy and nothing else: no JAX, no Gymnasium and no
environment. Nothing in a file is executable, and a class that is not one of PARTS is refused.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.rl.space_descriptions import described, space_of
from weft.rl.spaces import ActionDecoder, ObservationEncoder

FORMAT = 1
KEY = "weft.rl.policy"
DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32, "U8": np.uint8}
PARTS = {
    "ActorCritic": "models",
    "CNN": "networks",
    "ContinuousModel": "continuous_models",
    "Deterministic": "behaviours",
    "EpsilonGreedy": "behaviours",
    "GRU": "recurrent",
    "LSTM": "recurrent",
    "MLP": "networks",
    "NoisyDeterministic": "behaviours",
    "QModel": "q_models",
    "RecurrentActorCritic": "recurrent",
    "RecurrentStochastic": "recurrent",
    "Squashed": "behaviours",
    "Stochastic": "behaviours",
}


class PolicyFileError(ValueError):
    """The file is no policy, or damaged; or a policy that no file can hold."""


@dataclasses.dataclass(frozen=True)
class PolicyParts:
    """What a policy is made of."""

    algorithm: str
    behaviour: Any
    encoder: ObservationEncoder
    decoder: ActionDecoder
    params: Mapping[str, NDArray[Any]]
    seed: int


def metadata_of(algorithm: str, behaviour: Any, encoder: Any, decoder: Any, seed: int) -> dict[str, str]:
    """What stands beside the weights; PolicyFileError for a policy that cannot be described."""
    if not isinstance(encoder, ObservationEncoder):
        raise PolicyFileError("several agents' policies are no single file: save policy_of(agent) for each")
    try:
        description = {
            "format": FORMAT,
            "algorithm": algorithm,
            "seed": seed,
            "observation": described(encoder.space),
            "action": described(decoder.space),
            "behaviour": _described_part(behaviour),
        }
    except ValueError as error:
        raise PolicyFileError(f"the policy of {algorithm} cannot be described in a file: {error}") from error
    return {KEY: json.dumps(description)}


def write_policy(path: str | os.PathLike[str], params: Mapping[str, NDArray[Any]], metadata: dict[str, str]) -> Path:
    """Write it beside its place and rename it: a reader sees all of it or what was there before."""
    import tempfile

    from safetensors.numpy import save_file

    target = Path(path).absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    os.close(handle)
    try:
        save_file({name: np.asarray(value, order="C") for name, value in params.items()}, beside, metadata)
        os.chmod(beside, 0o644)
        os.replace(beside, target)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise
    return target


def read_policy(path: str | os.PathLike[str]) -> PolicyParts | None:
    """What the file holds; None if it has weights alone, as that of a policy that cannot be described."""
    params, metadata = read_tensors(path)
    if KEY not in metadata:
        return None
    try:
        description = json.loads(metadata[KEY])
        if description["format"] != FORMAT:
            raise PolicyFileError(f"{path} has format {description['format']}, but this version reads {FORMAT}")
        decoder = ActionDecoder(space_of(description["action"]))
        encoder = ObservationEncoder(space_of(description["observation"]), decoder)
        behaviour = _part_of(description["behaviour"])
        return PolicyParts(description["algorithm"], behaviour, encoder, decoder, params, description["seed"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, PolicyFileError):
            raise
        raise PolicyFileError(f"{path} is damaged, or of a newer version: {type(error).__name__}: {error}") from error


def read_tensors(path: str | os.PathLike[str]) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The arrays of a safetensors file by name, and its metadata."""
    if Path(path).is_dir():
        raise PolicyFileError(f"{path} is a folder; if it is a checkpoint, use Policy.from_checkpoint")
    data = Path(path).read_bytes()
    try:
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        metadata = header.pop("__metadata__", {})
        arrays = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            dtype, shape = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"])
            if not 0 <= begin <= end <= len(data) - 8 - length or end - begin != math.prod(shape) * dtype.itemsize:
                raise ValueError(f"{name} does not lie within the file")
            arrays[name] = np.frombuffer(data, dtype, math.prod(shape), 8 + length + begin).reshape(shape)
    except (struct.error, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise PolicyFileError(
            f"{path} is no safetensors file, or is damaged: {type(error).__name__}: {error}"
        ) from error
    return arrays, metadata


def _described_part(part: Any) -> Any:
    """A behaviour, a model or a network in plain values."""
    if isinstance(part, tuple):
        return [_described_part(member) for member in part]
    if part is None or isinstance(part, str | int | float | bool):
        return part
    kind = type(part).__name__
    if kind not in PARTS or type(part).__module__ != f"weft.rl.{PARTS[kind]}":
        raise ValueError(f"{kind} is a program; export_onnx writes networks of users, too")
    fields = [f.name for f in dataclasses.fields(part)] if dataclasses.is_dataclass(part) else _arguments(part)
    return {"kind": kind, **{name: _described_part(getattr(part, name)) for name in fields}}


def _part_of(stored: Any) -> Any:
    if isinstance(stored, list):
        return tuple(_part_of(member) for member in stored)
    if not isinstance(stored, dict):
        return stored
    kind = stored["kind"]
    if kind not in PARTS:
        raise PolicyFileError(f"the file names {kind!r}, which is no part of a policy in this version")
    arguments = {name: _part_of(value) for name, value in stored.items() if name != "kind"}
    return getattr(importlib.import_module(f"weft.rl.{PARTS[kind]}"), kind)(**arguments)


def _arguments(behaviour: Any) -> list[str]:
    """What a behaviour is made with; they are kept under the same names."""
    return [name for name in ("model", "correlation") if hasattr(behaviour, name)]
