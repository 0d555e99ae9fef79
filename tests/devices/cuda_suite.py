"""Tensors on a CUDA device: opened where they lie, right after kernels, in every dtype and shape; where there is a GPU.

Run by `test_cuda.py` in a process of its own: who has used CUDA has threads and descriptors for good.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import weft
from waiting import wait_until
from weft import train
from weft.devices import cuda, holder

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("there is no CUDA device that PyTorch can use here", allow_module_level=True)

LARGE = 1_000_000
torch.ones(LARGE, device="cuda").cpu()  # CUDA has threads and descriptors from now on, which are no leak of a test
pytestmark = pytest.mark.usefixtures("session")
ON_GPU: dict[str, Any] = {"num_gpus": 0.1, "num_cpus": 0}


@weft.remote(**ON_GPU)
class Member:
    def __init__(self, variables: dict[str, str] | None = None) -> None:
        os.environ.update(variables or {})
        self.kept: list[Any] = []

    def make(self, value: float, size: int = LARGE, dtype: Any = torch.float32) -> Any:
        return torch.full((size,), value, device="cuda").to(dtype)

    def slowly(self) -> Any:
        """The kernels run long after the method has returned to Python."""
        made = torch.zeros(LARGE, device="cuda")
        big = torch.rand(8192, 8192, device="cuda")
        for _ in range(20):
            big = big @ big
            big /= big.norm()
        return made + 3 + 0 * big.sum()

    def of(self, value: Any) -> Any:
        return value

    def make_and_write(self) -> Any:
        self.kept.append(torch.ones(LARGE, device="cuda"))
        return self.kept[-1]

    def write(self) -> None:
        self.kept[-1].add_(1)

    def put(self) -> list[Any]:
        self.kept.append(torch.ones(LARGE, device="cuda"))
        return [weft.put(self.kept[-1])]

    def state_dict(self) -> Any:
        torch.manual_seed(0)
        model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(20)]).cuda()
        return model.state_dict()

    def total(self, value: Any) -> tuple[float, str]:
        return float(value.double().sum()), value.device.type

    def publish(self, weights: train.Weights) -> float:
        state = self.state_dict()
        weights.publish(state)
        return float(state["0.weight"].double().sum())

    def read_weights(self, weights: train.Weights) -> tuple[int, str, float]:
        version, state = weights.read()
        self.kept.append(state)
        return version, state["0.weight"].device.type, float(state["0.weight"].double().sum())

    def address(self, value: Any) -> int:
        return int(value.data_ptr())

    def keep(self, value: Any) -> None:
        self.kept.append(value)

    def drop(self) -> None:
        self.kept.clear()

    def held(self) -> int:
        return sum(row["device_bytes"] for row in holder.server().rows())

    def spilled(self) -> int:
        return holder.server().spilled

    def allocated(self) -> int:
        return int(torch.cuda.memory_allocated())

    def pid(self) -> int:
        return os.getpid()


@pytest.fixture(scope="module")
def session() -> Iterator[None]:
    weft.init(num_cpus=4, num_gpus=1)
    yield
    weft.shutdown()


@pytest.fixture(scope="module")
def members(session: None) -> Any:
    return Member.remote(), Member.remote()


def test_a_tensor_goes_from_actor_to_driver_and_to_another_actor_where_it_lies(members: Any) -> None:
    first, second = members
    ref = first.make.remote(2.0)
    value = weft.get(ref)
    assert value.device.type == "cuda"
    assert float(value.sum()) == 2 * LARGE
    assert torch.cuda.memory_allocated() == 0  # no memory of this process's own
    assert weft.get(second.total.remote(ref)) == (2.0 * LARGE, "cuda")
    value[0] = 5  # the same memory for all who read it
    assert weft.get(second.total.remote(ref))[0] == 2 * LARGE + 3


def test_memory_goes_with_the_last_ref_and_tensor(members: Any) -> None:
    first, second = members
    ref = first.make.remote(2.0)
    weft.get(second.keep.remote(ref))
    del ref
    assert weft.get(first.held.remote()) >= 4 * LARGE
    weft.get(second.drop.remote())
    wait_until(lambda: weft.get(first.held.remote()) == 0)
    assert weft.get(first.allocated.remote()) == 0


DTYPES = (
    "float32 float64 float16 bfloat16 float8_e4m3fn float8_e5m2 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool "
    "complex64 complex128"
).split()


@pytest.mark.parametrize("size", [0, 7, 2_000_000], ids=["empty", "small", "large"])
@pytest.mark.parametrize("name", DTYPES)
def test_a_tensor_of_every_dtype_comes_back_equal(members: Any, name: str, size: int) -> None:
    dtype = getattr(torch, name)
    want = torch.randint(0, 255, (size * dtype.itemsize,), dtype=torch.uint8, device="cuda")
    if name == "bool":
        want = (want > 100).view(torch.uint8)
    want = want.view(dtype)
    found = weft.get(members[0].of.remote(want))
    assert (found.dtype, found.shape, found.device.type) == (dtype, want.shape, "cuda")
    assert torch.equal(found.view(torch.uint8), want.view(torch.uint8))


def test_strides_views_of_one_storage_and_parameters_stay_what_they_are(members: Any) -> None:
    base = torch.arange(2_000_000, device="cuda", dtype=torch.float32).reshape(1000, 2000)
    found = weft.get(
        members[0].of.remote({"all": base, "part": base[5:, ::2].t(), "parameter": torch.nn.Parameter(base)})
    )
    assert torch.equal(found["part"], base[5:, ::2].t())
    assert found["part"].stride() == base[5:, ::2].t().stride()
    assert found["part"].untyped_storage().data_ptr() == found["all"].untyped_storage().data_ptr()
    assert isinstance(found["parameter"], torch.nn.Parameter) and found["parameter"].requires_grad


def test_a_sparse_tensor_goes_by_its_parts(members: Any) -> None:
    with torch.sparse.check_sparse_tensor_invariants(True):  # PyTorch warns where nothing was chosen
        sparse = torch.eye(1000, device="cuda").to_sparse()
        found = weft.get(weft.put(sparse))
    assert torch.equal(found.to_dense(), torch.eye(1000, device="cuda"))


def test_a_reader_sees_what_kernels_wrote_that_had_not_run_when_the_method_returned(members: Any) -> None:
    first, second = members
    assert weft.get(second.total.remote(first.slowly.remote()))[0] == pytest.approx(3 * LARGE)


def test_a_state_dict_of_many_tensors_comes_whole(members: Any) -> None:
    ref = members[0].state_dict.remote()
    found = weft.get(ref)
    model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(20)]).cuda()
    model.load_state_dict(found)
    torch.manual_seed(0)
    same = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(20)])
    assert all(torch.equal(a.cpu(), b) for a, b in zip(model.parameters(), same.parameters(), strict=True))


def test_writing_to_what_was_returned_is_told_and_to_what_was_put_does_no_harm(members: Any) -> None:
    first, second = members
    ref = first.make_and_write.remote()
    assert weft.get(second.total.remote(ref))[0] == LARGE
    weft.get(first.write.remote())
    with pytest.raises(ValueError, match="written to afterwards"):
        weft.get(ref)
    [put] = weft.get(first.put.remote())
    weft.get(first.write.remote())
    assert float(weft.get(put).sum()) == LARGE
    weft.get(first.drop.remote())


def test_writable_is_a_copy_on_the_device(members: Any) -> None:
    ref = members[0].make.remote(1.0)
    own = weft.get(ref, writable=True)
    own.zero_()
    assert own.device.type == "cuda"
    assert float(weft.get(ref).sum()) == LARGE


def test_a_reader_without_a_gpu_gets_a_tensor_of_the_host(members: Any) -> None:
    blind = weft.remote(num_cpus=0)(lambda value: (value.device.type, float(value.double().sum())))
    assert weft.get(blind.remote(members[0].make.remote(3.0, 50_000_000))) == ("cpu", 150_000_000.0)


def test_where_sharing_is_forbidden_it_goes_through_the_host_to_the_device(members: Any) -> None:
    apart = Member.remote({"WEFT_DEVICE_IPC": "0"})
    assert weft.get(apart.total.remote(members[0].make.remote(3.0, 50_000_000))) == (150_000_000.0, "cuda")


def test_put_places_tensors_on_a_device_or_on_the_host() -> None:
    value = torch.arange(LARGE, dtype=torch.float32)
    found = weft.get(weft.put({"x": value}, device="cuda:0"))["x"]
    assert found.device == torch.device("cuda:0")
    assert torch.equal(found.cpu(), value)
    assert weft.get(weft.put(value.cuda(), device="cpu")).device.type == "cpu"


def test_a_full_budget_spills_to_the_host_and_back(members: Any) -> None:
    maker = Member.remote({holder.BUDGET_VARIABLE: str(8 * LARGE)})
    refs = [maker.make.remote(float(number)) for number in range(6)]
    weft.wait(refs, num_returns=6)
    assert weft.get(maker.spilled.remote()) == 4
    assert weft.get(maker.held.remote()) == 8 * LARGE
    assert [weft.get(members[1].total.remote(ref))[0] for ref in refs] == [number * LARGE for number in range(6)]


def test_what_a_killed_worker_held_is_made_again() -> None:
    @weft.remote(**ON_GPU, max_retries=3)
    def make() -> Any:
        return torch.full((LARGE,), 4.0, device="cuda"), os.getpid()

    ref = make.remote()
    pid = weft.get(ref)[1]
    os.kill(pid, signal.SIGKILL)
    again, other = weft.get(ref)
    assert other != pid
    assert float(again.sum()) == 4 * LARGE


def test_what_is_open_stays_readable_when_its_holder_is_killed() -> None:
    member = Member.remote()
    value = weft.get(member.make.remote(6.0))
    weft.kill(member)
    torch.cuda.synchronize()
    assert float(value.sum()) == 6 * LARGE


def test_arrays_of_cupy_are_opened_where_they_lie(members: Any) -> None:
    cupy = pytest.importorskip("cupy")

    @weft.remote(**ON_GPU)
    def make() -> Any:
        import cupy

        return cupy.arange(LARGE, dtype=cupy.float32).reshape(1000, -1)

    found = weft.get(make.remote())
    assert isinstance(found, cupy.ndarray)
    assert float(found[999, 999]) == LARGE - 1
    own = cupy.ones(LARGE, cupy.float32)
    ref = weft.put(own)
    own[:] = 0
    assert float(weft.get(ref).sum()) == LARGE


def test_many_passes_leave_no_memory_on_the_device(members: Any) -> None:
    first, second = members
    before = torch.cuda.mem_get_info()[0]
    for _ in range(200):
        weft.get(second.total.remote(first.make.remote(1.0)))
    wait_until(lambda: weft.get(first.held.remote()) == 0)
    assert before - torch.cuda.mem_get_info()[0] < 64 << 20


def test_a_node_offers_the_kind_of_its_gpu() -> None:
    kinds = [name for name in weft.cluster_resources() if name.startswith("accelerator_type:")]
    assert kinds, cuda.driver().devices()

    @weft.remote(accelerator_type=kinds[0].partition(":")[2], num_gpus=0.1)
    def runs() -> bool:
        return bool(torch.cuda.is_available())

    assert weft.get(runs.remote())


# ---- groups by NCCL, and weights -------------------------------------------------------------------


@weft.remote(**ON_GPU)
class Alone:
    """The one member of a group: NCCL wants a GPU for each, and there may be but one here."""

    def __init__(self, meeting: train.Meeting) -> None:
        self.group = meeting.join(0)

    def all(self) -> list[Any]:
        group, value, rows = self.group, torch.arange(6.0, device="cuda"), torch.arange(6.0, device="cuda")[None]
        return [
            group.all_reduce(value.clone(), "mean"),
            group.reduce(value.clone(), 0, "max"),
            group.reduce_scatter(rows)[0],
            group.all_gather(value)[0],
            group.gather(value, 0)[0],
            group.scatter(torch.zeros_like(value), rows, 0),
            group.broadcast(value.clone()),
            group.all_to_all(rows)[0],
        ]

    def after_a_kernel(self) -> float:
        """What is still being computed when the operation is asked for is waited for."""
        big = torch.rand(4096, 4096, device="cuda")
        for _ in range(20):
            big = big @ big
            big /= big.norm()
        return float(self.group.all_reduce(torch.ones(LARGE, device="cuda") + 0 * big.sum())[-1])

    def errors(self) -> list[str]:
        told = []
        for bad in (torch.ones(3, 3, device="cuda").t(), torch.ones(3, dtype=torch.int16, device="cuda"), [1]):
            try:
                self.group.all_reduce(bad)
            except (TypeError, ValueError) as error:
                told.append(str(error))
        return [*told, str(self.group.all_reduce(torch.ones(1)).item()), str(self.group.all_reduce(np.ones(1))[0])]


def test_a_group_by_nccl_does_all_operations(session: None) -> None:
    member = Alone.remote(train.Meeting(1, backend="nccl"))
    for found in weft.get(member.all.remote()):
        assert found.device.type == "cuda"
        assert found.tolist() == [0, 1, 2, 3, 4, 5]
    assert weft.get(member.after_a_kernel.remote()) == 1.0
    strides, element, kind, host_tensor, host = weft.get(member.errors.remote())
    assert "must be contiguous" in strides
    assert "all_reduce on a device takes" in element
    assert "must be of NumPy, PyTorch or JAX" in kind
    assert (host_tensor, host) == ("1.0", "1.0")


def test_two_members_on_one_gpu_are_both_told_that_nccl_cannot(session: None) -> None:
    meeting = train.Meeting(2, backend="nccl")

    @weft.remote(**ON_GPU)
    def member(rank: int) -> str:
        with meeting.join(rank) as group:
            try:
                group.all_reduce(torch.ones(LARGE, device="cuda"))
            except (train.GroupError, RuntimeError) as error:  # NCCL's own words where it was noticed
                return type(error).__name__
        return ""

    if torch.cuda.device_count() == 1:
        assert all(weft.get([member.remote(rank) for rank in range(2)]))


def test_collective_groups_in_rays_words_go_by_nccl(session: None) -> None:
    @weft.remote(**ON_GPU)
    def member() -> tuple[bool, list[float]]:
        from weft.compat.ray.util import collective

        collective.init_collective_group(1, 0, "nccl", "on_gpu")
        tensor = torch.ones(3, device="cuda")
        collective.allreduce(tensor, "on_gpu")
        parts = [torch.zeros(3, device="cuda")]
        collective.allgather(parts, tensor, "on_gpu")
        collective.destroy_collective_group("on_gpu")
        return collective.nccl_available(), parts[0].tolist()

    assert weft.get(member.remote()) == (True, [1, 1, 1])


def test_weights_are_read_where_the_learner_has_them(members: Any) -> None:
    learner, reader = members
    weights = train.Weights()

    @weft.remote(num_cpus=0)
    def on_host(weights: train.Weights) -> tuple[int, str, float]:
        version, state = weights.read()
        return version, state["0.weight"].device.type, float(state["0.weight"].double().sum())

    total = weft.get(learner.publish.remote(weights))
    before = weft.get(reader.allocated.remote())
    version, kind, found = weft.get(reader.read_weights.remote(weights))
    assert (version, kind, found) == (1, "cuda", total)
    assert weft.get(reader.allocated.remote()) - before < 64 * 1024 + 20 * 512 * 4 * 2  # biases are copied
    assert [weft.get(on_host.remote(weights))[:2] for _ in range(2)] == [(1, "cpu")] * 2
    total = weft.get(learner.publish.remote(weights))
    assert weft.get(reader.read_weights.remote(weights)) == (2, "cuda", total)
    weft.get([member.drop.remote() for member in members])
