"""Tensors, JAX arrays, Polars frames and other values with buffers: read without a copy, and as they were."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import weft
from weft.engine.process.session import rpc

LARGE = 200_000


def passed(value: Any) -> Any:
    return weft.get(weft.put(value))


def mappings_of_segment() -> list[tuple[int, int]]:
    """Where object memory is mapped in this process."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        if "memfd:weft" in line:
            first, last = line.split()[0].split("-")
            found.append((int(first, 16), int(last, 16)))
    return found


def is_in_object_memory(address: int) -> bool:
    return any(first <= address < last for first, last in mappings_of_segment())


def used_bytes() -> int:
    return int(rpc.request("statistics")["used_bytes"])


pytestmark = pytest.mark.usefixtures("shared_weft_session")


# ---- PyTorch ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


DTYPES = (
    "float32 float64 float16 bfloat16 float8_e4m3fn float8_e5m2 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool "
    "complex64 complex128"
).split()


@pytest.mark.parametrize("size", [0, 7, LARGE], ids=["empty", "small", "large"])
def test_a_tensor_of_each_dtype_is_read_as_it_was_put(torch: Any, size: int) -> None:
    values = {name: (torch.arange(size) % 2).to(getattr(torch, name)) for name in DTYPES}
    got = passed(values)
    for name, value in values.items():
        assert got[name].dtype is value.dtype
        assert got[name].shape == value.shape
        assert torch.equal(got[name].view(torch.uint8), value.view(torch.uint8)), name


def test_a_large_tensor_is_read_in_object_memory(torch: Any) -> None:
    assert is_in_object_memory(passed(torch.ones(LARGE)).data_ptr())


def test_strides_offsets_and_shared_storages_stay(torch: Any) -> None:
    whole = torch.arange(LARGE).reshape(400, 500)
    turned, part, repeated = passed((whole.t(), whole[3:5, ::7], torch.ones(1).expand(1000)))
    assert torch.equal(turned, whole.t())
    assert turned.stride() == (1, 500)
    assert torch.equal(part, whole[3:5, ::7])
    assert part.untyped_storage().data_ptr() == turned.untyped_storage().data_ptr()
    assert repeated.stride() == (0,)
    turned[1, 3] = -1
    assert part.storage_offset() == 1500
    assert whole[3, 1] == 1501


def test_what_torch_says_of_a_tensor_stays(torch: Any) -> None:
    leaf = torch.ones(LARGE, requires_grad=True)
    parameter = torch.nn.Parameter(torch.zeros(LARGE), requires_grad=False)
    conjugate = torch.full((LARGE,), 1 + 2j).conj()
    named = torch.ones(LARGE)
    named.label = "weights"
    got = passed([leaf, parameter, conjugate, named, leaf * 2])
    assert got[0].requires_grad
    assert got[0].is_leaf
    assert isinstance(got[1], torch.nn.Parameter)
    assert not got[1].requires_grad
    assert torch.equal(got[2], conjugate)
    assert got[2].is_conj()
    assert got[3].label == "weights"
    assert got[4].requires_grad
    (got[0] * 3).sum().backward()
    assert got[0].grad[0] == 3


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_has_no_plain_buffer_takes_the_slow_path(torch: Any) -> None:
    values = {
        "sparse": torch.eye(300).to_sparse().requires_grad_(),
        "csr": torch.eye(300).to_sparse_csr(),
        "nested": torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)]),
        "quantized": torch.quantize_per_tensor(torch.arange(LARGE) / 7, 0.5, 1, torch.quint8),
    }
    got = passed(values)
    assert torch.equal(got["sparse"].to_dense(), torch.eye(300))
    assert got["sparse"].requires_grad
    assert torch.equal(got["nested"].to_padded_tensor(0.0), values["nested"].to_padded_tensor(0.0))
    assert got["csr"].layout is torch.sparse_csr
    assert torch.equal(got["csr"].to_dense(), torch.eye(300))
    assert got["quantized"].q_scale() == 0.5
    assert torch.equal(got["quantized"].dequantize(), values["quantized"].dequantize())
    assert passed(torch.empty(3, device="meta")).device.type == "meta"


@dataclasses.dataclass
class Batch:
    inputs: Any
    labels: dict[str, Any]


def test_models_state_dicts_and_dataclasses_keep_their_tensors(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.BatchNorm1d(300))
    tied = torch.nn.Linear(300, 300)
    tied.weight = model[0].weight
    again, again_tied, state = passed([model, tied, model.state_dict()])
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)
        assert torch.equal(state[name], value)
    assert again_tied.weight is again[0].weight
    assert is_in_object_memory(again[0].weight.data_ptr())
    with torch.no_grad():
        again[0].weight.add_(1)
    batch = passed(Batch(torch.ones(LARGE), {"y": torch.zeros(LARGE)}))
    assert is_in_object_memory(batch.inputs.data_ptr())
    assert batch.labels["y"].sum() == 0


# ---- other libraries -------------------------------------------------------------------------------


