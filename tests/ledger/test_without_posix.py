"""What a system without POSIX lacks is not needed: import, training, verifying, resuming, and the ledger's lock."""

import contextlib
import multiprocessing
import signal
import subprocess
import sys
import textwrap

import pytest
import torch._dynamo  # here, and not in the fork, as it takes seconds to import  # noqa: F401

import privet.runs.verification  # likewise  # noqa: F401

# What Windows has not, and POSIX does. What torch makes of the rest is torch's affair, so it is imported first.
HIDDEN = """
    import os, sys
    import filelock.version, torch, numpy, scipy.stats, cryptography, torch.utils.data, torch.multiprocessing
    for name in [name for name in sys.modules if name.split(".")[0] in ("filelock", "privet")]:
        del sys.modules[name]
    for name in ("fcntl", "resource", "termios", "pwd", "grp", "syslog", "pty", "tty"):
        sys.modules[name] = None
    for name in (
        "fork", "forkpty", "register_at_fork", "geteuid", "getuid", "getegid", "getgid", "getpgid", "setsid", "getloadavg",
        "sched_getaffinity", "sysconf", "uname", "chown", "lchown", "fchmod", "fchown", "mkfifo", "pread", "pwrite", "sync",
        "fdatasync", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "O_SYNC", "nice", "statvfs", "fchdir",
    ):
        if hasattr(os, name):
            delattr(os, name)
    opened = os.open
    def open_file(path, *arguments, **more):
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **more)
    os.open = open_file
    import warnings
    warnings.filterwarnings("ignore", "only soft file lock is available")
"""
TRAINING = """
    import privet
    plan = privet.Plan(
        examples=100, sampling=privet.sampling.Poisson(batch_size=20), steps=6, delta=1e-5,
        clipping=privet.clipping.Flat(bound=1.0), noise=privet.noise.Gaussian(multiplier=2.0),
    )
    def loss_fn(model, batch):
        return (model(batch[0])[:, 0] - batch[1]).square()
    def parts():
        model = torch.nn.Linear(3, 1)
        data = torch.utils.data.TensorDataset(torch.ones(100, 3), torch.ones(100))
        return model, loss_fn, torch.optim.SGD(model.parameters(), lr=0.1), data
    def resume():
        return privet.Training.resume(sys.argv[1], *parts())
"""


RUN = """
    from pathlib import Path
    from privet.errors import LedgerError
    from privet.runs.verification import verify
    run = privet.Training(plan, *parts(), sys.argv[1])
    for step in run:
        if step.number == 3:
            break
    try:
        resume()
    except LedgerError as error:
        print(error)
    run.close()
    again = resume()
    again.run()
    again.close()
    print(verify(Path(sys.argv[1])))
    print(sorted(os.listdir(sys.argv[1])))
"""


def program(*bodies):
    return "\n".join(map(textwrap.dedent, (HIDDEN, *bodies)))


def train_verify_and_resume(folder):
    sys.argv = ["", str(folder / "run")]
    with open(folder / "printed", "w", encoding="utf-8") as file, contextlib.redirect_stdout(file):
        exec(program(TRAINING, RUN), {})


def test_a_run_is_trained_verified_and_resumed(tmp_path):
    process = multiprocessing.get_context("fork").Process(target=train_verify_and_resume, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == 0
    refusal, verified, _, files = (tmp_path / "printed").read_text(encoding="utf-8").splitlines()[:4]
    assert "is in use by another process" in refusal
    assert "is intact: 6 of 6 steps count" in verified
    assert "in 2 sessions" in verified
    assert files == str([
        "checkpoint-previous.pt", "checkpoint.pt", "fingerprint.json", "guarantee.json", "guarantee.md", "ledger",
        "manifest.json", "metrics.jsonl", "plan.json",
        "status.json",
    ])  # fmt: skip


@pytest.mark.slow
def test_the_lock_ends_with_its_process_and_not_before(tmp_path):
    body = """
        from pathlib import Path
        from privet.errors import LedgerError
        from privet.ledger import Journal
        for line in sys.stdin:
            try:
                journal = Journal(Path(sys.argv[1]), "the diary")
                journal.append({"record": "entry"})
                print(len(journal.records), flush=True)
            except LedgerError as error:
                print(error, flush=True)
    """
    command = [sys.executable, "-c", program(body), tmp_path / "diary"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as first, subprocess.Popen(command, **pipes) as second:

        def opened_by(process):
            process.stdin.write("open\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        assert opened_by(first) == "0"
        assert "is in use by another process" in opened_by(second)
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert opened_by(second) == "1"
        second.stdin.close()
