"""Makes device "cuda" usable in a build of torch for CPUs: `install()`, once per process, before torch uses a device.

Memory of the device cannot be read by the host, tensors of two devices do not mix, and what has no kernel on CUDA raises.
`Trace` counts launches, waits, copies and their bytes by place. Differences from a GPU: numbers are the CPU's, there is one
stream, and there are no cuDNN and no fused attention.
"""

from __future__ import annotations

import collections
import ctypes
import fcntl
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import fused_cells
import torch
import torch.utils.cpp_extension
import torchgen
import yaml

import privet
from privet._utils import native
from privet._utils.files import write_atomically
from privet._utils.native import UnavailableError

TORCH = "2.13.0"  # whose internals the sources know
_FOLDER = Path(__file__).parent / "emulated"
_SOURCE, _HEADERS = _FOLDER / "device.cpp", (_FOLDER / "memory.h", _FOLDER / "runtime.h")
_FLAGS = ("-std=c++20", "-O1", "-w", "-fPIC", "-shared")
_PATIENCE = 300  # seconds
_OWN = {  # operators with kernels of their own
    "empty.memory_format", "empty_strided", "copy_", "resize_", "set_.source_Storage_storage_offset", "set_.source_Storage",
    "set_.source_Tensor", *fused_cells.KERNELS,
}  # fmt: skip
_GENERATED = {"convolution", "convolution_backward"}  # not per device in the list; on a GPU, cuDNN's or torch's own
# The host reads from their result how many elements it has, or a value.
_WAITING = {
    "_local_scalar_dense", "nonzero", "nonzero.out", "masked_select", "masked_select.out", "equal", "_unique2", "unique_dim",
    "unique_consecutive", "unique_dim_consecutive", "bincount", "histc", "repeat_interleave.Tensor", "_linalg_svd",
    "_linalg_eigh",
}  # fmt: skip
_kept: list[object] = []  # what must not be freed
_OBSERVER = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int64)


def reason_to_skip() -> str | None:
    """Return why there is no emulated device here; None if there is one. The first call on a machine compiles it."""
    if torch.__version__.partition("+")[0] != TORCH:
        return f"the emulated device is written for torch {TORCH}, and this is {torch.__version__}"
    if torch.version.cuda or torch.version.hip:
        return "this build of torch has kernels for a GPU, which the emulated device would replace"
    if sys.platform != "linux":
        return "the emulated device maps a file in memory, which needs Linux"
    try:
        built_file()
    except (UnavailableError, OSError) as error:
        return f"the emulated device cannot be built: {error}"
    return None


@functools.cache
def built_file() -> Path:
    """Return the compiled library, built now or earlier from the same source by the same compiler for the same torch."""
    compiler = next(filter(None, map(shutil.which, native._COMPILERS)), None)
    if compiler is None:
        raise UnavailableError("there is no compiler on PATH")
    folder = native._own_folder(native.cache_directory() / "kernels")
    torch_folder = Path(torch.__file__).parent
    made_from = repr([_FLAGS, torch.__version__, str(torch_folder), *(each.read_bytes() for each in _HEADERS)]).encode()
    stem = f"emulated-{native._digest(made_from)}-{native._key(_SOURCE, compiler)}"
    with open(folder / "emulated.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # processes of one test run wait for the first
        kept = next(filter(native._intact, folder.glob(f"{stem}-*.so")), None)
        return kept or _build(compiler, folder, stem, torch_folder)


def _build(compiler: str, folder: Path, stem: str, torch_folder: Path) -> Path:
    made = folder / f"{stem}.{os.getpid()}.partial"
    includes = [part for path in torch.utils.cpp_extension.include_paths() for part in ("-isystem", path)]
    libraries = [f"-L{torch_folder / 'lib'}", "-ltorch_cpu", "-lc10"]
    try:
        command = [compiler, *_FLAGS, *includes, "-o", str(made), str(_SOURCE), *libraries]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE)
        content = made.read_bytes()
    except subprocess.CalledProcessError as error:
        said = [line for line in error.stderr.splitlines() if "error" in line] or ["no message"]
        raise UnavailableError(f"{compiler} failed: {said[0]}") from error
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{compiler} took more than {_PATIENCE} s") from error
    finally:
        made.unlink(missing_ok=True)
    return write_atomically(folder / f"{stem}-{native._digest(content)}.so", lambda temporary: temporary.write_bytes(content))


