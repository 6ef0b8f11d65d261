"""Run directories as training writes them, with realistic values."""

import json
import math
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privet import report
from privet.report.page import render_page
from privet.report.run_files import read

PROSE = """# What is promised

This run is (ε = 2.999, δ = 1e-05) differentially private for **one example** added to or removed from 60,000.
Whatever is computed from the released weights stays covered.

What this rests on:

- every example entered a step with probability 512/60,000, drawn from a secure source;
- its gradient was clipped to norm 0.3 and
  Gaussian noise of 0.89 times that was added;
- the accountant is `pld`, whose ε is an upper bound.

What is not covered: the test accuracy, timing, and settings that were tuned on these examples.
"""

PLAN: dict[str, Any] = {
    "format": 1,
    "examples": 60000,
    "sampling": {"kind": "Poisson", "batch_size": 512},
    "steps": {"kind": "Epochs", "epochs": 20},
    "clipping": {"kind": "PSASC", "bound": 0.3, "scale": 0.9, "stability": 0.0001},
    "delta": 1e-05,
    "adjacency": "add-remove",
    "noise": {"kind": "Gaussian", "multiplier": 0.8937, "source": "secure"},
    "sparsification": None,
}
GUARANTEE: dict[str, Any] = {
    "epsilon": 2.999,
    "delta": 1e-05,
    "adjacency": "add-remove",
    "accountant": "pld",
    "prose": PROSE,
    "epsilon_by_accountant": {"pld": 2.999, "rdp": 3.412, "gdp": 2.713},
}
SETUP: dict[str, Any] = {
    "data": "mnist",
    "provenance": "60,000 training and 10,000 test images of handwritten digits, verified by checksum",
    "model": "cnn",
    "parameters": 26010,
    "optimizer": "SGD",
    "learning_rate": 2.0,
    "physical_batch_size": 512,
    "seconds": 130.2,
    "versions": {"privet": "0.1.0", "torch": "2.13.0", "python": "3.12.3"},
    "device": "cpu",
}
PAGES: dict[str, str] = {}
STATUS: dict[str, Any] = {"state": "complete", "steps_done": 2344, "steps_planned": 2344}


def metrics(steps: int = 2344, every: int = 117, scale: float = 2.999) -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "epsilon": scale * math.sqrt((step + 80) / 2424),
            "seconds": 0.0555 * step,
            "test_accuracy": None if step % (2 * every) else round(0.9812 - 0.35 * math.exp(-step / 260), 4),
            "test_negative_log_likelihood": None if step % (2 * every) else 0.07 + math.exp(-step / 260),
        }
        for step in [*range(every, steps, every), steps]
    ]


def evaluation(classes: int = 10, examples: int = 10_000) -> dict[str, Any]:
    generator = np.random.default_rng(classes)
    mistakes = np.full((classes, classes), 0.02 / (classes - 1)) * generator.gamma(0.5, 2, (classes, classes))
    np.fill_diagonal(mistakes, 0)
    shares = mistakes + np.diag(1 - mistakes.sum(1))
    sizes = generator.multinomial(examples, np.full(classes, 1 / classes))
    confusion = np.stack([generator.multinomial(size, row / row.sum()) for size, row in zip(sizes, shares, strict=True)])
    return {
        "accuracy": float(confusion.trace() / examples), "negative_log_likelihood": 0.0716, "confusion": confusion.tolist(),
        "examples": examples,
    }  # fmt: skip


DEFAULTS: dict[str, Any] = {
    "plan": PLAN, "guarantee": GUARANTEE, "metrics": metrics(), "evaluation": evaluation(), "run": SETUP, "status": STATUS,
}  # fmt: skip


def write_files(directory: Path, **changes: Any) -> Path:
    """Write a complete run. `guarantee={…}` changes keys of that file, None leaves it out, a list is its lines."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("model.safetensors", "ledger.jsonl", "guarantee.md"):
        (directory / name).write_bytes(b"")
    for name, default in DEFAULTS.items():
        content = changes.get(name, default)
        if content is None:
            continue
        if name == "metrics":
            (directory / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in content), encoding="utf-8")
        else:
            (directory / f"{name}.json").write_text(json.dumps(default | content), encoding="utf-8")
    return directory


@pytest.fixture(scope="session")
def run_writer() -> Callable[..., Path]:
    """Return the function that writes a run into a given directory; see `write_files`."""
    return write_files


@pytest.fixture
def write_run(tmp_path: Path) -> Callable[..., Path]:
    """Write a run into a fresh directory and return it; see `write_files`."""
    fresh = (tmp_path / f"run-{number}" for number in count())
    return lambda **changes: write_files(next(fresh), **changes)


@pytest.fixture
def report_of(write_run: Callable[..., Path]) -> Callable[..., str]:
    """Return the HTML of a run's report, with figures or without, which is made once for each content; see `write_files`."""

    def find(*, drawn: bool = True, **changes: Any) -> str:
        key = json.dumps([drawn, changes], sort_keys=True)
        if key not in PAGES:
            run = write_run(**changes)
            PAGES[key] = report.write(run).read_text(encoding="utf-8") if drawn else render_page(read(run), ())
        return PAGES[key]

    return find


@pytest.fixture
def evaluation_of() -> Callable[[int], dict[str, Any]]:
    """Return a function from a number of classes to an evaluation."""
    return evaluation


@pytest.fixture
def metrics_until() -> Callable[[int], list[dict[str, Any]]]:
    """Return a function from a number of steps to the metrics of a run."""
    return metrics
