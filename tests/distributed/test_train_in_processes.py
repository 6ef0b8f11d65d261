"""`privet train --processes`: one run directory, with the spending of one process; errors and interrupts come once."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from asked import ask
from made import SCHEMA

from privet.distributed.launch import launch
from privet.errors import InvalidArgumentError

ROWS = [f"{n % 7 - 3},{n % 5 - 2},{'yes' if n % 7 - 3 > n % 5 - 2 else 'no'}" for n in range(120)]


FILE, PATIENCE = "privet.runs.config.load_for_run = lambda *_, **__: open('gone.csv')", 120.0
# What a rank does other than the others → how the message ends.
FAULTS = {
    FILE: "rank 1 failed: FileNotFoundError: [Errno 2] No such file or directory: 'gone.csv'",
    "privet.runs.config.load_for_run = lambda *_, **__: privet.data.load('gone.csv', schema='people.toml')": "'gone.csv'",
    "privet.runs.run.Setup.build_model = lambda *_: [][0]": "rank 1 failed: IndexError: list index out of range",
    "privet.runs.run.Setup.build_model = lambda *_: os.kill(os.getpid(), 9)": (
        "rank 1 ended with SIGKILL; steps that were begun stay spent"
    ),
    "privet.distributed.launch.World.here = lambda: [][0]": "rank 1 ended with status 1; steps that were begun stay spent",
}


def begin(folder, *words, fault="", rank=1):
    """Start a command, whose process of this rank runs the code of the fault first."""
    modules = "privet.data, privet.distributed.launch, privet.runs.run"
    code = f"import os\nif os.environ.get('RANK') == '{rank}':\n    import {modules}\n    {fault}\n" if fault else ""
    (folder / "code").mkdir(exist_ok=True)
    (folder / "code" / "sitecustomize.py").write_text(code, encoding="utf-8")
    path = os.pathsep.join([str(folder / "code"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    command, pipe = [sys.executable, "-m", "privet", *map(str, words)], subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True)


def privet(folder, *words, **options):
    """Return a command that has ended, with all processes that it started, as they hold its output open."""
    process = begin(folder, *words, **options)
    try:
        out, error = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.terminate()  # the launcher stops its processes
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, error)


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
        done = privet(tmp_path, *options, "--processes", number, "--out", f"of-{number}", "--log", "tensorboard")
        assert done.returncode == 0, done.stderr
        assert len(list((tmp_path / f"of-{number}" / "tensorboard").iterdir())) == 1
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


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_an_error_of_one_rank_ends_all_with_one_message_that_names_it(options, tmp_path, fault):
    done = privet(tmp_path, *options, "--processes", 2, "--out", "run", fault=fault)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("Rows whose target")]
    assert (done.returncode, done.stdout, len(lines)) == (2, "", 1), done.stderr
    assert lines[0].startswith("privet: error: rank 1 ")
    assert FAULTS[fault] in lines[0]


@pytest.mark.slow
def test_a_rank_that_cannot_read_the_run_ends_a_resumed_one(options, tmp_path):
    fault = "privet.runs.run.foresee = lambda *_: [][0]"  # after the run was begun
    assert privet(tmp_path, *options, "--processes", 2, "--out", "run", fault=fault, rank=0).returncode == 1
    unreadable = "privet.runs.run.read_plan = lambda *_: open('gone.json')"
    done = privet(tmp_path, "train", "--resume", "run", "--processes", 2, fault=unreadable)
    assert done.returncode == 2
    assert done.stderr == "privet: error: rank 1 failed: FileNotFoundError: [Errno 2] No such file or directory: 'gone.json'\n"


@pytest.mark.slow
def test_the_threads_of_a_group_end_before_its_process(options, tmp_path):
    """They would abort it at times, with a status that ends the other ranks."""
    fault = "import atexit; atexit.register(lambda: open('left', 'w').write(str(torch.distributed.is_initialized())))"
    done = privet(tmp_path, *options, "--processes", 2, "--out", "run", fault=f"import torch; {fault}")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "left").read_text() == "False"


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.0, 0.5, 2.0])
def test_an_interrupt_is_said_at_most_once_and_leaves_no_process(options, tmp_path, seconds):
    """The processes are about to be started, import modules, or meet each other and take steps."""
    words = (*options, "--steps", 5000, "--processes", 2, "--out", "run")
    process = begin(tmp_path, *words, fault="open('begun', 'w').close()", rank=0)
    end = time.monotonic() + PATIENCE
    while not (tmp_path / "begun").exists() and time.monotonic() < end:
        time.sleep(0.005)
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)  # a launcher passes it on to its processes, which are in sessions of their own
    out, error = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, "")
    assert error.count("interrupted") == sum(line.startswith("privet: interrupted") for line in error.splitlines()) <= 1
    assert "Traceback" not in error


def test_the_words_of_a_command_reach_its_processes_with_a_plan_in_its_configuration(tmp_path, capsys, monkeypatch):
    started = []
    monkeypatch.setattr("privet.cli._verbs.train.launch", lambda *given: started.append(given) or 0)
    (tmp_path / "part.toml").write_text('[noise]\nkind = "Gaussian"\nmultiplier = 3.0\n', encoding="utf-8")
    words = ["train", "--config", str(tmp_path / "part.toml"), "--processes", "2", "--data", "digits"]
    assert ask(capsys, *words) == (0, "", "")
    assert started == [(2, words, "cpu")]


@pytest.mark.parametrize("device", ["cuda:0", "nowhere"])
def test_processes_that_cannot_each_have_a_device_are_not_started(device):
    with pytest.raises(InvalidArgumentError, match="--device is"):
        launch(2, [], device)