def _operators() -> Iterator[tuple[str, bool, bool]]:
    """Yield the operators with a CUDA kernel in real builds, whether it is for sparse tensors, and whether it is strict.

    Strict ones also refuse a number on another device.
    """
    text = (Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml").read_text()
    entries = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    named = {entry["func"].partition("(")[0]: entry for entry in entries}
    for name, entry in named.items():
        origin = named.get(entry.get("structured_delegate"), {})
        keys = {key.strip() for each in (entry, origin) for keys in each.get("dispatch", {}) for key in keys.split(",")}
        if "SparseCUDA" in keys and "SparseCPU" in keys:
            yield name, True, False
        if "CompositeImplicitAutograd" in keys and "CPU" not in keys:  # the formula stands for a kernel that only a GPU has
            continue
        generated = name in _GENERATED or "ufunc_inner_loop" in {*entry, *origin}
        if ("CUDA" in keys or generated) and name not in _OWN:
            yield name, False, entry.get("device_check", "ExactSame") == "ExactSame" and name not in _GENERATED


@functools.cache
def install() -> ctypes.CDLL:
    """Make device "cuda" usable in this process, for good; return the library."""
    made = ctypes.CDLL(str(built_file()))
    made.emulated_open.restype = ctypes.c_char_p
    for name in ("emulated_live_bytes", "emulated_peak_bytes"):
        getattr(made, name).restype = ctypes.c_int64
    if wrong := made.emulated_open():
        raise RuntimeError(wrong.decode())
    for name, sparse, strict in _operators():
        base, _, overload = name.partition(".")
        made.emulated_register(f"aten::{base}".encode(), overload.encode(), int(sparse), int(strict), int(name in _WAITING))
    _kept.append(fused_cells.register())
    _pretend(made)
    return made


def _pretend(made: ctypes.CDLL) -> None:
    """Let `torch.cuda` answer as on a machine with one GPU."""
    answers = {
        "is_available": True, "is_initialized": True, "_is_in_bad_fork": False, "device_count": 1, "current_device": 0,
        "get_device_name": "emulated", "get_device_capability": (9, 0), "is_bf16_supported": True, "_lazy_init": None,
        "synchronize": None, "empty_cache": None,
    }  # fmt: skip
    for name, answer in answers.items():
        for module in (torch.cuda, torch.cuda.random):  # the second holds some of the first by name
            setattr(module, name, lambda *_, answer=answer, **__: answer)
    torch.cuda.memory_allocated = lambda device=None: made.emulated_live_bytes()
    torch.cuda.max_memory_allocated = lambda device=None: made.emulated_peak_bytes()
    torch.cuda.reset_peak_memory_stats = lambda device=None: made.emulated_forget_peak()
    torch.cuda.default_generators = (torch.Generator("cuda"),)  # the first that is made is the default
    torch._C._cuda_getCurrentRawStream = lambda device=0: 0  # which bitsandbytes asks for when it is imported
    torch.cuda.amp.common.amp_definitely_not_available = lambda: False


@dataclass(frozen=True)
class Place:
    """Where the library was when the device had something to do: a file under src/privet, and a function.

    Both are empty where none of its functions was called: in the backward pass, which another thread runs.
    """

    file: str
    function: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.function}"


class Trace:
    """Counts, while it is entered, what a device does: (kind, operation, place) → times and bytes.

    Kinds are "launch", "float64 launch", "wait" (the host reads a result), "to host" (a wait, too) and "to device".
    """

    def __init__(self, root: Path = Path(privet.__file__).parent) -> None:
        self.root = f"{root}{os.sep}"
        self.times: collections.Counter[tuple[str, str, Place]] = collections.Counter()
        self.bytes: collections.Counter[tuple[str, str, Place]] = collections.Counter()
        self._told = _OBSERVER(self._note)

    def _note(self, kind: bytes, operation: bytes, size: int) -> None:
        key = kind.decode(), operation.decode(), self._find_place()
        self.times[key] += 1
        self.bytes[key] += size

    def _find_place(self) -> Place:
        frame = sys._getframe(1).f_back  # of who called into torch
        while frame is not None and not frame.f_code.co_filename.startswith(self.root):
            frame = frame.f_back
        if frame is None:
            return Place("", "")
        code = frame.f_code
        return Place(code.co_filename.removeprefix(self.root), code.co_qualname.partition(".<locals>")[0], frame.f_lineno)

    def __enter__(self) -> Trace:
        install().emulated_observe(self._told)
        return self

    def __exit__(self, *_: object) -> None:
        install().emulated_observe(None)

    def count(self, *kinds: str) -> int:
        """Return how often something of these kinds happened."""
        return sum(times for (kind, *_), times in self.times.items() if kind in kinds)

    def by_function(self, *kinds: str) -> dict[str, tuple[int, int]]:
        """Return place → (times, bytes) of these kinds."""
        found: dict[str, tuple[int, int]] = {}
        for key, times in self.times.items():
            if key[0] in kinds:
                before = found.get(str(key[2]), (0, 0))
                found[str(key[2])] = before[0] + times, before[1] + self.bytes[key]
        return found
