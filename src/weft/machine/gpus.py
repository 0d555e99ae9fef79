"""How busy a machine's NVIDIA GPUs are, by the driver's own library (NVML), without any package.

The library can take seconds to answer at first, so a thread of its own asks it, started by the first question and
ended when nobody has asked for `IDLE_S`. Where there is no such library there are no figures, and no thread.
"""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Any

EVERY_S = 1.0
IDLE_S = 30.0
LIBRARY = "libnvidia-ml.so.1"
_LONGEST_NAME = 96


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Utilisation(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Nvml:
    """The library, loaded. OSError where it is not, or its driver does not answer."""

    def __init__(self, path: str = LIBRARY) -> None:
        self._library = ctypes.CDLL(path)
        self._call("nvmlInit_v2")

    def read(self) -> list[dict[str, Any]]:
        """One row a device; what a device does not tell is None."""
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        return [self._device(index) for index in range(count.value)]

    def close(self) -> None:
        self._call("nvmlShutdown")

    def _device(self, index: int) -> dict[str, Any]:
        device = ctypes.c_void_p()
        self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
        name = ctypes.create_string_buffer(_LONGEST_NAME)
        memory, utilisation = _Memory(), _Utilisation()
        named = self._tells("nvmlDeviceGetName", device, name, ctypes.c_uint(_LONGEST_NAME))
        has_memory = self._tells("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
        has_use = self._tells("nvmlDeviceGetUtilizationRates", device, ctypes.byref(utilisation))
        return {
            "index": index,
            "name": name.value.decode(errors="replace") if named else "",
            "utilisation_percent": int(utilisation.gpu) if has_use else None,
            "memory_used_bytes": int(memory.used) if has_memory else None,
            "memory_total_bytes": int(memory.total) if has_memory else None,
        }

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise OSError(f"{name} answers {code}")

    def _tells(self, name: str, *arguments: Any) -> bool:
        return not getattr(self._library, name)(*arguments)


class GpuReader:
    """The newest figures; asking never waits."""

    def __init__(self, path: str = LIBRARY) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._asked_s = 0.0
        self._rows: list[dict[str, Any]] | None = None
        self._is_reading = False
        self._is_missing = False

    def rows(self) -> list[dict[str, Any]] | None:
        """None as long as nothing is known: no such GPUs here, or the first question is under way."""
        with self._lock:
            self._asked_s = time.monotonic()
            if not self._is_reading and not self._is_missing:
                self._is_reading = True
                threading.Thread(target=self._read, name="weft-gpus", daemon=True).start()
            return self._rows

    def _read(self) -> None:
        try:
            library = Nvml(self._path)
        except (OSError, AttributeError):
            with self._lock:
                self._is_missing = True
            return
        while self._goes_on():
            try:
                found: list[dict[str, Any]] | None = library.read()
            except (OSError, AttributeError):  # the driver is being changed, say
                found = None
            with self._lock:
                self._rows = found
            time.sleep(EVERY_S)
        library.close()

    def _goes_on(self) -> bool:
        with self._lock:
            if time.monotonic() - self._asked_s < IDLE_S:
                return True
            self._is_reading, self._rows = False, None
            return False
