"""What a mutant is: a deliberate fault in the source, and the tests that must see it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import privet

PACKAGE = Path(privet.__file__).parent
TESTS = Path(__file__).parents[1]


@dataclass(frozen=True)
class Mutant:
    """A fault that keeps shapes and types, so that only what is computed tells.

    Args:
        name: what goes wrong.
        file: in the folder.
        old: text that occurs there once.
        new: what it becomes.
        tests: that pass without the fault, and of which one fails an assertion with it: pytest's node ids, seconds in all.
        folder: of the package.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    folder: str = "gradients"

    def __str__(self) -> str:
        where = self.file if self.folder == "gradients" else f"{self.folder}/{self.file}"
        return f"{where.removesuffix('.py')}: {self.name}"

    def place(self, package: Path = PACKAGE) -> Path:
        """The file that is changed, in this copy of the package."""
        return package / self.folder / self.file

    def applied(self, source: str) -> str:
        """The source with the fault."""
        assert source.count(self.old) == 1, f"{self}: its text occurs {source.count(self.old)} times"
        assert self.old != self.new, f"{self}: nothing changes"
        return source.replace(self.old, self.new)


def tape(*cases: str) -> tuple[str, ...]:
    """Gradients, norms and sums of cases, against plain autograd."""
    return _oracle("test_the_tape_agrees_with_plain_autograd", cases)


def scarce(*cases: str) -> tuple[str, ...]:
    """The same where nothing is kept: factors stay factors, and blocks are of one or two examples."""
    return _oracle("test_the_tape_agrees_when_memory_is_scarce", cases)


def _oracle(test: str, cases: tuple[str, ...]) -> tuple[str, ...]:
    ids = (case.encode("unicode_escape").decode("ascii") for case in cases)  # as pytest writes them
    return in_conformance("test_oracle", *(f"{test}[{name}]" for name in ids))


def in_gradients(file: str, *tests: str) -> tuple[str, ...]:
    """Tests of one file of tests/gradients, in whatever folder it lies."""
    (place,) = (TESTS / "gradients").rglob(f"{file}.py")
    return tuple(f"tests/{place.relative_to(TESTS).as_posix()}::{test}" for test in tests)


def in_conformance(file: str, *tests: str) -> tuple[str, ...]:
    """Tests of one file of tests/conformance."""
    return tuple(f"tests/conformance/{file}.py::{test}" for test in tests)


def alone(*operations: str) -> tuple[str, ...]:
    """One operation by itself, against one example at a time."""
    test = "tests/fuzz_programs/test_operations_alone.py::test_every_operation_alone_is_right"
    return tuple(f"{test}[{name}-different]" for name in operations)


def attack(*programs: str) -> tuple[str, ...]:
    """Programs that try to break the guarantee, or valid ones: cause-name."""
    return tuple(f"tests/attacks/test_attacks.py::test_program[{name}]" for name in programs)
