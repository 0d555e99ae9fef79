"""Memory of a device that goes when the object that stands for it goes."""

from __future__ import annotations

import os
import sys

from weft.devices import driver as drivers


class Allocation:
    """Of this process. Everything that the process asked of the device is done before it is free."""

    def __init__(self, driver: str, device: str, size: int) -> None:
        self._driver, self._device = drivers.find(driver), device
        self._pid = os.getpid()
        self.address = 0
        self.address = self._driver.allocate(device, size)

    def __del__(self) -> None:
        # The device's memory goes with the process; and a fork has no device.
        if self.address and not sys.is_finalizing() and self._pid == os.getpid():
            self._driver.synchronize(self._device)
            self._driver.free(self._device, self.address)
