"""Failures of a process or its disk, each installed in a process that is then expected to end because of it.

A saboteur takes a random generator and the folder that the process writes to. Those whose process is not killed let an error
come out instead, after which nothing more may be spent.
"""

import errno
import os
import random
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

Saboteur = Callable[[random.Random, Path], None]

KILLED, REFUSED = -signal.SIGKILL, 7
_write, _fsync, _replace = os.write, os.fsync, os.replace


@dataclass
class Score:
    """Results of a battery."""

    crashes: int = 0
    under_counts: int = 0
    largest_over_count: int = 0
    resumed: int = 0
    ways: dict[str, int] = field(default_factory=dict)

    def count(self, way: str) -> None:
        self.crashes += 1
        self.ways[way] = self.ways.get(way, 0) + 1

    def tell(self, what: str, block: int) -> None:
        ways = ", ".join(f"{way} {number}" for way, number in sorted(self.ways.items()))
        print(
            f"\n{what}: {self.crashes} crashes, {self.under_counts} under-counts, over-count at most {self.largest_over_count} "
            f"of a block of {block}, {self.resumed} resumed ({ways})"
        )
        assert (self.under_counts, self.resumed) == (0, self.crashes)
        assert self.largest_over_count <= block


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _until(chance: random.Random, calls: int) -> Iterator[bool]:
    """Yield False for the first calls, then True."""
    for _ in range(chance.randrange(calls)):
        yield False
    while True:
        yield True


def soon(chance: random.Random, number: int) -> None:
    """Send this process a signal within 50 ms."""

    def later() -> None:
        time.sleep(chance.random() * 0.05)
        os.kill(os.getpid(), number)

    threading.Thread(target=later, daemon=True).start()


def any_moment(chance: random.Random, folder: Path) -> None:
    soon(chance, signal.SIGKILL)


def at_fsync(chance: random.Random, before: Callable[[bool], None], after: Callable[[bool], None] = lambda due: None) -> None:
    """Call functions before and after every fsync, with whether it is time."""
    times = _until(chance, 12)

    def fsync(descriptor: int) -> None:
        due = next(times)
        before(due)
        _fsync(descriptor)
        after(due)

    os.fsync = fsync


def die_if(due: bool) -> None:
    if due:
        die()


def before_fsync(chance: random.Random, folder: Path) -> None:
    at_fsync(chance, die_if)


def after_fsync(chance: random.Random, folder: Path) -> None:
    at_fsync(chance, lambda due: None, die_if)


def torn_line(chance: random.Random, folder: Path) -> None:
    due = _until(chance, 10)

    def write(descriptor: int, line: bytes) -> int:
        if next(due):
            _write(descriptor, line[: chance.randrange(len(line) + 1)])
            die()
        return _write(descriptor, line)

    os.write = write


def around_a_move(chance: random.Random, folder: Path) -> None:
    """Die before or after a file is moved into its place; where nothing is moved, like `before_fsync`."""
    due, after = _until(chance, 12), chance.random() < 0.5
    before_fsync(random.Random(chance.random()), folder)

    def replace(source: object, target: object) -> None:
        if now := next(due) and not after:
            die()
        _replace(source, target)
        if now or next(due):
            die()

    os.replace = replace


def failing_fsync(chance: random.Random, folder: Path) -> None:
    def fail(due: bool) -> None:
        if due:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    at_fsync(chance, fail)


def fsync_that_fails_once(chance: random.Random, folder: Path) -> None:
    """The error is told once, and then everything seems well: what was written is not on the disk all the same."""
    since: list[bool] = []

    def fail(due: bool) -> None:
        since.extend([True] * due)
        if len(since) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if len(since) > 12:  # nobody minded, as with a folder whose name for a checkpoint may come later
            die()

    at_fsync(chance, fail)


def full_disk(chance: random.Random, folder: Path) -> None:
    """No file of the folder grows by more than a little: writes are cut off in the middle, then refused."""
    largest = max((path.stat().st_size for path in folder.rglob("*") if path.is_file()), default=0)
    limit = largest + chance.randrange(1, 3000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


def interrupt(chance: random.Random, folder: Path) -> None:
    soon(chance, signal.SIGINT)


SABOTEURS: dict[str, Saboteur] = {
    "kill at any moment": any_moment,
    "kill before fsync": before_fsync,
    "kill after fsync": after_fsync,
    "torn line": torn_line,
    "kill around a move": around_a_move,
    "failing fsync": failing_fsync,
    "fsync that fails once": fsync_that_fails_once,
    "full disk": full_disk,
    "interrupt": interrupt,
}


def in_child(task: Callable[[], object]) -> int:
    """Run a task in a fork and return how that ended: -9 if it was killed, 7 if an error came out, 0 if none did."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            task()
            code = 0
        except (Exception, KeyboardInterrupt):
            code = REFUSED
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
