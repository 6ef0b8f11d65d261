"""What the names in a function are bound to: in its closure, in its file, and in the user's modules that it names."""

from __future__ import annotations

__all__ = ["Binding", "Bindings", "bind", "read_bindings"]

import dis
import functools
import itertools
import operator
import sys
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from privet.gradients.core.state.contents import CONSTANT
from privet.gradients.core.state.opaque import read_cell
from privet.gradients.core.state.restoring import MISSING
from privet.gradients.core.state.user_code import is_user_code, is_user_function

# A name, its value, and where it is bound: the cell of a closure, or the globals of a file.
Binding = tuple[str, Any, types.CellType | dict[str, Any]]
_Table = tuple[dict[str, Any], Iterable[str], list[Any]]


@dataclass(frozen=True, eq=False, slots=True)
class Bindings:
    """What the names of a function were bound to when they were read.

    Args:
        found: name, value and place of the free and global names, except those of Python modules.
        modules: name, value and place of those of Python modules.
        objects: the values found that have contents; of functions, those of the same file or of the user's own files.
        cells: of the closure, and their values.
        tables: each a dictionary, the names that were looked up there, and their values, `MISSING` for those without.
        code: of the function, which names them.
    """

    found: list[Binding]
    modules: list[Binding]
    objects: list[Any]
    cells: list[tuple[types.CellType, Any]]
    tables: list[_Table]
    code: types.CodeType

    def are_current(self) -> bool:
        """Return whether all names have the same values still."""
        for table, names, values in self.tables:
            if not all(map(operator.is_, map(table.get, names, itertools.repeat(MISSING)), values)):
                return False
        return not self.cells or all(read_cell(cell) is value for cell, value in self.cells)

    def restore(self) -> None:
        """Bind the names as they were."""
        if not self.are_current():
            for binding in (*self.found, *self.modules):
                bind(*binding)


def read_bindings(function: types.FunctionType, earlier: Bindings | None = None) -> Bindings:
    """Return what the free and global names of a function are bound to: as earlier, if no name has changed.

    Of the user's own Python modules, those names are found that occur in the function, such as `total` for `helpers.total`.
    The value is `MISSING` if there is none yet, and the function may bind the name.
    """
    if earlier is not None and earlier.code is function.__code__ and earlier.are_current():
        return earlier
    names = _list_names(function.__code__)
    imports = [full for name in names.imports for full in _list_full_names(name, function)]
    tables: list[_Table] = [(sys.modules, imports, _look_up(sys.modules, imports))] if imports else []
    modules = [value for _, _, values in tables for value in values if isinstance(value, types.ModuleType)]
    cells = [(cell, read_cell(cell)) for cell in function.__closure__ or ()]
    bound: list[Binding] = [(name, value, cell) for name, (cell, value) in zip(function.__code__.co_freevars, cells, strict=True)]
    modules += [value for _, value, _ in bound if isinstance(value, types.ModuleType)]
    files, new = [function.__globals__], names.globals
    for file in files:
        values = _look_up(file, names.all)
        tables.append((file, names.all, values))
        bound += [
            (name, value, file) for name, value in zip(names.all, values, strict=True) if value is not MISSING or name in new
        ]
        modules += [value for value in values if isinstance(value, types.ModuleType)]
        new = names.attributes
        for module in modules:
            if is_user_code(module.__name__) and not any(vars(module) is each for each in files):
                files.append(vars(module))
    found, others = ([each for each in bound if isinstance(each[1], types.ModuleType) is kind] for kind in (False, True))
    objects = [
        value
        for _, value, _ in found
        if value is not MISSING
        and type(value) not in CONSTANT
        and (type(value) is not types.FunctionType or value.__globals__ is files[0] or is_user_function(value))
    ]
    return Bindings(found, others, objects, cells, tables, function.__code__)


def _look_up(table: dict[str, Any], names: Iterable[str]) -> list[Any]:
    return [table.get(name, MISSING) for name in names]


class _Names(NamedTuple):
    """What the code of a function names, and that of functions defined inside it.

    Args:
        all: names of globals and of attributes.
        globals, attributes: those that it binds.
        imports: modules that it imports.
    """

    all: dict[str, None]
    globals: set[str]
    attributes: set[str]
    imports: dict[str, None]


@functools.lru_cache(maxsize=4096)
def _list_names(code: types.CodeType) -> _Names:
    """Return what a function's code names."""
    found = _Names(dict.fromkeys(code.co_names), set(), set(), {})
    for step in dis.get_instructions(code):
        if step.opname == "STORE_GLOBAL":
            found.globals.add(step.argval)
        elif step.opname == "STORE_ATTR":
            found.attributes.add(step.argval)
        elif step.opname == "IMPORT_NAME":
            found.imports[step.argval] = None
    for inner in (_list_names(value) for value in code.co_consts if isinstance(value, types.CodeType)):
        found.all.update(inner.all)
        found.globals.update(inner.globals)
        found.attributes.update(inner.attributes)
        found.imports.update(inner.imports)
    return found


def _list_full_names(name: str, function: types.FunctionType) -> Iterator[str]:
    """Yield the full names that a function's import of a module may mean, absolute or relative to its package."""
    package = function.__globals__.get("__package__") or ""
    while True:
        yield f"{package}.{name}".strip(".")
        if not package:
            return
        package = package.rpartition(".")[0]


def bind(name: str, value: Any, place: types.CellType | dict[str, Any]) -> None:
    """Bind a name that `read_bindings` found; unbind it for `MISSING`."""
    if value is MISSING:
        if isinstance(place, dict):
            place.pop(name, None)
        elif read_cell(place) is not MISSING:
            del place.cell_contents
    elif isinstance(place, dict):
        place[name] = value
    else:
        place.cell_contents = value
