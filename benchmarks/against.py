"""Step time over that of another version of the project: `python -m benchmarks.against TREE`.

TREE is a folder with a whole version, as `git archive COMMIT | tar x -C TREE` makes it. Both versions alternate in one process:
between processes, the location of memory changes the time of a step by up to a third. The ratio still differs by up to a tenth,
and the version that is loaded first gains a few hundredths. So there are several processes, and the versions take turns in being
loaded first. Times are processor times; freed memory is kept.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from privet._utils.malloc import keep_freed_memory

HERE = Path(__file__).parents[1]
_PACKAGES = ("privet", "benchmarks")
_TIMED = 2  # steps per turn, after one untimed step that fills the caches


@dataclass(frozen=True)
class Version:
    """The modules of one version. They are in `sys.modules` while it runs, because functions import when they are called."""

    modules: dict[str, ModuleType]

    @staticmethod
    def load(tree: Path) -> Version:
        """Return the version in a folder."""
        _unload()
        sys.path[:0] = paths = [str(tree / "src"), str(tree)]
        try:
            for name in ("benchmarks.arms", "benchmarks.models"):
                importlib.import_module(name)
        finally:
            del sys.path[: len(paths)]
        version = Version(_unload())
        found = version.modules["privet"].__file__
        if found is None or not Path(found).is_relative_to(tree):
            sys.exit(f"{tree} holds no version: privet comes from {found}")
        return version

    def run(self, call: Callable[[], Any]) -> Any:
        """Return what a function of this version returns."""
        _unload()
        sys.modules.update(self.modules)
        return call()

    def step(self, model: str, arm: str, batch: int | None) -> Callable[[], object]:
        """Return the step of an arm on a model, with the first `batch` examples of its batch if given."""
        case: Any = next(case for case in self.modules["benchmarks.models"].CASES if case.name == model)
        if batch is not None:
            inputs = case.inputs
            case = replace(case, inputs=lambda: inputs()[:batch])
        torch.manual_seed(0)
        step: Callable[[], object] = self.run(lambda: self.modules["benchmarks.arms"].ARMS[arm](case))
        return step


def _unload() -> dict[str, ModuleType]:
    """Remove the modules of the loaded version from `sys.modules` and return them."""
    names = [name for name in sys.modules if name.partition(".")[0] in _PACKAGES]
    return {name: sys.modules.pop(name) for name in names}


def ratio(versions: Sequence[Version], steps: Sequence[Callable[[], object]], rounds: int) -> float:
    """Return the median over rounds of the first version's time over the second's; each begins every other round."""
    found = []
    for number in range(rounds):
        times = [0.0, 0.0]
        for place in ((0, 1), (1, 0))[number % 2]:
            versions[place].run(steps[place])
            start = time.process_time()
            for _ in range(_TIMED):
                steps[place]()
            times[place] = time.process_time() - start
        found.append(times[0] / times[1])
    return statistics.median(found)


def compare(options: argparse.Namespace, number: int) -> dict[str, float]:
    """Return each model's ratio in this process; an odd `number` loads the other version first."""
    torch.set_num_threads(options.threads)
    if not keep_freed_memory():
        sys.exit("freed memory cannot be kept here")
    trees = (HERE, options.tree.resolve())
    loaded = {tree: Version.load(tree) for tree in (reversed(trees) if number % 2 else trees)}
    versions = [loaded[tree] for tree in trees]
    names = [case.name for case in versions[0].modules["benchmarks.models"].CASES]
    return {
        name: ratio(versions, [version.step(name, options.arm, options.batch) for version in versions], options.rounds)
        for name in names
        if not options.model or any(part in name for part in options.model)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path, help="folder with the other version")
    parser.add_argument("--model", action="append", default=[], help="only models whose name contains this")
    parser.add_argument("--arm", default="privet, no noise")
    parser.add_argument("--batch", type=int, help="examples in a batch, fewer than usual")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one JSON object at the end")
    parser.add_argument("--process", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process is not None:
        print(json.dumps(compare(options, options.process)))
        return
    found: dict[str, list[float]] = {}
    for number in track(range(options.processes), description="Processes", transient=True):
        command = [sys.executable, "-m", "benchmarks.against", *sys.argv[1:], "--process", str(number)]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        for name, value in json.loads(printed.splitlines()[-1]).items():
            found.setdefault(name, []).append(value)
    table = Table("model", "lowest", "median", "highest", title=f"{options.arm}: time over that in {options.tree}")
    for name, values in found.items():
        table.add_row(name, *(f"{value:.3f}" for value in (min(values), statistics.median(values), max(values))))
    Console().print(table)
    if options.json:
        print(json.dumps({"arm": options.arm, "rounds": options.rounds, "ratios": found}))


if __name__ == "__main__":
    main()
