"""However one of several processes ends, the ledger counts all steps with noise, the others end, and the run can resume."""

import json
import signal

import pytest
import ranks

from distributed.processes import run_ranks
from privet.ledger import read_history
from privet.ledger.ledger import BLOCK

# Size of the group and of the one that resumes, the rank that is killed, and where.
FEW = [(2, 3, 0, "after the noise")]
MANY = [
    (size, other, rank, phase)
    for size, other in ((2, 1), (2, 3), (3, 2))
    for rank in range(size)
    for phase in (*ranks.PHASES, *(ranks.ALONE_FIRST if rank == 0 else ()))
]
SHARDED = [
    (size, other, rank, phase)
    for size, other in ((2, 1), (3, 2))
    for rank in (0, size - 1)
    for phase in (*ranks.PHASES, *ranks.OF_SHARDS, *(ranks.ALONE_FIRST if rank == 0 else ()))
]


def noised_in(folder):
    return {int(line) for path in folder.glob("noise-*") for line in path.read_text().split()}


def crash_and_resume(folder, size, other, rank, phase, when=5, sharded=False):
    """Check all that must hold after a kill; return the seconds from it to the end of the last survivor."""
    codes = run_ranks(size, ranks.train, folder, rank, phase, when, signal.SIGKILL, sharded, expected=())
    assert codes == [-signal.SIGKILL if each == rank else 0 for each in range(size)]
    ends = [json.loads((folder / f"end-{each}").read_text()) for each in range(size) if each != rank]
    if phase not in ("after the vote on the end", "before the return of steps", "after the return of steps"):
        for end in ends:  # in these phases, the others have nothing left to wait for
            assert end["error"].startswith(f"WorldError: rank {rank} ended or stopped answering"), (phase, end)
    seconds = max(end["seconds"] for end in ends)
    noised, spent = noised_in(folder), read_history(folder / "run" / "ledger")[0].spent
    assert noised == set(range(1, len(noised) + 1))
    assert len(noised) <= spent <= (len(noised) + 1 if rank else min(ranks.STEPS, len(noised) + BLOCK))
    for path in (*folder.glob("noise-*"), *folder.glob("end-*"), folder / "killed"):
        path.unlink()
    run_ranks(other, ranks.train, folder, -1, None, 0, signal.SIGKILL, sharded)
    ends = [json.loads((folder / f"end-{each}").read_text()) for each in range(other)]
    assert ends == [{"error": "", "seconds": -1.0, "taken": ranks.STEPS - spent}] * other
    if other > 1:
        assert noised_in(folder) == set(range(spent + 1, ranks.STEPS + 1))
    assert read_history(folder / "run" / "ledger")[0].spent == ranks.STEPS
    return seconds


@pytest.mark.parametrize(("size", "other", "rank", "phase"), FEW)
def test_a_few_kills_of_one_rank(tmp_path, size, other, rank, phase):
    crash_and_resume(tmp_path, size, other, rank, phase)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "other", "rank", "phase"), MANY)
def test_kills_of_one_rank(tmp_path, size, other, rank, phase):
    """Survivors end within 3 seconds, of which they take one to find out who is lost; a busy machine gets three tries."""
    for number in range(3):
        (folder := tmp_path / str(number)).mkdir()
        if (seconds := crash_and_resume(folder, size, other, rank, phase)) <= 3.0:
            break
    print(f"\n{size} processes, rank {rank} {phase}: {seconds:.2f} s")
    assert seconds <= 3.0


@pytest.mark.slow
@pytest.mark.parametrize(("size", "other", "rank", "phase"), SHARDED)
def test_kills_of_one_rank_of_a_sharded_model(tmp_path, size, other, rank, phase):
    for number in range(3):
        (folder := tmp_path / str(number)).mkdir()
        if (seconds := crash_and_resume(folder, size, other, rank, phase, sharded=True)) <= 3.0:
            break
    print(f"\n{size} processes, rank {rank} {phase}: {seconds:.2f} s")
    assert seconds <= 3.0


@pytest.mark.parametrize(("rank", "phase", "sharded"), [
    (1, "before the sum", False), pytest.param(0, "before the sum", False, marks=pytest.mark.slow),
    pytest.param(1, "in a pass", True, marks=pytest.mark.slow), pytest.param(0, "in a pass", True, marks=pytest.mark.slow),
])  # fmt: skip
def test_a_rank_that_is_stopped_ends_the_others_at_the_time_out(tmp_path, rank, phase, sharded):
    """In the groups of this world, and in that of a mesh, whose own time-out is longer."""
    run_ranks(2, ranks.train, tmp_path, rank, phase, 5, signal.SIGSTOP, sharded, timeout=4.0, expected=())
    end = json.loads((tmp_path / f"end-{1 - rank}").read_text())
    assert end["error"].startswith(f"WorldError: rank {rank} ended or stopped answering"), end
    assert end["taken"] == 4
    assert noised_in(tmp_path) == {1, 2, 3, 4}
    if rank == 0:
        assert end["seconds"] <= 4.0 + 2.0
