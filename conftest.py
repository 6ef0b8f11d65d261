"""Configuration of all tests: one thread, a seed, no terminal, interrupts, known kinds, and the rule for statistical tests."""

from __future__ import annotations

import functools
import gc
import os
import signal
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping

import pytest
import torch
from hypothesis import settings

from privet._utils.registry import PARTS
from privet.accounting.guarantee import tradeoff
from privet.convex import privacy_loss
from privet.plan import mechanism  # and with it, the kinds that Privet defines are registered

ALPHA = 1e-6
# The same examples on every machine: what other examples there may be is for `make fuzz`, where a failure stops nobody's work.
# No deadline: a busy machine is slow.
settings.register_profile("same", derandomize=True, database=None, max_examples=50, deadline=None)
settings.register_profile("fresh", derandomize=False, deadline=None)
settings.load_profile("fresh" if os.environ.get("PRIVET_FUZZ") else "same")
# By these rich draws progress and colours where there is no terminal; processes that tests start inherit that there are none.
for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)
# Libraries of other people report nothing from tests.
os.environ.update({"HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"})


# A test freezes what is older, and to count frozen objects takes 40 ms, which every training would spend.
gc.get_freeze_count = lambda: 1  # type: ignore[assignment]


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Keep to one thread: on many small models, threads only get in each other's way."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> Iterator[None]:
    """Take interrupts, here and in children: what a shell starts in the background ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def kinds_kept() -> Iterator[None]:
    """Forget the kinds that a test or a documented example registers: the next one may define its own of that name."""
    before = dict(PARTS)
    yield
    PARTS.clear()
    PARTS.update(before)


@pytest.fixture(autouse=True, scope="session")
def answers_kept() -> Iterator[None]:
    """Compute ε of equal plans and the profile of their statements once: most runs here take less time than that."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name in ((tradeoff, "profile"), (mechanism, "composed_epsilon")):
            kept = functools.lru_cache(maxsize=10_000)(getattr(module, name))
            patch.setattr(module, name, lambda *parts, kept=kept, **options: kept(*map(tuple, parts), **options))
        yield


@pytest.fixture(scope="module")
def brief_runs() -> Iterator[None]:
    """Leave out of runs what takes longer than their training: the check of networks that can be trained, and most resamples.

    And of the integral over which fits are accounted for, most cells: the fewer there are, the larger is ε.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(privacy_loss, "_EDGES", privacy_loss._EDGES[::32])
        patch.setattr(privacy_loss, "_MASSES", privacy_loss._MASSES.reshape(-1, 32).sum(1))
        patch.setattr("privet.runs.run.RESAMPLES", 20)
        patch.setattr("privet.training.preflight.probe", lambda *_, method, **__: "ghost" if method == "auto" else method)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave two of three cases of a test that is marked as a product to `make test-slow`."""
    seen: Counter[str] = Counter()
    for item in items:
        if item.get_closest_marker("product"):
            function = item.nodeid.partition("[")[0]
            if seen[function] % 3:
                item.add_marker(pytest.mark.slow)
            seen[function] += 1


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Let the garbage collector skip what is older than a test: a scan of a million objects takes 0.3 s."""
    gc.freeze()
    result = yield
    gc.collect()
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let the made-up data of a test depend on its name alone, and not on which tests ran before it in the same process.

    What is secret has its own source, which no seed reaches.
    """
    torch.default_generator.manual_seed(zlib.crc32(item.nodeid.encode()))  # `torch.manual_seed` takes a millisecond


@pytest.fixture
def holds_twice() -> Callable[[Callable[[], Mapping[str, float]]], None]:
    """Run an experiment that returns p-values by name; what is rejected is tried again with fresh randomness before it fails."""

    def check(experiment: Callable[[], Mapping[str, float]]) -> None:
        rejected = {name: p for name, p in experiment().items() if not p >= ALPHA}
        if rejected:
            again = experiment()
            assert not [name for name in rejected if not again[name] >= ALPHA], (rejected, again)

    return check
