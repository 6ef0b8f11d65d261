"""What a user's own Python file defines: a model, its loss, and data."""

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
def defined_in(file: Path, needed: str) -> Iterator[Definitions]:
    """Run a file, yield what it defines, and refuse, in a line that says where, whatever goes wrong in it or because of it.

    What it prints, also later, goes to standard error: it is no result.

    Args:
        file: a Python file.
        needed: what it is to do, such as "defines model".

    Raises:
        InvalidArgumentError: something went wrong, or the file wanted to leave.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield Definitions(file, runpy.run_path(str(file)), needed)
    except PrivetError:
        raise
    except (Exception, SystemExit) as error:
        own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        where = f" (line {own[-1]})" if own else ""
        raise InvalidArgumentError(
            "MODEL.py", str(file), f"a Python file that {needed}, which work together",
            f"It fails{where}: {type(error).__name__}: {str(error).rstrip('.')}.",
        ) from error  # fmt: skip


@dataclass(frozen=True)
class Definitions:
    """What a file defines.

    Args:
        file: that was run.
        values: name → what it stands for there.
        needed: what it is to do.
    """

    file: Path
    values: Mapping[str, Any]
    needed: str

    def find(self, name: str, kind: Any) -> Any:
        """Return what has this name; None if nothing has.

        Raises:
            InvalidArgumentError: it is something else.
        """
        value = self.values.get(name)
        if value is not None and not isinstance(value, kind):
            raise InvalidArgumentError(f"{self.file.name}: {name}", type(value).__name__, f"a {kind.__name__}")
        return value

    def need(self, name: str, kind: Any) -> Any:
        """Return what has this name.

        Raises:
            InvalidArgumentError: nothing has, or it is something else.
        """
        value = self.find(name, kind)
        if value is None:
            raise InvalidArgumentError("MODEL.py", str(self.file), f"a file that {self.needed}", f"It defines no {name}.")
        return value

    def data(self) -> Data:
        """Return `dataset` with `collate`, or else `batch`.

        Raises:
            InvalidArgumentError: there is neither, or fewer than two examples.
        """
        data = self.find("dataset", object)
        if data is None:
            batch = self.need("batch", object)
            return Data(count_examples(batch), batch=batch)
        number = check_map_style(data)
        if number < 2:
            raise InvalidArgumentError(f"{self.file.name}: dataset", number, "at least 2 examples")
        return Data(number, dataset=data, collate=self.find("collate", Callable))

    def examples(self, most: int) -> tuple[Any, int]:
        """Return the first examples of `dataset`, or else of `batch`, and how many there are in all.

        Args:
            most: that are returned.

        Raises:
            InvalidArgumentError: there is neither.
        """
        data = self.find("dataset", object)
        if data is None:
            batch = self.need("batch", object)
            return select_examples(batch, slice(most)), count_examples(batch)
        number = check_map_style(data)
        return ExampleReader(data, self.find("collate", Callable)).batch(np.arange(min(most, number))), number


@dataclass(frozen=True)
class Data:
    """The data that a file defines.

    Args:
        number: of examples.
        batch: some examples, if there is no data set.
        dataset: map-style, or None.
        collate: that goes with it, or None.
    """

    number: int
    batch: Any = None
    dataset: Any = None
    collate: Callable[[list[Any]], Any] | None = None
