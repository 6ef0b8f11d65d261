"""Compiled code is optional: shipped or cached libraries are found again; damaged, foreign or partial ones are not loaded."""

import os
import shutil
import subprocess
from dataclasses import dataclass

import pytest
import torch

from privet._utils import native

SOURCE = 'extern "C" int answer() { return 42; }\n'

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("g++", "clang++"))), reason="there is no C++ compiler on this machine"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the empty cache that a test has for itself."""
    monkeypatch.setenv("PRIVET_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PRIVET_KERNELS", raising=False)
    return tmp_path / "cache" / "kernels"


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "some.cpp"
    path.write_text(SOURCE, encoding="utf-8")
    return path


def compiler(place, monkeypatch, script):
    """Put a program of ours in the compiler's place."""
    place.mkdir()
    program = place / "g++"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")


@needs_compiler
def test_it_is_built_once_and_found_again(folder, source, monkeypatch):
    assert native.compiled_library(source).answer() == 42
    (kept,) = folder.iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(native, "_build", None)
    assert native.compiled_library(source)._name == str(kept)


@needs_compiler
@pytest.mark.parametrize("damage", [lambda old: old[: len(old) // 2], lambda old: b"", lambda old: old[:-1] + b"!"])
def test_a_damaged_library_is_built_again(folder, source, damage):
    native.compiled_library(source)
    (kept,) = folder.iterdir()
    whole = kept.read_bytes()
    kept.unlink()  # this process has mapped it, so the damage is done to a new file
    kept.write_bytes(damage(whole))
    assert not native._intact(kept)
    assert native.compiled_library(source).answer() == 42
    assert any(map(native._intact, folder.iterdir()))


def test_it_can_be_switched_off(folder, source, monkeypatch):
    monkeypatch.setenv("PRIVET_KERNELS", "0")
    with pytest.raises(native.UnavailableError, match="switched off by PRIVET_KERNELS=0"):
        native.compiled_library(source)
    assert not folder.exists()


def test_without_a_compiler_there_is_none(folder, source, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(native.UnavailableError, match="no compiler on PATH"):
        native.compiled_library(source)


@pytest.mark.parametrize(("script", "said"), [
    ("echo 'it is broken' >&2; exit 1", "failed: it is broken"),
    ("exit 1", "failed: no message"),
    ("exit 0", "No such file"),
    ('while [ "$1" != -o ]; do shift; done; echo junk > "$2"', "invalid ELF header|file too short|not a mach-o"),
    ("sleep 30", "took more than"),
])  # fmt: skip
def test_a_broken_compiler_is_not_believed(folder, source, monkeypatch, tmp_path, script, said):
    compiler(tmp_path / "bin", monkeypatch, f"exec 2>&1 1>/dev/null\n{script}" if script == "sleep 30" else script)
    monkeypatch.setattr(native, "_PATIENCE", 0.2 if script == "sleep 30" else 60)
    with pytest.raises(native.UnavailableError, match=said):
        native.compiled_library(source)


@pytest.mark.parametrize(("mode", "owner", "said"), [(0o777, 0, "can be written by others"), (0o700, 1, "belongs to")])
def test_a_folder_of_others_is_refused(folder, source, monkeypatch, tmp_path, mode, owner, said):
    compiler(tmp_path / "bin", monkeypatch, "exit 0")
    folder.mkdir(parents=True)
    folder.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + owner, raising=False)
    with pytest.raises(native.UnavailableError, match=said):
        native.compiled_library(source)


def test_a_cache_that_cannot_be_made_is_no_error(folder, source, monkeypatch, tmp_path):
    compiler(tmp_path / "bin", monkeypatch, "exit 0")
    folder.parent.write_text("in the way", encoding="utf-8")
    with pytest.raises(native.UnavailableError):
        native.compiled_library(source)


@dataclass
class Form:
    answer: int
    description: str


def ship(source, variant, answer):
    """Put a library beside a source as a wheel does, whatever it was really made from."""
    library = source.with_name(f"{source.stem}-{native._digest(source.read_bytes())}-{variant}.so")
    command = [shutil.which("g++") or "clang++", "-x", "c++", "-", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run(command, input=SOURCE.replace("42", str(answer)), text=True, check=True)


def found(source, right=lambda form: True):
    return native.trusted(Form(0, "torch"), source, lambda code: Form(code.answer(), f"compiled: {code._name}"), right)


@needs_compiler
@pytest.mark.parametrize(("capability", "answer"), [("AVX512", 512), ("AVX2", 2), ("DEFAULT", 1), ("SVE256", 1)])
def test_the_wheel_brings_a_library_for_each_kind_of_processor(folder, source, monkeypatch, tmp_path, capability, answer):
    for variant, says in (("default", 1), ("avx2", 2), ("avx512", 512)):
        ship(source, variant, says)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert native.shipped_library(source).answer() == answer
    assert found(source).answer == answer
    assert not folder.exists()


@needs_compiler
def test_a_processor_takes_what_there_is_for_lesser_ones(folder, source, monkeypatch):
    ship(source, "default", 1)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    assert native.shipped_library(source).answer() == 1


@needs_compiler
def test_a_library_that_is_wrong_is_replaced_by_one_compiled_here(folder, source):
    ship(source, "default", 1)
    assert found(source, right=lambda form: form.answer == 42).answer == 42
    assert found(source, right=lambda form: False) == Form(0, "torch: the compiled functions do not agree with those in torch")


def test_a_library_that_is_damaged_is_not_used(folder, source, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    source.with_name(f"some-{native._digest(source.read_bytes())}-default.so").write_bytes(b"junk")
    with pytest.raises(native.UnavailableError):
        native.shipped_library(source)
    assert found(source).description.startswith("torch: no compiler on PATH")


@needs_compiler
def test_what_came_with_the_wheel_can_be_switched_off(folder, source, monkeypatch):
    ship(source, "default", 1)
    monkeypatch.setenv("PRIVET_KERNELS", "0")
    assert found(source) == Form(0, "torch: switched off by PRIVET_KERNELS=0")
