"""Chromium without a window, for tests that look at pages."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Nothing that asks the network; no sandbox, which containers do not allow.
OPTIONS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@contextmanager
def open_page() -> Iterator[Any]:
    """Yield a page of playwright, or skip the test where there is no browser."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright, of the extra [dev]")
    found = os.environ.get("PRIVET_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if found is None or subprocess.run([found, "--version"], capture_output=True).returncode:
        pytest.skip("needs Chromium: install the package chromium, or name the program in PRIVET_CHROMIUM")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=OPTIONS)
        yield started.new_page()
        started.close()
