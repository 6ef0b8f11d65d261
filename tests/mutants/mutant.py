"""Mutants: deliberate faults in the source, and the tests that must detect them."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import privet

PACKAGE = Path(privet.__file__).parent
SOURCE = PACKAGE.parent
TESTS = Path(__file__).parents[1]
_WORD = re.compile(r"\w{2}")  # two characters of one name


@dataclass(frozen=True)
class Definition:
    """A module, a class, a function or an assignment: whole lines of a file, decorators included."""

    name: str
    path: Path
    start: int
    stop: int


@dataclass(frozen=True)
class Mutant:
    """A fault that keeps shapes and types, so that only what is computed tells.

    Neither files nor lines are named, so that a mutant survives whatever leaves its function's name and the pattern alone.

    Args:
        name: what goes wrong.
        function: where: the end of a qualified name that no other definition's name ends with, such as "LinearGrad.squared_norms"
            or "gaussian.release". Classes, names that a module or a class assigns, and modules are found the same way.
        old: text that occurs there once; white space makes no difference.
        new: what it becomes. Further lines are indented relative to the one in which the text begins.
        tests: that pass without the fault, and of which one fails an assertion with it: pytest's node ids with no folders, such
            as "test_gaussian.py::test_a_token_is_good_for_one_release"; seconds in all.
    """

    name: str
    function: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.function}: {self.name}"

    @property
    def path(self) -> Path:
        """The file that is changed, relative to the folder of the package."""
        return definition(self.function).path

    @property
    def line(self) -> int:
        """The line of it in which the change begins, from 1 on."""
        start, _ = self._place()
        return _text(self.path).count("\n", 0, start) + 1

    def applied(self) -> str:
        """The file with the fault."""
        start, stop = self._place()
        source = _text(self.path)
        line = source[source.rfind("\n", 0, start) + 1 :]
        indentation = line[: len(line) - len(line.lstrip())]
        return source[:start] + self.new.replace("\n", f"\n{indentation}") + source[stop:]

    def node_ids(self) -> tuple[str, ...]:
        """The tests as pytest finds them from the root of the repository."""
        return tuple(map(located, self.tests))

    def _place(self) -> tuple[int, int]:
        assert self.old != self.new, f"{self}: nothing changes"
        where = definition(self.function)
        lines = _text(where.path).splitlines(keepends=True)
        before = sum(map(len, lines[: where.start - 1]))
        places = [*_occurrences("".join(lines[where.start - 1 : where.stop]), self.old)]
        assert len(places) == 1, f"{self}: its text occurs {len(places)} times in {where.name}"
        ((start, stop),) = places
        return before + start, before + stop


def _occurrences(source: str, pattern: str) -> Iterator[tuple[int, int]]:
    """Where a pattern begins and ends, whatever white space there is; names that it begins or ends with are whole."""
    places = [place for place, character in enumerate(source) if not character.isspace()]
    squeezed, wanted = "".join(source.split()), "".join(pattern.split())
    assert wanted, "a pattern has some text"
    found = squeezed.find(wanted)
    while found >= 0:
        start, stop = places[found], places[found + len(wanted) - 1] + 1
        if not (_WORD.fullmatch(source[max(0, start - 1) : start + 1]) or _WORD.fullmatch(source[stop - 1 : stop + 1])):
            yield start, stop
        found = squeezed.find(wanted, found + 1)


@cache
def _text(path: Path) -> str:
    return (SOURCE / path).read_text(encoding="utf-8")


def definition(name: str) -> Definition:
    """The one definition of the package whose qualified name is this or ends with it."""
    found = [one for one in definitions().get(name.rpartition(".")[2], ()) if f".{one.name}".endswith(f".{name}")]
    names = ", ".join(f"{one.name} ({one.path}, line {one.start})" for one in found)
    assert found, f"nothing in the package is called {name}: give a mutant the name that its function has now"
    assert len(found) == 1, f"{name} may be any of {names}: put more of its qualified name before it"
    return found[0]


@cache
def definitions() -> dict[str, list[Definition]]:
    """Last part of a name → the definitions that have it."""
    found: dict[str, list[Definition]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        path = file.relative_to(SOURCE)
        module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        source = _text(path)
        whole = Definition(module, path, 1, source.count("\n") + 1)
        for one in (whole, *_within(ast.parse(source), module, path)):
            found.setdefault(one.name.rpartition(".")[2], []).append(one)
    return found


def _within(parent: ast.AST, prefix: str, path: Path, local: bool = False) -> Iterator[Definition]:
    """What is defined in a body, also under conditions; the variables of a function are nobody's business."""
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}.{node.name}"
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            yield Definition(name, path, first, node.end_lineno or first)
            yield from _within(node, name, path, local=not isinstance(node, ast.ClassDef))
        elif isinstance(node, ast.Assign | ast.AnnAssign) and not local:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
            yield from (Definition(f"{prefix}.{name}", path, node.lineno, node.end_lineno or node.lineno) for name in names)
        elif isinstance(node, ast.If | ast.Try | ast.With | ast.For | ast.While | ast.ExceptHandler):
            yield from _within(node, prefix, path, local)


def located(test: str) -> str:
    """The node id of a test, whose file is looked up by its name."""
    file, colons, rest = test.partition("::")
    found = _test_files().get(file, [])
    assert len(found) == 1, f"{file} is {len(found)} files of the tests: {', '.join(map(str, found))}"
    return f"tests/{found[0].relative_to(TESTS).as_posix()}{colons}{rest}"


@cache
def _test_files() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        found.setdefault(path.name, []).append(path)
    return found


def among(file: str, *tests: str) -> tuple[str, ...]:
    """Tests of one file, in whatever folder it lies."""
    return tuple(f"{file}.py::{test}" for test in tests)


def tape(*cases: str) -> tuple[str, ...]:
    """Gradients, norms and sums of cases, with much and with scarce memory, against plain autograd."""
    ids = (case.encode("unicode_escape").decode("ascii") for case in cases)  # as pytest writes them
    return among("test_oracle", *(f"test_the_tape_agrees_with_plain_autograd[{name}]" for name in ids))


def alone(*operations: str) -> tuple[str, ...]:
    """One operation by itself, against one example at a time."""
    return among("test_operations_alone", *(f"test_every_operation_alone_is_right[{name}]" for name in operations))


def attack(*programs: str) -> tuple[str, ...]:
    """Programs that try to break the guarantee, or valid ones: cause-name."""
    return among("test_attacks", *(f"test_program[{name}]" for name in programs))
