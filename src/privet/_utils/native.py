"""Compiled C++ kernels: from the wheel, or compiled on first use if there is a compiler, and cached.

Compiled code is optional: every caller has an equivalent function in torch and reports which of the two it uses. A platform
wheel contains libraries for several kinds of processor, each named with the hash of its source. The name of a cached library
contains the hash of everything it was built from and the hash of its content. So stale, partial or damaged files are not
loaded, and processes may build the same library concurrently.
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
# No -ffast-math: it would change the kernels' rounding.
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fPIC", "-shared")
_PATIENCE = 60  # seconds
# CPU capability found by torch → the wheel's libraries that run on it, fastest first (see CMakeLists.txt).
_VARIANTS = {"AVX512": ("avx512", "avx2", "default"), "AVX2": ("avx2", "default")}

Form = TypeVar("Form")


class UnavailableError(Exception):
    """No compiled code is available; the message gives the reason."""


def shipped_library(source: Path) -> ctypes.CDLL:
    """Return the wheel's shared library for an installed C++ file, the fastest that this processor can run."""
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
    """Return the shared library of a C++ file that uses only the standard library, compiled here now or earlier."""
    _check_switch()
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        raise UnavailableError(f"no compiler on PATH ({', '.join(_COMPILERS)})")
    try:
        folder = _own_folder(cache_directory() / "kernels")
        stem = f"{source.stem}-{_key(source, compiler)}"
        kept = next(filter(_intact, folder.glob(f"{stem}-*.so")), None)
        return ctypes.CDLL(str(kept or _build(source, compiler, folder, stem)))
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home directory
        raise UnavailableError(f"{error}") from error


def trusted(in_torch: Form, source: Path, bound: Callable[[ctypes.CDLL], Form], agree: Callable[[Form], bool]) -> Form:
    """Return compiled functions if they agree with those in torch, else those in torch with the reason in `description`.

    The wheel's library is tried first, then one compiled on this machine; `bound` makes the functions of a library.
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
    """Create the folder; refuse one to which other users can write, because we execute code from it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if not hasattr(os, "geteuid"):
        raise UnavailableError("this system does not show whether others can write to a folder")
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise UnavailableError(f"{folder} belongs to or can be written by others")
    return folder


def _key(source: Path, compiler: str) -> str:
    """Return a hash of everything that determines the compiler's output."""
    binary = Path(compiler).resolve()
    status = binary.stat()
    made_from = [source.read_bytes(), _FLAGS, str(binary), status.st_size, status.st_mtime_ns, platform.machine(), _cpu()]
    return hashlib.sha256(repr(made_from).encode()).hexdigest()[:32]


def _cpu() -> str:
    """Return the processor's features, for which `-march=native` compiles."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _intact(path: Path) -> bool:
    return path.stem.rpartition("-")[2] == _digest(path.read_bytes())


def _build(source: Path, compiler: str, folder: Path, stem: str) -> Path:
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
