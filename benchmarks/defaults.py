"""Results of `privet train` with default settings: mean and standard deviation over runs, each with its own split.

A random fifth of a table's rows is for testing; data sets of the catalogue have their own test rows. Every run is `privet train`
with data, schema, ε and δ = 1/(10 N) only. Output lines are rows of the table in docs/results/defaults.md; the schemas are in
benchmarks/schemas.

    python -m benchmarks.defaults digits red.csv:benchmarks/schemas/wine-red-classes.toml --epsilon 1 3 8
    python -m benchmarks.defaults stays.csv:stays.toml --arms default logistic fit scale=1

An arm is "default", the name of a network, "fit" for `privet fit`, or "scale=NUMBER" for the network "table" with this scale.
`benchmarks.rare` writes tables with rare classes.
"""

from __future__ import annotations

__all__ = ["main"]

import argparse
import contextlib
import io
import itertools
import json
import random
import statistics
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from privet import cli, data
from privet.runs import tasks

MEASURES = {
    "test_majority_share": 100.0, "test_accuracy": 100.0, "test_auroc": 1.0, "test_negative_log_likelihood": 1.0,
    "test_r_squared": 1.0, "test_root_mean_squared_error": 1.0,
}  # fmt: skip


def split(table: Path, folder: Path, seed: int) -> tuple[Path, Path, int]:
    """Write two parts of a CSV file, the second with a fifth of the rows; return their paths and the first part's rows."""
    head, *rows = table.read_text(encoding="utf-8").splitlines()
    random.Random(seed).shuffle(rows)
    tested = len(rows) // 5
    paths = folder / f"train-{table.name}", folder / f"test-{table.name}"
    for path, part in zip(paths, (rows[tested:], rows[:tested]), strict=True):
        path.write_text("\n".join((head, *part)) + "\n", encoding="utf-8")
    return *paths, len(rows) - tested


def run(source: str, epsilon: float, seed: int, folder: str | None, arm: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the answer of `privet train`, or of `privet fit`, and the settings that it chose."""
    kind, _, scale = arm.partition("=")
    verb, own = ("fit", []) if arm == "fit" else ("train", ["--seed", str(seed), "--quiet"])
    if kind not in ("default", "fit"):
        own += ["--model", "table" if scale else arm]
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()) as printed:
        table, _, schema = source.partition(":")
        if schema:
            train, test, examples = split(Path(table), Path(place), seed)
            options = ["--data", str(train), "--schema", schema, "--test", str(test)]
        else:
            examples = len(data.load(source, folder=folder).train)
            options = ["--data", source, *([] if folder is None else ["--folder", folder])]
        out = Path(place) / "run"
        options += ["--epsilon", str(epsilon), "--delta", str(0.1 / examples), "--out", str(out), *own]
        with (
            mock.patch.object(tasks, "_SCALE", float(scale or tasks._SCALE)),
            contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()),
        ):  # fmt: skip
            cli.main([verb, *options, "--json"])
        return json.loads(printed.getvalue()), json.loads((out / "run.json").read_text(encoding="utf-8"))


def main() -> None:
    """Print a line per data set and ε."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="+", help="names of the catalogue, or TABLE.csv:SCHEMA.toml")
    parser.add_argument("--epsilon", nargs="+", type=float, default=[3.0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--arms", nargs="+", default=["default"])
    parser.add_argument("--folder", help="folder with data sets of the catalogue")
    arguments = parser.parse_args()
    for source, epsilon, arm in itertools.product(arguments.sources, arguments.epsilon, arguments.arms):
        found = [run(source, epsilon, seed, arguments.folder, arm) for seed in range(arguments.runs)]
        cells = [Path(source.partition(":")[2] or source).stem, f"{epsilon:g}", arm]
        for name, scale in MEASURES.items():
            values = [scale * answer[name] for answer, _ in found if answer[name] is not None]
            if values:
                spread = statistics.stdev(values) if len(values) > 1 else 0.0
                cells.append(f"{name.removeprefix('test_')} {statistics.mean(values):.3f} ± {spread:.3f}")
        chosen = found[0][1]["defaults"]
        cells += [f"{name} {value if isinstance(value, str) else format(value, '.3g')}" for name, value in chosen.items()]
        cells.append(f"{statistics.mean(answer['seconds'] for answer, _ in found):.0f} s")
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
