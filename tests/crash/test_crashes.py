"""However a process ends, the ledger counts at least the drawn steps, at most one block more, and the run can resume."""

import functools
import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from sabotage import KILLED, REFUSED, SABOTEURS, Score, in_child

import privet
from plans import plan
from privet.budget import Budget
from privet.errors import BudgetExhaustedError, LedgerError
from privet.ledger import Ledger, read_history

BLOCK, TOTAL = 4, 2_000_000
MULTIPLIERS = [2.3] * TOTAL
PLAN = {"format": 1, "delta": 1e-5}


def drawn_in(folder: Path) -> int:
    path = folder / "drawn"
    return path.stat().st_size if path.exists() else 0


def opened(folder: Path, anchored: bool) -> Ledger:
    """Resume a run, or start it if it never began."""
    path = folder / "run"
    try:
        return Ledger.open(PLAN, MULTIPLIERS, path, BLOCK)
    except LedgerError as error:
        if drawn_in(folder) or not any(word in str(error) for word in ("has no ledger", "never began")):
            raise
    if anchored:
        (folder / "anchor").unlink(missing_ok=True)
    return Ledger.create(PLAN, MULTIPLIERS, path, BLOCK, anchor=folder / "anchor" if anchored else None)


def spend(folder: Path, anchored: bool, saboteur: str, chance: random.Random) -> None:
    """Take steps until something ends the process, recording each draw of noise separately."""
    note, beside = os.write, os.open(folder / "drawn", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    SABOTEURS[saboteur](chance, folder)
    ledger = opened(folder, anchored)
    try:
        while True:
            ledger.reserve().spend()
            note(beside, b".")
    except LedgerError:
        for _ in range(3):  # a disk that refused once is not tried again
            with pytest.raises(LedgerError):
                ledger.reserve()
        raise
    finally:
        ledger.close()


def crash_ledgers(folder: Path, crashes: int, seed: int) -> Score:
    score, excess = Score(), Counter[Path]()
    for number in range(crashes):
        chance = random.Random(f"{seed} {number}")
        saboteur = list(SABOTEURS)[number % len(SABOTEURS)]
        anchored = number // len(SABOTEURS) % 4 == 3
        place = folder / f"run-{'anchored-' * anchored}{number // (8 * len(SABOTEURS))}"
        place.mkdir(exist_ok=True)
        code = in_child(functools.partial(spend, place, anchored, saboteur, chance))
        assert code in (KILLED, REFUSED), (saboteur, code)
        score.count(saboteur)
        ledger = opened(place, anchored)
        more = ledger.spent - drawn_in(place)
        score.under_counts += more < 0
        score.largest_over_count = max(score.largest_over_count, more - excess[place])
        score.resumed += ledger.reserve().step == ledger.spent - BLOCK + 1
        ledger.give_back()
        ledger.close()
        os.write(beside := os.open(place / "drawn", os.O_WRONLY | os.O_APPEND), b".")
        os.close(beside)
        excess[place] = read_history(place / "run")[0].spent - drawn_in(place)
    return score


def small_plan(steps: int) -> privet.Plan:
    return plan(
        examples=500, sampling=privet.sampling.Poisson(10), steps=steps, delta=1e-4, noise=privet.noise.Gaussian(4.0)
    )  # fmt: skip


def draw_and_spend(folder: Path, shared: Budget, number: int, saboteur: str, chance: random.Random) -> None:
    SABOTEURS[saboteur](chance, folder)
    the_plan = small_plan(20)
    facts, path = {"budget": shared.to_dict()}, folder / f"ledger-{number}"
    ledger = Ledger.create(the_plan.to_dict(), the_plan.multipliers().tolist(), path, BLOCK, facts=facts)
    shared.draw(ledger, the_plan)
    for _ in range(chance.randrange(20)):
        ledger.reserve().spend()
    ledger.give_back()
    shared.settle(ledger)
    ledger.close()


def crash_budgets(folder: Path, crashes: int, seed: int) -> Score:
    """Crash runs on one budget, which must know every run that spent something, with at least what it spent."""
    shared = Budget.create(folder / "budget", epsilon=2.0, delta=1e-5, examples=500)
    score = Score()
    for number in range(crashes):
        chance = random.Random(f"{seed} {number}")
        saboteur = list(SABOTEURS)[number % len(SABOTEURS)]
        in_child(functools.partial(draw_and_spend, folder, shared, number, saboteur, chance))
        score.count(saboteur)
        account = shared.account()
        assert account.total() <= 2.0
        path, steps = folder / f"ledger-{number}", 0
        if path.exists() and path.stat().st_size and b"\n" in path.read_bytes():
            history = read_history(path)[0]
            share = account.shares.get(history.run)
            steps = 0 if share is None else share.steps
            score.under_counts += steps < history.spent
            again = Ledger.open(small_plan(20).to_dict(), [4.0] * 20, path, BLOCK)
            try:
                shared.draw(again, small_plan(20))
                shared.settle(again)
            except BudgetExhaustedError:
                assert share is None or share.settled
            else:
                kept = shared.account().shares[history.run].steps
                score.largest_over_count = max(score.largest_over_count, kept - again.spent)
            again.close()
        score.resumed += 1
    return score


def crash_trainings(folder: Path, crashes: int, seed: int) -> Score:
    """Crash real trainings, in forks of a process of their own, which imports torch once and runs nothing itself.

    It then ends while a loop over steps is open: there is no traceback, and the steps count.
    """
    script = Path(__file__).with_name("trainings.py")
    process = subprocess.run(
        [sys.executable, script, folder, str(crashes), str(seed)], capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert read_history(folder / "left open" / "run" / "ledger")[0].spent >= 2
    return Score(**json.loads(process.stdout.splitlines()[-1]))


def fresh() -> int:
    return random.SystemRandom().randrange(2**32)


# What crashes → how, how often in `make test` and in `make crash`, and how many steps are reserved at once.
BATTERIES = {
    "ledgers": (crash_ledgers, 36, 288, BLOCK),
    "budgets": (crash_budgets, 9, 90, BLOCK),
    "trainings": (crash_trainings, 9, 54, 16),
}


def test_a_few_crashes_of_every_kind(tmp_path):
    for name, (crash, few, _, block) in BATTERIES.items():
        (tmp_path / name).mkdir()
        crash(tmp_path / name, few, fresh()).tell(name, block)


def test_a_ledger_that_forgets_is_detected(tmp_path, monkeypatch):
    real = Ledger._note

    def forgetful(self: Ledger, record: dict[str, object], steps: int = 0) -> None:
        if record["record"] in ("reserve", "return"):
            self._spent += steps
        else:
            real(self, record, steps)

    monkeypatch.setattr(Ledger, "_note", forgetful)
    # What writes nothing meets no failing disk: it is stopped by having no steps left.
    monkeypatch.setitem(globals(), "MULTIPLIERS", [2.3] * 20_000)
    assert crash_ledgers(tmp_path, 9, fresh()).under_counts > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", BATTERIES)
def test_crashes(tmp_path, name):
    (crash, _, many, block), seed = BATTERIES[name], fresh()
    print(f"\nseed {seed}")
    crash(tmp_path, many, seed).tell(name, block)
