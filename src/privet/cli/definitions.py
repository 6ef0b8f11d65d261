"""Models, losses and data that a user's Python file defines."""

from __future__ import annotations

import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from privet.errors import InvalidArgumentError, PrivetError
from privet.gradients.core.examples import count_examples, select_examples
from privet.reading.batches import check_map_style
from privet.reading.rows import ExampleReader


@contextmanager
def load_definitions(file: Path, needed: str) -> Iterator[Definitions]:
    """Run a Python file and yield its definitions; an exception in it or in the block becomes a one-line error.

    Whatever it prints, also later within the block, goes to standard error, because standard output is for results. `needed`
    completes "a Python file that …", such as "defines model".
    """
    sys.path.insert(0, str(file.resolve().parent))  # as for a script, which imports its neighbours
    try:
        with redirect_stdout(sys.stderr):
            yield Definitions(file, runpy.run_path(str(file)), needed)
    except PrivetError:
        raise
    except (Exception, SystemExit) as error:
        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        where = f" (line {own[-1]})" if own else ""
        allowed = f"a Python file that {needed} and runs without errors"
        cause = f"{type(error).__name__}{where}: {str(error).rstrip('.')}"
        raise InvalidArgumentError("MODEL.py", str(file), allowed, cause=cause) from error
    finally:
        sys.path.remove(str(file.resolve().parent))


@dataclass(frozen=True)
class Definitions:
    """The global names of a Python file and their values."""

    file: Path
    values: Mapping[str, Any]
    needed: str

    def find(self, name: str, kind: Any) -> Any:
        """Return the value with this name, which must be of this kind, or None."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, kind):
            raise InvalidArgumentError(f"{self.file.name}: {name}", type(value).__name__, f"a {kind.__name__}")
        return value

    def require(self, name: str, kind: Any) -> Any:
        """Return the value with this name, which must be defined."""
        value = self.find(name, kind)
        if value is None:
            raise InvalidArgumentError("MODEL.py", str(self.file), f"a file that {self.needed}", cause=f"it defines no {name}")
        return value

    def examples(self, limit: int) -> tuple[Any, int]:
        """Return the first examples of `dataset`, or else of `batch`, as a batch, and the number of all examples."""
        data = self.find("dataset", object)
        if data is None:
            batch = self.require("batch", object)
            return select_examples(batch, slice(limit)), count_examples(batch)
        number = check_map_style(data)
        return ExampleReader(data, self.find("collate", Callable)).batch(np.arange(min(limit, number))), number
