"""Objective perturbation, output perturbation and DP-SGD on convex models: mean and standard deviation over splits, and time.

All use their default settings and δ = 1/(10 N) on the splits of `benchmarks.defaults`; DP-SGD trains a linear model. Output
lines are rows of the table in docs/results/convex.md.

    python -m benchmarks.convex red.csv:benchmarks/schemas/wine-red-classes.toml mnist --epsilon 0.5 1 3
"""

from __future__ import annotations

__all__ = ["main"]

import argparse
import contextlib
import io
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.defaults import split
from privet import cli, data
from privet.tables import Regression, Schema

METHODS = {
    "objective": ["fit", "--mechanism", "objective"],
    "output": ["fit", "--mechanism", "output"],
    "DP-SGD": ["train", "--quiet", "--model"],
}


def run(source: str, method: str, epsilon: float, seed: int) -> tuple[dict[str, Any], float]:
    """Return the command's answer and its processor seconds."""
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()) as printed:
        table, _, schema = source.partition(":")
        model = "logistic"
        if schema:
            train, test, examples = split(Path(table), Path(place), seed)
            options = ["--data", str(train), "--schema", schema, "--test", str(test)]
            model = "linear" if isinstance(Schema.read(schema).task, Regression) else "logistic"
        else:
            examples, options = len(data.load(source).train), ["--data", source]
        command = [*METHODS[method], *([model, "--seed", str(seed)] if method == "DP-SGD" else [])]
        options += ["--epsilon", str(epsilon), "--delta", str(0.1 / examples), "--out", str(Path(place) / "run"), "--json"]
        start = time.process_time()
        with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            cli.main([*command, *options])
        return json.loads(printed.getvalue().splitlines()[-1]), time.process_time() - start


def main() -> None:
    """Print a line per data set, ε and method."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", nargs="+", help="names of the catalogue, or TABLE.csv:SCHEMA.toml")
    parser.add_argument("--epsilon", nargs="+", type=float, default=[1.0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    arguments = parser.parse_args()
    for source in arguments.sources:
        for epsilon in arguments.epsilon:
            for method in arguments.methods:
                found = [run(source, method, epsilon, seed) for seed in range(arguments.runs)]
                regression = found[0][0]["test_accuracy"] is None
                name, scale = ("R²", 1.0) if regression else ("accuracy %", 100.0)
                values = [scale * answer["test_r_squared" if regression else "test_accuracy"] for answer, _ in found]
                spread = statistics.stdev(values) if len(values) > 1 else 0.0
                seconds = statistics.mean(time for _, time in found)
                shown = (f"{statistics.mean(values):.3f} ± {spread:.3f}", f"{seconds:.0f} s")
                data_set = Path(source.partition(":")[2] or source).stem
                print("| " + " | ".join((data_set, f"{epsilon:g}", method, name, *shown)) + " |", flush=True)


if __name__ == "__main__":
    main()
