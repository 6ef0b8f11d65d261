"""C++ that is compiled where it runs: on first use, if there is a compiler, and kept for the next time.

Compiled code is never needed: who uses it has the same function in torch, and says which of the two is in use. A file is
kept under a name that holds the hash of all that it was made from and the hash of itself, so what is stale, half written or
damaged is not loaded, and processes that build the same thing at once do each other no harm.
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

from privet._utils.files import cache_directory, write_atomically

SWITCH = "PRIVET_KERNELS"
_COMPILERS = ("g++", "clang++")
# No -ffast-math: the kernels' rounding is meant.
_FLAGS = ("-std=c++17", "-O3", "-march=native", "-fno-math-errno", "-fPIC", "-shared")
_PATIENCE = 60  # seconds


Form = TypeVar("Form")


class UnavailableError(Exception):
    """There is no compiled code to be had here; the message says why."""


def compiled_library(source: Path) -> ctypes.CDLL:
    """Return the shared library made from a C++ file, compiled now or earlier.

    Args:
        source: one file that needs nothing but the standard library.

    Raises:
        UnavailableError: it is switched off (`PRIVET_KERNELS=0`), there is no compiler, or it cannot be built, kept or loaded.
    """
    if os.environ.get(SWITCH) == "0":
        raise UnavailableError(f"switched off by {SWITCH}=0")
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

    Args:
        in_torch: a dataclass of functions, with a field `description`.
        source: the C++ file.
        bound: library → the same functions, compiled.
        agree: whether a form computes what the one in torch does.
    """
    try:
        compiled = bound(compiled_library(source))
        if not agree(compiled):
            raise UnavailableError("the compiled functions do not agree with those in torch")
    except (UnavailableError, AttributeError) as error:
        found: Form = replace(in_torch, description=f"torch: {error}")  # type: ignore[type-var]
        return found
    return compiled


def _own_folder(folder: Path) -> Path:
    """Make the folder, refusing one into which somebody else could put code for us to run."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
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
