"""What a system without POSIX lacks is not needed: import, training, verifying, resuming, and the ledger's lock."""

import os
import signal
import subprocess
import sys
import textwrap

# What Windows has not, and POSIX does. What torch makes of the rest is torch's affair, so it is imported first.
HIDDEN = """
    import os, sys
    import filelock.version, torch, numpy, scipy.stats, cryptography, torch.utils.data, torch.multiprocessing
    for name in [name for name in sys.modules if name.split(".")[0] == "filelock"]:
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
    def training(make, *arguments, steps=None):
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        data = torch.utils.data.TensorDataset(torch.randn(100, 3), torch.randn(100))
        def loss_fn(model, batch):
            return (model(batch[0])[:, 0] - batch[1]).square()
        return make(*arguments, model, loss_fn, torch.optim.SGD(model.parameters(), lr=0.1), data, sys.argv[1])
    plan = privet.Plan(
        examples=100, sampling=privet.sampling.Poisson(batch_size=20), steps=6, delta=1e-5,
        clipping=privet.clipping.Flat(bound=1.0), noise=privet.noise.Gaussian(multiplier=2.0),
    )
    def begin():
        return training(lambda *rest: privet.Training(plan, *rest))
    def resume():
        return training(lambda *rest: privet.Training.resume(rest[-1], *rest[:-1]))
"""


def program(body):
    return "\n".join(map(textwrap.dedent, (HIDDEN, TRAINING, body)))


def run(body, directory):
    return subprocess.run(
        [sys.executable, "-c", program(body), str(directory)], capture_output=True, text=True, check=False, timeout=120
    )


def test_a_run_is_trained_verified_and_resumed(tmp_path):
    ended = run(
        """
        from privet.errors import LedgerError
        from privet.training.verification import verify
        run = begin()
        for step, _ in zip(run.steps(), range(3)):
            pass
        try:
            resume()
        except LedgerError as error:
            print(error)
        run.close()
        again = resume()
        again.run()
        again.close()
        print(again.steps_spent, sorted(os.listdir(sys.argv[1])))
        print(verify(sys.argv[1]))
        print([name for name in ("fcntl", "resource") if sys.modules.get(name)])
        """,
        tmp_path / "run",
    )
    assert ended.returncode == 0, ended.stderr
    print(ended.stdout)
