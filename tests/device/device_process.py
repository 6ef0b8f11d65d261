"""A process with the emulated device: tests ask it to call functions, and keep their own process as it was."""

import multiprocessing
import os
import traceback


class DeviceProcess:
    """Calls functions of modules where "cuda" is the emulated device; starts again after a call that ends the process."""

    def __init__(self):
        self._process = self._pipe = None

    def __call__(self, function, *arguments):
        """Return what the function returns there; what it raises is an AssertionError here."""
        if self._process is None:
            self._start()
        self._pipe.send((function, arguments))
        try:
            result, wrong = self._pipe.recv()
        except EOFError:
            self._process.join()
            code = self._process.exitcode
            self._process = None
            raise AssertionError(f"the process of the device ended with {code}") from None
        assert not wrong, wrong
        return result

    def _start(self):
        start = multiprocessing.get_context("spawn")  # torch has decided in this process that there is no CUDA
        self._pipe, other = start.Pipe()
        self._process = start.Process(target=_serve, args=(other,), daemon=False)
        self._process.start()
        other.close()

    def stop(self):
        """End the process."""
        if self._process is not None:
            self._pipe.close()
            self._process.join(60)
            if self._process.exitcode is None:
                self._process.kill()
            self._process = None


def _serve(pipe):
    os.environ["OMP_NUM_THREADS"] = "1"
    import emulated_cuda
    import torch

    torch.set_num_threads(1)
    emulated_cuda.install()
    while True:
        try:
            function, arguments = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send((function(*arguments), ""))
        except BaseException:
            pipe.send((None, traceback.format_exc()))
