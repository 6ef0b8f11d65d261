"""`privet train --processes`: one run directory, with the spending of one process; errors come once."""

import json
import os
import subprocess
import sys

import pytest
from made import SCHEMA

ROWS = [f"{n % 7 - 3},{n % 5 - 2},{'yes' if n % 7 - 3 > n % 5 - 2 else 'no'}" for n in range(120)]


def privet(folder, *words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "privet", *map(str, words)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture
def options(tmp_path):
    (tmp_path / "people.csv").write_text("\n".join(["left,right,bigger", *ROWS, ""]), encoding="utf-8")
    (tmp_path / "people.toml").write_text(SCHEMA.replace('who = "user"\n', ""), encoding="utf-8")
    common = "train --data people.csv --schema people.toml --steps 4 --delta 1e-3 --noise-multiplier 3 --quiet --json"
    return common.split()


@pytest.mark.slow
def test_two_processes_write_one_run_that_spends_what_one_process_spends(options, tmp_path):
    results = []
    for number in (1, 2):
        done = privet(tmp_path, *options, "--processes", number, "--out", f"of-{number}")
        assert done.returncode == 0, done.stderr
        results.append(json.loads(done.stdout))  # one object: the other rank prints nothing
    one, two = results
    assert (one["steps"], one["epsilon"]) == (two["steps"], two["epsilon"])
    assert two["steps"] == 4
    for words in (("ledger", "verify"), ("report",)):
        done = privet(tmp_path, *words, "of-2")
        assert done.returncode == 0, done.stderr


def test_an_error_of_all_ranks_comes_once_with_its_status(options, tmp_path):
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("", encoding="utf-8")
    done = privet(tmp_path, *options, "--processes", 2, "--out", "used")
    assert done.returncode == 2
    assert done.stderr.count("--out is 'used'") == 1
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_no_process_is_refused(options, tmp_path):
    done = privet(tmp_path, *options, "--processes", 0, "--out", "run")
    assert done.returncode == 2
    assert "--processes is 0; it must be at least 1" in done.stderr
