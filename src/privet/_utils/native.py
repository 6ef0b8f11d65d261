"""Compiled C++: from the wheel, or compiled on first use if there is a compiler, and kept for the next time.

Compiled code is never needed: who uses it has the same function in torch, and says which of the two is in use. A platform
wheel carries libraries for several kinds of processor, each under a name with the hash of its source. A file that is compiled
here is kept under a name that holds the hash of all that it was made from and the hash of itself, so what is stale, half
written or damaged is not loaded, and processes that build the same thing at once do each other no harm.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch

from privet._utils.files import cache_directory, write_atomically

SWITCH = "PRIVET_KERNELS"
_COMPILERS = ("g++", "clang++")
# No -ffast-math: the kernels' rounding is meant.
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fPIC", "-shared")
_PATIENCE = 60  # seconds
# What torch finds in the processor → the wheel's libraries that use no more than that, the fastest first (CMakeLists.txt).
_VARIANTS = {"AVX512": ("avx512", "avx2", "default"), "AVX2": ("avx2", "default")}

Form = TypeVar("Form")


class UnavailableError(Exception):
    """There is no compiled code to be had here; the message says why."""


def shipped_library(source: Path) -> ctypes.CDLL:
    """Return the shared library that the wheel brought beside a C++ file, the fastest that this processor can run.

    Args:
        source: the C++ file as it is installed.

    Raises:
        UnavailableError: it is switched off (`PRIVET_KERNELS=0`), none was made from this source, or it cannot be loaded.
    """
    _check_switch()
    stem = f"{source.stem}-{_digest(source.read_bytes())}"
    variants = _VARIANTS.get(torch.backends.cpu.get_cpu_capability(), ("default",))
    there = (source.with_name(f"{stem}-{variant}.so") for variant in variants)
    path = next(filter(Path.exists, there), None)
    if path is None:
        raise UnavailableError("none came with this installation")
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise UnavailableError(f"{error}") from error


def compiled_library(source: Path) -> ctypes.CDLL:
    """Return the shared library made from a C++ file on this machine, compiled now or earlier.

    Args:
        source: one file that needs nothing but the standard library.

    Raises:
        UnavailableError: it is switched off (`PRIVET_KERNELS=0`), there is no compiler, or it cannot be built, kept or loaded.
    """
    _check_switch()
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise UnavailableError(f"no compiler on PATH ({', '.join(_COMPILERS)})")
    try:
        folder = _own_folder(cache_directory() / "kernels")
        stem = f"{source.stem}-{_key(source, compiler)}"
        kept = next(filter(_intact, folder.glob(f"{stem}-*.so")), None)
        return ctypes.CDLL(str(kept or _build(source, compiler, folder, stem)))
    except (OSError, RuntimeError) as error:  # RuntimeError: nobody knows where home is
        raise UnavailableError(f"{error}") from error


def trusted(in_torch: Form, source: Path, bound: Callable[[ctypes.CDLL], Form], agree: Callable[[Form], bool]) -> Form:
    """Return the compiled form of some functions, or the one in torch, which then says why.

    The wheel's library comes first; where there is none, or it is wrong, one is compiled.

    Args:
        in_torch: a dataclass of functions, with a field `description`.
        source: the C++ file.
        bound: library → the same functions, compiled.
        agree: whether a form computes what the one in torch does.
    """
    reason = ""
    for library in (shipped_library, compiled_library):
        try:
            compiled = bound(library(source))
            if agree(compiled):
                return compiled
            reason = "the compiled functions do not agree with those in torch"
        except (UnavailableError, AttributeError) as error:
            reason = f"{error}"
    found: Form = replace(in_torch, description=f"torch: {reason}")  # type: ignore[type-var]
    return found


def _check_switch() -> None:
    if os.environ.get(SWITCH) == "0":
        raise UnavailableError(f"switched off by {SWITCH}=0")


def _own_folder(folder: Path) -> Path:
    """Make the folder, refusing one into which somebody else could put code for us to run."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if not hasattr(os, "geteuid"):
        raise UnavailableError("this system does not tell whether others can write to a folder")
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise UnavailableError(f"{folder} belongs to or can be written by others")
    return folder


def _key(source: Path, compiler: str) -> str:
    """Return a hash of all that decides what the compiler writes."""
    binary = Path(compiler).resolve()
    status = binary.stat()
    made_from = [source.read_bytes(), _FLAGS, str(binary), status.st_size, status.st_mtime_ns, platform.machine(), _cpu()]
    return hashlib.sha256(repr(made_from).encode()).hexdigest()[:32]


def _cpu() -> str:
    """Return what the processor can do: `-march=native` compiles for exactly that."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _intact(path: Path) -> bool:
    """Return whether a file still has the hash that its name ends in."""
    return path.stem.rpartition("-")[2] == _digest(path.read_bytes())


def _build(source: Path, compiler: str, folder: Path, stem: str) -> Path:
    """Compile, and put the result in the folder whole or not at all."""
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "library.so"
        command = [compiler, *_FLAGS, "-o", str(made), str(source)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=_PATIENCE)
        except subprocess.CalledProcessError as error:
            said = error.stderr.strip().splitlines() or ["no message"]
            raise UnavailableError(f"{compiler} failed: {said[-1]}") from error
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(f"{compiler} took more than {_PATIENCE} s") from error
        content = made.read_bytes()
    return write_atomically(folder / f"{stem}-{_digest(content)}.so", lambda temporary: temporary.write_bytes(content))
