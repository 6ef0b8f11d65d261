"""A real SuperLink and two real SuperNodes on this machine train what the simulation trains, and send as little as it says."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from privet.federated import Federated

pytest.importorskip("flwr", reason="flwr is not installed (extra flower)")

pytestmark = pytest.mark.slow  # each message starts a process: two minutes on a machine that is busy
APP = Path(__file__).parent / "flower_app"
BIN = Path(sys.executable).parent
PATIENCE = 300  # seconds; only a run that hangs takes so long


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def listening(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(ready, what, processes, log):
    end = time.monotonic() + PATIENCE
    while not ready():
        dead = [process.args[0] for process in processes if process.poll() is not None]
        if dead or time.monotonic() > end:
            pytest.fail(f"{what} is not there; ended: {dead}\n{log.read_text(encoding='utf-8')[-4000:]}")
        time.sleep(0.2)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Run the app on a SuperLink and two SuperNodes, and return its folder; nothing is left running."""
    folder = tmp_path_factory.mktemp("flower")
    link, *nodes = free_ports(3)
    home, log = folder / "home", folder / "log.txt"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{link}"\ninsecure = true\n', encoding="utf-8"
    )
    environment = {
        **os.environ, "FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1",
        "OMP_NUM_THREADS": "1", "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",
    }  # fmt: skip
    processes = []

    def start(program, *arguments):
        with log.open("a", encoding="utf-8") as out:
            processes.append(subprocess.Popen(
                [BIN / program, "--insecure", *arguments], env=environment, cwd=folder, stdout=out, stderr=out,
                start_new_session=True,
            ))  # fmt: skip

    try:
        start("flower-superlink", "--disable-runtime-dependency-installation", "--port", str(link))
        wait_for(lambda: listening(link), "the SuperLink", processes, log)
        for clinic, port in enumerate(nodes):
            own = ("--node-config", f"clinic={clinic}", "--port", str(port))
            start("flower-supernode", "--superlink", f"127.0.0.1:{link}", *own)
        begun = subprocess.run(
            [BIN / "flwr", "run", str(APP), "here", "--run-config", f"out='{folder}'"],
            env=environment, capture_output=True, text=True, cwd=folder, timeout=PATIENCE,
        )  # fmt: skip
        assert begun.returncode == 0, begun.stdout + begun.stderr
        wait_for((folder / "found.json").exists, "the result", processes, log)
        yield folder
    finally:
        for process in processes:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_nodes_train_what_the_simulation_trains(found, monkeypatch):
    monkeypatch.syspath_prepend(str(APP))
    from clinics import task

    model = task.make_model()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    with Federated(
        task.PLAN, model, task.simulate(range(task.CLIENTS)), torch.optim.SGD(model.parameters(), lr=1.0)
    ) as federated:
        federated.run()
    run = json.loads((found / "found.json").read_text(encoding="utf-8"))
    trained = torch.load(found / "model.pt")
    assert sorted(map(sorted, run["nodes"])) == [list(range(0, task.CLIENTS, 2)), list(range(1, task.CLIENTS, 2))]
    assert len(run["updates"]) == task.ROUNDS
    for name, each in model.state_dict().items():
        assert (trained[name] - each).abs().max() < 1e-6
        assert (trained[name] - before[name]).abs().max() > 1e-3


def test_sparse_updates_take_a_tenth_of_the_bytes_on_the_wire(found):
    """With all that Flower sends around an update, at the final rate of 0.9; the first round is dense."""
    run = json.loads((found / "found.json").read_text(encoding="utf-8"))
    first, *_, last = (up / updates for up, updates in zip(run["up"], run["updates"], strict=True))
    dense = 4 * 10 * 4001  # the parameters as float32
    assert dense <= first < 1.005 * dense
    assert 0.1 * dense < last <= 0.105 * dense
