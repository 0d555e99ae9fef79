"""CUDA, by the driver's own library (libcuda), without any package: the device memory of every framework is its.

Every call makes the device's primary context current, which is the one that the frameworks use, for as long as it
lasts. Calls into the library give the GIL up.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Iterator
from typing import Any

LIBRARY = "libcuda.so.1"
_NO_DEVICE, _OUT_OF_MEMORY, _ALREADY_REGISTERED = 100, 2, 712
_HANDLE_BYTES = 64
_PEER_ACCESS = 1
_NON_BLOCKING = 1
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL


class _Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * _HANDLE_BYTES)]


class CudaError(OSError):
    """What CUDA answered to a call."""

    def __init__(self, call: str, code: int, name: str) -> None:
        super().__init__(f"{call}: {name} ({code})")
        self.code = code


class Cuda:
    """The library, loaded. OSError where there is none."""

    def __init__(self, path: str = LIBRARY) -> None:
        self._library = ctypes.CDLL(path)
        self._lock = threading.Lock()
        self._streams: dict[tuple[str, int], ctypes.c_void_p] = {}
        self._contexts: dict[str, ctypes.c_void_p] = {}
        self._ordinals: dict[str, int] = {}
        try:
            self._call("cuInit", ctypes.c_uint(0))
        except CudaError as error:
            if error.code != _NO_DEVICE:
                raise
            return
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        for ordinal in range(count.value):
            uuid = (ctypes.c_ubyte * 16)()
            self._call("cuDeviceGetUuid_v2", ctypes.byref(uuid), ctypes.c_int(ordinal))
            self._ordinals[bytes(uuid).hex()] = ordinal

    def devices(self) -> list[str]:
        return list(self._ordinals)

    def device_of(self, address: int) -> str:
        ordinal = ctypes.c_int()
        self._call(
            "cuPointerGetAttribute", ctypes.byref(ordinal), ctypes.c_int(_DEVICE_ORDINAL), ctypes.c_uint64(address)
        )
        return self.devices()[ordinal.value]

    def total_bytes(self, device: str) -> int:
        total = ctypes.c_size_t()
        self._call("cuDeviceTotalMem_v2", ctypes.byref(total), ctypes.c_int(self._ordinals[device]))
        return total.value

    def export(self, address: int) -> tuple[bytes, int, int]:
        base, size, handle = ctypes.c_uint64(), ctypes.c_size_t(), _Handle()
        with self._current(self.device_of(address)):
            self._call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
            self._call("cuIpcGetMemHandle", ctypes.byref(handle), base)
        return bytes(handle.bytes), base.value, size.value

    def open(self, device: str, handle: bytes) -> int:
        base = ctypes.c_uint64()
        with self._current(device):
            self._call(
                "cuIpcOpenMemHandle_v2",
                ctypes.byref(base),
                _Handle.from_buffer_copy(handle),
                ctypes.c_uint(_PEER_ACCESS),
            )
        return base.value

    def close(self, device: str, base: int) -> None:
        with self._current(device):
            self._call("cuIpcCloseMemHandle", ctypes.c_uint64(base))

    def allocate(self, device: str, size: int) -> int:
        address = ctypes.c_uint64()
        with self._current(device):
            try:
                self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
            except CudaError as error:
                if error.code == _OUT_OF_MEMORY:
                    raise MemoryError(f"device {device} has no room for {size} bytes") from error
                raise
        return address.value

    def free(self, device: str, address: int) -> None:
        with self._current(device):
            self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def copy(self, device: str, to: int, source: int, size: int) -> None:
        with self._current(device):
            stream = self._stream(device, -1)
            self._call(
                "cuMemcpyDtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size), stream
            )
            self._call("cuStreamSynchronize", stream)

    def read(self, device: str, host: int, source: int, size: int, lane: int) -> None:
        with self._current(device):
            stream = self._stream(device, lane)
            self._call(
                "cuMemcpyDtoHAsync_v2", ctypes.c_void_p(host), ctypes.c_uint64(source), ctypes.c_size_t(size), stream
            )

    def write(self, device: str, to: int, host: int, size: int, lane: int) -> None:
        with self._current(device):
            stream = self._stream(device, lane)
            self._call(
                "cuMemcpyHtoDAsync_v2", ctypes.c_uint64(to), ctypes.c_void_p(host), ctypes.c_size_t(size), stream
            )

    def wait(self, device: str, lane: int) -> None:
        with self._current(device):
            self._call("cuStreamSynchronize", self._stream(device, lane))

    def synchronize(self, device: str) -> None:
        with self._current(device):
            self._call("cuCtxSynchronize")

    def pin(self, device: str, host: int, size: int) -> None:
        with self._current(device):
            try:
                self._call("cuMemHostRegister_v2", ctypes.c_void_p(host), ctypes.c_size_t(size), ctypes.c_uint(1))
            except CudaError as error:
                if error.code != _ALREADY_REGISTERED:
                    raise

    def unpin(self, device: str, host: int) -> None:
        with self._current(device):
            self._call("cuMemHostUnregister", ctypes.c_void_p(host))

    @contextlib.contextmanager
    def _current(self, device: str) -> Iterator[None]:
        with self._lock:
            context = self._contexts.get(device)
            if context is None:
                context = ctypes.c_void_p()
                self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), ctypes.c_int(self._ordinals[device]))
                self._contexts[device] = context
        self._call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    def _stream(self, device: str, lane: int) -> ctypes.c_void_p:
        with self._lock:
            stream = self._streams.get((device, lane))
            if stream is None:
                stream = ctypes.c_void_p()
                self._call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING))
                self._streams[device, lane] = stream
            return stream

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            text = ctypes.c_char_p()
            self._library.cuGetErrorName(ctypes.c_int(code), ctypes.byref(text))
            raise CudaError(name, code, (text.value or b"an unknown error").decode())


class NoCuda:
    """Where there is no such library."""

    def devices(self) -> list[str]:
        return []


def driver() -> Any:
    return _driver(os.getpid())


@functools.cache
def _driver(_pid: int) -> Cuda | NoCuda:
    try:
        return Cuda()
    except OSError:
        return NoCuda()
