"""Shared parts of the fuzzers: valid content that is damaged on purpose, and the allowed answers of a command.

`make fuzz` runs the same tests with PRIVET_FUZZ times as many examples, other ones every time.
"""

import contextlib
import copy
import io
import os
import pickle
import warnings
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from privet.cli import main

TIMES = int(os.environ.get("PRIVET_FUZZ", "1"))

# What a field is replaced by. No large number below 2³¹ is among them: a plan of so many steps is right, and takes memory.
ODD_VALUES = [
    None, True, False, 0, 1, -1, 2, 7, 2**31, 2**64, -(10**400), 0.5, 1e-300, 1e308, -0.0, float("nan"), float("inf"),
    float("-inf"), "", "x", "0.5", "é\n", "\ud800", "nan", [], [1.0], ["x", 2], [[]], {}, {"kind": "Flat"}, {"kind": 3},
    {"kind": "Flat", "bound": 1.0}, {"x": None},
]  # fmt: skip
ODD_WORDS = [
    "", "x", "-1", "0", "1", "2.5", "nan", "inf", "1e999", "1" * 5000, "é", "\udcff", "-", "--", "--json", "{}", "[]", "nowhere",
    ".", "..", "/dev/null", "/proc/nowhere/x", "a" * 300, "group:0", "group:2", "user",
]  # fmt: skip


def fuzzed(examples):
    """The settings of a fuzzer: so many examples, the same every time; with PRIVET_FUZZ that many times more, and fresh."""
    return settings(
        max_examples=examples * TIMES, derandomize=TIMES == 1, database=None,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate],
    )  # fmt: skip


@st.composite
def damaged(draw, content):
    """Bytes of a valid file after a few accidents, or others altogether."""
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=200))
    found = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, max(0, len(found) - 1)))
        stop = start + draw(st.integers(1, 40))
        match draw(st.sampled_from(["flip", "flip", "cut", "remove", "repeat", "overwrite", "insert"])):
            case "flip" if found:
                found[start] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del found[start:]
            case "remove":
                del found[start:stop]
            case "repeat":
                found[start:start] = found[start:stop]
            case "overwrite":
                found[start:stop] = draw(st.binary(max_size=stop - start))
            case "insert":
                found[start:start] = draw(st.sampled_from([b"\0", b"\n", b"[" * 100_000, b"9" * 5000, b"\xff\xfe", b'"', b"NaN"]))
    return bytes(found)


def _places(value):
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield value, key
        yield from _places(item)


@st.composite
def altered(draw, value):
    """A plain JSON value some of whose fields are others, gone, or unknown."""
    found = {"": copy.deepcopy(value)}
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(found))
        holder, key = places[draw(st.integers(0, len(places) - 1))]
        match draw(st.sampled_from(["replace", "replace", "replace", "remove", "move", "add"])):
            case "remove" if holder is not found:
                del holder[key]
            case "move":
                other, name = places[draw(st.integers(0, len(places) - 1))]
                holder[key] = copy.deepcopy(other[name])
            case "add" if isinstance(holder[key], dict):
                name = draw(st.sampled_from(["x", "kind", "bound", "plan", ""]))
                holder[key][name] = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))  # it may be changed in turn
            case _:
                holder[key] = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
    return found[""]


@st.composite
def misspelt(draw, words):
    """Arguments of a command some of which are others, gone, twice, or unknown."""
    found = list(words)
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(found) - 1)) if found else 0
        match draw(st.sampled_from(["replace", "replace", "replace", "remove", "repeat", "swap", "insert"])):
            case "remove":
                del found[place : place + 1]
            case "repeat":
                found[place:place] = found[place : place + 2]
            case "swap" if found:
                other = draw(st.integers(0, len(found) - 1))
                found[place], found[other] = found[other], found[place]
            case "insert":
                found.insert(place, draw(st.sampled_from(ODD_WORDS)))
            case _:
                found[place : place + 1] = [draw(st.sampled_from(ODD_WORDS))]
    return found


def bomb(marker: Path) -> bytes:
    """A pickle that touches a file when it is read."""

    class Bomb:
        def __reduce__(self):
            return (marker.touch, ())

    return pickle.dumps(Bomb(), protocol=2)


def command(*words, failing=()):
    """Run a command in this process and return its exit status: 0, 2 with one line on standard error, or one of `failing`."""
    out, err = io.StringIO(), io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        warnings.simplefilter("ignore")
        try:
            main([*map(str, words)])
        except SystemExit as stop:
            status = stop.code
    told = err.getvalue()
    assert status in (0, 2, *failing), (words, status, told)
    assert "Traceback" not in told
    if status == 2:
        assert told.startswith("privet: error: "), told
        assert told.count("\n") == 1, told
        assert out.getvalue() == "", "a refusal prints no results"
    return status


def left_over(folder: Path) -> list[str]:
    """Files that a writer began and did not finish."""
    return [str(path) for path in folder.rglob(".*") if path.is_file()]
