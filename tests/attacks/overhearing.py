"""Examples that raise: they must reveal nothing and contribute nothing."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator

from harness import Task, Verdict, bounded
from materials import points

SECRET, ODD = "Zoe of ward 88417", 88417.0
NOTHING = 1e-3  # for a contribution that must be zero


@contextlib.contextmanager
def overheard() -> Iterator[io.StringIO]:
    """Collect all printed output, warnings and log messages."""
    heard, handler = io.StringIO(), logging.StreamHandler()
    handler.setStream(heard)
    logging.getLogger().addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with contextlib.redirect_stdout(heard), contextlib.redirect_stderr(heard):
                yield heard
        heard.write("\n".join(str(warning.message) for warning in caught))
    finally:
        logging.getLogger().removeHandler(handler)


def told(error: BaseException | None) -> str:
    """Return all text attached to an exception: arguments, notes, causes and contexts, suppressed or not."""
    if error is None:
        return ""
    notes = " ".join(getattr(error, "__notes__", ()))
    return f"{type(error).__name__} {error} {error.args} {notes} | {told(error.__cause__)} | {told(error.__context__)}"


def passes_over(task: Task, data, index: int) -> Verdict:
    """Return the verdict on a data set whose example `index` raises."""
    with overheard() as heard:
        verdict = bounded(task, data, remove=(index,))
    if re.search("88417|Zoe|ward", heard.getvalue()):
        return Verdict(False, f"it is told: {heard.getvalue()[:160]}")
    if verdict.passed and verdict.moved is not None and verdict.moved > NOTHING:
        return Verdict(False, f"an example that raises contributes {verdict.moved:.3g}", verdict.moved)
    return verdict


def odd(index: int = 7, data=None):
    """Return points of which one begins with the odd number."""
    data = points() if data is None else data
    data.tensors[0][index, 0] = ODD
    return data


def is_odd(x) -> bool:
    return bool((x == ODD).any())
