"""The process in which "cuda" is an emulated device, one for all tests; they are skipped where it cannot be built."""

import emulated_cuda
import pytest
from device_process import DeviceProcess


@pytest.fixture(scope="session")
def on_device():
    """Call a function of a module in the process of the device, and return what it returns."""
    if reason := emulated_cuda.reason_to_skip():
        pytest.skip(reason)
    process = DeviceProcess()
    yield process
    process.stop()
