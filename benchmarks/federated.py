"""Results of `privet federate` with default settings, beside those of `privet train` with users as the unit of privacy.

A random fifth of the users is for testing. Every run has data, schema, cap, ε and δ = 1/(10 N) for N users; those of the arms
that are named cohort@steps also have --cohort and --local-steps ("all" is every client). Output lines are rows of the table in
docs/results/defaults.md.

    python -m benchmarks.federated tweets.csv:benchmarks/schemas/tweets.toml --arms train all@1 100@1 100@4
    python -m benchmarks.federated covertype.csv:benchmarks/schemas/covertype.toml --rows-per-user 5 --users 8750

With --rows-per-user, a table gets a column of users: each has so many rows that follow each other.
"""

from __future__ import annotations

__all__ = ["main"]

import argparse
import contextlib
import csv
import io
import itertools
import json
import random
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from privet import cli
from privet.tables import Schema
from privet.tables.columns import UserId


def add_users(rows: Sequence[Sequence[str]], size: int, users: int) -> list[list[str]]:
    """Return the rows of made-up users, with the user's number first; each user has rows that follow each other."""
    chosen = random.Random(0).sample(range(len(rows) // size), users)
    return [[str(user), *row] for user in chosen for row in rows[user * size : (user + 1) * size]]


def write_parts(head: Sequence[str], rows: Sequence[Sequence[str]], user: str, folder: Path, seed: int) -> int:
    """Write the tables train.csv and test.csv, which has a fifth of the users; return the number of users of the first."""
    at = list(head).index(user)
    users = sorted({row[at] for row in rows})
    tested = set(random.Random(seed).sample(users, len(users) // 5))
    for name, held in (("train.csv", False), ("test.csv", True)):
        with open(folder / name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([head, *(row for row in rows if (row[at] in tested) == held)])
    return len(users) - len(tested)


def run(arm: str, known: Sequence[str], out: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the answer of a command, and what its run.json keeps."""
    verb, options = "federate", []
    cohort, _, steps = arm.partition("@")
    if arm == "train":
        verb = "train"
    elif steps:
        options = ["--local-steps", steps, *([] if cohort == "all" else ["--cohort", cohort])]
    words = [verb, *known, *options, "--out", str(out), "--quiet", "--json"]
    silent = contextlib.redirect_stderr(io.StringIO())
    with contextlib.redirect_stdout(io.StringIO()) as printed, silent, contextlib.suppress(SystemExit):
        cli.main(words)
    return json.loads(printed.getvalue()), json.loads((out / "run.json").read_text(encoding="utf-8"))


def main() -> None:
    """Print a line per table and arm."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="+", help="TABLE.csv:SCHEMA.toml")
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--cap", type=int, default=5)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--arms", nargs="+", default=["train", "federate"])
    parser.add_argument("--rows-per-user", type=int)
    parser.add_argument("--users", type=int, default=8750)
    given = parser.parse_args()
    for source, arm in itertools.product(given.sources, given.arms):
        table, _, place = source.partition(":")
        schema = Schema.read(place)
        with open(table, newline="", encoding="utf-8") as file:
            head, *rows = csv.reader(file)
        if given.rows_per_user:
            head, rows = ["user", *head], add_users(rows, given.rows_per_user, given.users)
            schema = replace(schema, columns=(*schema.columns, ("user", UserId())))
        (user,) = (name for name, kind in schema.columns if isinstance(kind, UserId))
        found = []
        for seed in range(given.runs):
            with tempfile.TemporaryDirectory() as folder:
                root = Path(folder)
                users = write_parts(head, rows, user, root, seed)
                (root / "schema.toml").write_text(schema.to_toml(), encoding="utf-8")
                parts = {"data": root / "train.csv", "test": root / "test.csv", "schema": root / "schema.toml"}
                known = [word for name, path in parts.items() for word in (f"--{name}", str(path))]
                known += ["--user-cap", str(given.cap), "--epsilon", str(given.epsilon), "--delta", str(0.1 / users)]
                found.append(run(arm, [*known, "--seed", str(seed)], root / "run"))
        values = [100 * answer["test_accuracy"] for answer, _ in found]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        share = statistics.mean(100 * answer["test_majority_share"] for answer, _ in found)
        seconds = statistics.mean(answer["seconds"] for answer, _ in found)
        cells = [
            Path(place).stem,
            f"{users:,}",
            arm,
            f"{share:.1f}",
            f"{statistics.mean(values):.2f} ± {spread:.2f}",
            f"{seconds:.0f} s",
        ]
        cells += [
            f"{name} {value if isinstance(value, str) else format(value, '.3g')}"
            for name, value in found[0][1]["defaults"].items()
        ]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
