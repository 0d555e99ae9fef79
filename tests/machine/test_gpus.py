"""GPUs as the driver's library tells of them, here a small one of our own."""

from __future__ import annotations

import shutil
import subprocess
import threading
from pathlib import Path

import pytest

from weft.dashboard import prometheus
from weft.machine.gpus import GpuReader, Nvml

SOURCE = """
int nvmlInit_v2(void) { return STATE; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(unsigned long)(index + 1);
    return 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned bytes) { name[0] = 'G'; name[1] = 0; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *of) { of[0] = 80; of[1] = 50; of[2] = 30; return 0; }
int nvmlDeviceGetUtilizationRates(void *device, unsigned *of) {
    of[0] = 75; of[1] = 5;
    return device == (void *)1 ? 0 : 3; /* the second one does not tell */
}
"""


def library(folder: Path, state: int) -> str:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    source, made = folder / "nvml.c", folder / "libnvml.so"
    source.write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", f"-DSTATE={state}", "-o", made, source], check=True)
    return str(made)


def test_each_device_tells_what_it_can(tmp_path: Path) -> None:
    first, second = Nvml(library(tmp_path, 0)).read()
    assert first == {
        "index": 0,
        "name": "G",
        "utilisation_percent": 75,
        "memory_used_bytes": 30,
        "memory_total_bytes": 80,
    }
    assert second["utilisation_percent"] is None
    names = {metric[0]: metric[3] for metric in prometheus._gpus([first, second], {"node": "n"})}
    assert [sample.value for sample in names["weft_node_gpu_utilisation_ratio"]] == [0.75]
    assert len(names["weft_node_gpu_memory_bytes"]) == 2


def test_a_driver_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nvmlInit_v2 answers 9"):
        Nvml(library(tmp_path, 9))


def test_without_the_library_there_is_nothing_and_no_second_try() -> None:
    reader = GpuReader("libthere-is-no-such-thing.so")
    assert reader.rows() is None
    while not reader._is_missing:
        threading.Event().wait(0.01)
    assert reader.rows() is None and reader._is_reading
    assert prometheus._gpus([], {}) == []
