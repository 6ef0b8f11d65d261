"""What statistical tests share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

ALPHA = 1e-6


@pytest.fixture
def holds_twice() -> Callable[[Callable[[], Mapping[str, float]]], None]:
    """Run an experiment that returns p-values by name; what is rejected is tried again with fresh randomness before it fails."""

    def check(experiment: Callable[[], Mapping[str, float]]) -> None:
        rejected = {name: p for name, p in experiment().items() if not p >= ALPHA}
        if rejected:
            again = experiment()
            assert not [name for name in rejected if not again[name] >= ALPHA], (rejected, again)

    return check