def test_jax_arrays_are_read_in_object_memory() -> None:
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    for dtype in (jnp.float32, jnp.int8, jnp.bool_, jnp.complex64, jnp.bfloat16, jnp.float8_e5m2):
        array = (jnp.arange(LARGE) % 2).astype(dtype).reshape(400, 500)
        got = passed({"x": array})["x"]
        assert isinstance(got, jax.Array)
        assert got.dtype == array.dtype
        assert bool((got == array).all())
        assert is_in_object_memory(got.unsafe_buffer_pointer()), dtype
    assert int(passed(jnp.int4(3))) == 3
    assert passed(jnp.asarray(2.0)).weak_type == jnp.asarray(2.0).weak_type
    assert passed(jnp.zeros((0, 3))).shape == (0, 3)
    assert passed(jnp.asarray(5)).shape == ()


def test_a_donated_jax_array_harms_no_other_reader() -> None:
    jax = pytest.importorskip("jax")
    ref = weft.put(jax.numpy.zeros(LARGE))
    double = jax.jit(lambda x: x + 1, donate_argnums=0)
    assert float(double(weft.get(ref)).sum()) == LARGE
    assert float(weft.get(ref).sum()) == 0


@weft.remote
def pass_frames() -> None:
    """Not in the driver: what Polars does by itself for an Enum starts threads that stay."""
    import datetime

    import polars as pl

    frame = pl.DataFrame(
        {
            "i": np.arange(LARGE),
            "s": [f"a string that is longer than twelve {i}" for i in range(LARGE)],
            "b": [True, None] * (LARGE // 2),
            "l": [[1, 2], None] * (LARGE // 2),
            "t": [datetime.datetime(2024, 1, 1), None] * (LARGE // 2),
            "st": [{"x": 1.5, "y": "z"}] * LARGE,
            "e": pl.Series(["u", "v"] * (LARGE // 2), dtype=pl.Enum(["u", "v"])),
            "c": pl.Series(["u", "v"] * (LARGE // 2), dtype=pl.Categorical),
            "w": pl.Series([1] * LARGE, dtype=pl.Int128),
        }
    )
    for value in (frame, frame.drop("e", "c", "w"), frame.head(3), frame.clear(), pl.DataFrame()):
        got = passed(value)
        assert got.schema == value.schema
        assert got.equals(value)
    series = passed({"x": frame["i"]})["x"]
    assert series.name == "i"
    assert series.equals(frame["i"])
    assert is_in_object_memory(series.to_numpy().ctypes.data)


def test_polars_frames_and_series_are_as_they_were() -> None:
    pytest.importorskip("polars")
    weft.get(pass_frames.remote())


def test_a_small_part_of_a_large_polars_frame_travels_alone() -> None:
    pl = pytest.importorskip("polars")

    @weft.remote
    def pass_slice() -> int:
        frame = pl.DataFrame({"s": [f"a string that is longer than twelve {i}" for i in range(100_000)]})
        before = used_bytes()
        ref = weft.put([frame.slice(5, 3), np.zeros(LARGE // 8)])
        assert weft.get(ref)[0].equals(frame.slice(5, 3))
        return used_bytes() - before

    assert weft.get(pass_slice.remote()) < 1 << 20


def test_bytes_views_and_kinds_of_numpy_arrays() -> None:
    masked = np.ma.masked_array(np.arange(LARGE), np.arange(LARGE) % 3 == 0, fill_value=-5, hard_mask=True)
    structured = np.zeros(LARGE, dtype=[("a", "i4"), ("b", "f8", (2,))])
    structured["b"][7] = 3
    matrix = memoryview(np.arange(LARGE, dtype=np.int32).reshape(400, 500))
    got = passed(
        {
            "masked": masked,
            "plain": np.ma.array([1.0, 2.0]),
            "structured": structured,
            "matrix": matrix,
            "n": b"x" * LARGE,
        }
    )
    assert (got["masked"] == masked).all()
    assert (got["masked"].mask == masked.mask).all()
    assert got["masked"].fill_value == -5
    assert got["masked"].hardmask
    assert got["plain"].mask is np.ma.nomask
    assert is_in_object_memory(got["masked"].data.ctypes.data)
    assert got["structured"].dtype == structured.dtype
    assert (got["structured"] == structured).all()
    assert got["matrix"] == matrix
    assert got["matrix"].readonly
    assert got["matrix"].shape == (400, 500)
    assert got["n"] == b"x" * LARGE
    for value in (b"y" * LARGE, b"y" * (3 << 20), bytearray(b"z" * LARGE), bytearray(b"z")):
        assert passed(value) == value
        assert type(passed(value)) is type(value)
    assert passed(memoryview(bytes(range(200)) * 1000)[::2]) == bytes(range(0, 200, 2)) * 1000


@pytest.mark.parametrize(
    "array",
    [
        np.arange(LARGE, dtype=">i4"),
        np.zeros(5, dtype=[("a", "i4"), ("b", "f8")]),
        np.ones(LARGE, complex)[::2],
        np.ones((2, 3), np.float16),
        np.zeros((0, 3)),
        np.array(3.0),
        np.array([b"abc", b"d"]),
    ],
    ids=lambda array: str(array.dtype),
)
def test_views_of_all_formats_are_read_as_they_were(array: Any) -> None:
    got = passed(memoryview(array))
    assert (got.format, got.shape) == (memoryview(array).format, array.shape)
    assert got.tobytes() == array.tobytes()


def test_tensorflow_reads_in_object_memory() -> None:
    tf = pytest.importorskip("tensorflow")
    got = passed([tf.range(LARGE, dtype=tf.float32), tf.constant(["a"]), tf.cast([1, 2], tf.bfloat16)])
    assert is_in_object_memory(np.from_dlpack(got[0]).ctypes.data)
    assert (got[0].numpy() == np.arange(LARGE)).all()
    assert got[1].numpy().tolist() == [b"a"]
    assert got[2].dtype == tf.bfloat16


class Other:
    """An array of a library that Weft does not know, which has no pickle and speaks DLPack."""

    def __init__(self, array: Any, device: int = 1) -> None:
        self.array, self.device = array, device

    def __getstate__(self) -> Any:
        raise TypeError("cannot pickle an Other")

    def __dlpack__(self, **asked: Any) -> Any:
        return self.array.__dlpack__(**asked)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


def other_library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    library = ModuleType("other_library")
    library.from_dlpack = lambda array: Other(np.from_dlpack(array))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "other_library", library)
    monkeypatch.setattr(Other, "__module__", "other_library")
    return library


def test_what_speaks_dlpack_alone_is_read_in_object_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    other_library(monkeypatch)
    whole = np.arange(LARGE).reshape(400, 500)
    ref = weft.put({name: Other(array) for name, array in (("w", whole), ("t", whole.T), ("n", np.array(3.0)))})
    got = weft.get(ref)
    assert is_in_object_memory(got["w"].array.ctypes.data)
    assert (got["w"].array == whole).all()
    assert (got["t"].array == whole.T).all()
    assert got["n"].array == 3
    got["w"].array[0, 0] = 9
    assert weft.get(ref)["w"].array[0, 0] == 0


def test_what_cannot_go_by_dlpack_is_refused_by_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    library = other_library(monkeypatch)
    for value in (Other(np.zeros(3), device=2), Other(np.zeros(3, "M8[s]"))):
        with pytest.raises(TypeError, match="cannot pickle an Other"):
            weft.put(value)
    del library.from_dlpack
    with pytest.raises(TypeError, match="cannot pickle an Other"):
        weft.put(Other(np.zeros(3)))


def test_many_large_buffers_are_copied_together_and_whole() -> None:
    sizes = [0, 1, 64 * 1024, 64 * 1024 + 1, 1 << 20, (1 << 20) + 7, 5_000_001, 9 << 20, 3, 2 << 20]
    values = [np.random.default_rng(number).integers(0, 256, size, np.uint8) for number, size in enumerate(sizes)]
    for got, value in zip(passed(values), values, strict=True):
        assert np.array_equal(got, value)


def test_no_library_is_imported_for_values_of_others() -> None:
    program = (
        "import sys, weft, numpy as np\n"
        "weft.init(num_cpus=1)\n"
        "assert weft.get(weft.put([np.zeros(200_000), {'a': object}]))[0].sum() == 0\n"
        "print(sorted({'torch', 'jax', 'polars', 'pyarrow', 'pandas'} & set(sys.modules)))\n"
        "weft.shutdown()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=280)
    assert done.stdout == "[]\n", done.stderr


# ---- all ways --------------------------------------------------------------------------------------


def same(value: Any) -> Any:
    return value


@weft.remote
class Keeper:
    def __init__(self, value: Any) -> None:
        self.value = value

    def add(self, number: int) -> Any:
        self.value["w"] += number
        return self.value

    def stream(self, count: int) -> Any:
        for number in range(count):
            yield {"w": self.value["w"] + number}


def test_tensors_through_tasks_actors_and_streams(torch: Any, shared_weft_session: ModuleType) -> None:
    values = {"w": torch.arange(LARGE), "f": torch.ones(LARGE).to(torch.float8_e4m3fn)}
    ref = weft.put(values)
    for got in (weft.get(weft.remote(same).remote(ref)), weft.get(weft.remote(same).remote(values))):
        assert torch.equal(got["w"], values["w"])
        assert torch.equal(got["f"].view(torch.uint8), values["f"].view(torch.uint8))
    keeper = Keeper.remote(ref)
    # What the actor adds to its own is seen in what it answers, and in nothing that others read.
    assert torch.equal(weft.get(keeper.add.remote(1))["w"], values["w"] + 1)
    assert torch.equal(weft.get(keeper.add.remote(1))["w"], values["w"] + 2)
    assert torch.equal(weft.get(ref)["w"], values["w"])
    items = keeper.stream.options(num_returns="streaming").remote(3)
    for number, item in enumerate(items):
        assert torch.equal(weft.get(item)["w"], values["w"] + 2 + number)
