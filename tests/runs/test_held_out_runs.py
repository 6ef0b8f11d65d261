import json
import os
import signal
from functools import cache, partial

import numpy as np
import pytest

from privet import Plan, clipping, noise, runs, sampling
from privet.budget import Budget
from privet.errors import BudgetExhaustedError, InvalidArgumentError, LedgerError
from privet.ledger import answers, read_history
from privet.plan import ClassCounts, Holdout
from privet.runs.verification import verify
from privet.training.loop import Loop

ROWS, HELD_OUT = 200, 40
pytestmark = pytest.mark.usefixtures("brief_runs")


@pytest.fixture
def source(tmp_path):
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(ROWS, 3)).astype(np.float32)
    np.savez(tmp_path / "own.npz", x_train=inputs, y_train=(inputs[:, 0] > 0.8).astype(np.int64))
    return tmp_path / "own.npz"


def setup_of(source, **options) -> runs.Setup:
    return runs.Setup(data=str(source), model="logistic", learning_rate=1.0, classes="2", holdout=0.2, **options)


holdout_of = cache(partial(Holdout.calibrate, delta=1e-5, examples=HELD_OUT))


def plan_of(**options) -> Plan:
    settings = {
        "examples": ROWS - HELD_OUT, "sampling": sampling.Poisson(40), "steps": 3, "clipping": clipping.Flat(1.0), "delta": 1e-5,
        "noise": noise.Gaussian(2.0), "holdout": holdout_of(1.0),
    }  # fmt: skip
    return Plan(**{**settings, **options})


def start(source, directory, plan=None, setup=None, **options) -> runs.Outcome:
    setup = setup or setup_of(source)
    return runs.start(setup, plan or plan_of(), setup.load_data(), directory, **options)


def test_the_estimate_is_written_with_its_interval_and_its_epsilon(source, tmp_path):
    outcome = start(source, tmp_path / "run")
    found = outcome.held_out
    low, high = found.intervals["accuracy"]
    assert 0 <= low <= found.metrics["accuracy"] <= high <= 1
    assert (found.examples, found.unit, found.delta) == (HELD_OUT, "example", 1e-5)
    assert 0.99 < found.epsilon <= 1.0
    assert json.loads((tmp_path / "run" / "holdout.json").read_text())["metrics"] == found.metrics
    assert outcome.guarantee.epsilon == plan_of().epsilon()
    assert "40 further examples" in (tmp_path / "run" / "guarantee.md").read_text()
    assert (tmp_path / "run" / "division.key").stat().st_mode & 0o077 == 0
    verified = verify(tmp_path / "run")
    assert (verified.epsilon, verified.queries) == (plan_of().epsilon(), ("holdout",))
    assert "Queries that count: holdout." in str(verified)


def test_the_released_sum_has_the_noise_of_the_plan(source, tmp_path, monkeypatch):
    """What is noised is a whole number of correct predictions, centred, with the sensitivity and the multiplier of the plan."""
    sums = []
    real = answers.release

    def release(summed, token, drawn):
        sums.append((summed.tensors["sum"].clone(), summed.sensitivity, token.multiplier))
        return real(summed, token, drawn)

    monkeypatch.setattr(answers, "release", release)
    outcome = start(source, tmp_path / "run")
    [(total, sensitivity, multiplier)] = sums
    assert sensitivity == 0.5
    assert multiplier == plan_of().holdout.multiplier
    assert (total + HELD_OUT / 2) % 1 == 0
    assert abs(float(total)) <= HELD_OUT / 2
    history, _, _ = read_history(tmp_path / "run" / "ledger")
    answer = history.answers["holdout"][0]
    assert outcome.held_out.metrics["accuracy"] == pytest.approx(min(1, max(0, 0.5 + answer / HELD_OUT)))


def killed(source, directory, where, monkeypatch, plan=None):
    """Run in a child that dies at one of the points around the release; return whether it died there."""
    child = os.fork()
    if not child:

        def die(*_):
            os.kill(os.getpid(), signal.SIGKILL)

        real = answers.release
        if where == "before payment":
            monkeypatch.setattr(answers.Ledger, "reserve_query", die)
        elif where == "after payment":
            monkeypatch.setattr(answers, "release", die)
        elif where == "after drawing":
            monkeypatch.setattr(answers, "release", lambda *arguments: (real(*arguments), die()))
        else:
            record = answers.Ledger.record_answer
            monkeypatch.setattr(answers.Ledger, "record_answer", lambda *arguments: (record(*arguments), die()))
        start(source, directory, plan)
        os._exit(1)
    return os.waitpid(child, 0)[1] == signal.SIGKILL


@pytest.mark.parametrize(("where", "paid", "known"), [
    ("before payment", False, True),
    ("after payment", True, False),
    ("after drawing", True, False),
    ("after recording", True, True),
])  # fmt: skip
def test_a_killed_run_resumes_and_never_draws_what_was_paid_for_again(source, tmp_path, monkeypatch, where, paid, known):
    run = tmp_path / "run"
    assert killed(source, run, where, monkeypatch)
    before, _, _ = read_history(run / "ledger")
    assert (before.spent, set(before.queries)) == (3, {"holdout"} if paid else set())
    draws, keys = [], []
    real, divide = answers.release, runs.Setup.divide
    monkeypatch.setattr(answers, "release", lambda *arguments: (draws.append(1), real(*arguments))[1])
    monkeypatch.setattr(runs.Setup, "divide", lambda setup, data, key: (keys.append(key), divide(setup, data, key))[1])
    outcome = runs.resume(run)
    assert keys == [(run / "division.key").read_text().strip()]
    after, _, _ = read_history(run / "ledger")
    assert len(draws) == (0 if paid else 1)
    assert after.queries == {"holdout": plan_of().holdout.multiplier}
    assert (outcome.held_out is not None) == known
    assert any("never drawn again" in text for text in outcome.guarantee.warnings) != known
    if where == "after recording":
        assert after.answers == before.answers
    assert outcome.guarantee.epsilon == plan_of().epsilon()


def test_a_run_without_its_key_is_not_resumed(source, tmp_path, monkeypatch):
    run = tmp_path / "run"
    assert killed(source, run, "before payment", monkeypatch)
    (run / "division.key").unlink()
    for content in (None, "", "12\n", "x" * 64):
        if content is not None:
            (run / "division.key").write_text(content)
        with pytest.raises(LedgerError, match=r"division\.key"):
            runs.resume(run)


@pytest.mark.parametrize("plans", ["adaptive", "fixed"])
def test_a_budget_pays_for_the_release(source, tmp_path, plans):
    """One run costs the larger of its parts; several cost no more than everything composed."""
    shared = Budget.create(tmp_path / "budget", epsilon=6.0, delta=1e-5, examples=ROWS, plans=plans)
    expensive = plan_of(holdout=holdout_of(4.0))
    start(source, tmp_path / "a", expensive, budget=shared)
    first = shared.account().total()
    assert first == pytest.approx(expensive.epsilon())
    start(source, tmp_path / "b", plan_of(), budget=shared)
    assert first < shared.account().total() <= 6.0
    with pytest.raises(BudgetExhaustedError):
        start(source, tmp_path / "c", plan_of(holdout=holdout_of(6.0)), budget=shared)
    assert not (tmp_path / "c" / "ledger").exists()


def test_a_plan_for_other_held_out_data_is_refused_before_anything_is_written(source, tmp_path):
    for plan in (plan_of(holdout=None), plan_of(holdout=Holdout(3.0, examples=10))):
        with pytest.raises(InvalidArgumentError, match=r"plan\.holdout"):
            start(source, tmp_path / "run", plan)
    assert not (tmp_path / "run").exists()


def test_users_are_held_out_as_a_whole(tmp_path):
    generator = np.random.default_rng(0)
    owners = np.repeat([f"u{number}" for number in range(50)], 4)
    inputs = generator.normal(size=(ROWS, 3)).astype(np.float32)
    np.savez(tmp_path / "own.npz", x_train=inputs, y_train=(inputs[:, 0] > 0).astype(np.int64), owner=owners)
    setup = setup_of(tmp_path / "own.npz", user_column="owner", user_cap=3)
    plan = plan_of(examples=40, sampling=sampling.Poisson(10), unit="one user", holdout=Holdout(3.0, examples=10))
    found = start(None, tmp_path / "run", plan, setup).held_out
    assert (found.examples, found.unit) == (10, "user")
    assert 0 <= found.metrics["accuracy"] <= 1


@pytest.fixture
def adopted(monkeypatch):
    """The priors that losses adopt."""
    found, real = [], runs.tasks.AdjustedCrossEntropy.adopt
    monkeypatch.setattr(
        runs.tasks.AdjustedCrossEntropy, "adopt", lambda loss, priors: (found.append(priors), real(loss, priors))[1]
    )
    return found


def test_class_counts_are_paid_for_before_the_first_step_and_shift_the_loss(source, tmp_path, adopted):
    """With little noise the released priors are near the class frequencies."""
    counts = ClassCounts(0.5)
    outcome = start(source, tmp_path / "run", plan_of(class_counts=counts))
    labels = np.load(source)["y_train"]
    assert adopted[0][1] == pytest.approx(labels.mean(), abs=0.1)
    records = [json.loads(line.split(" ", 1)[1])["record"] for line in (tmp_path / "run" / "ledger").read_text().splitlines()]
    assert records.index("query") < records.index("answer") < records.index("reserve")
    assert outcome.guarantee.epsilon == plan_of(class_counts=counts).epsilon() > plan_of().epsilon()


def test_a_run_that_only_counted_classes_keeps_its_share_of_the_budget(source, tmp_path, monkeypatch):
    shared = Budget.create(tmp_path / "budget", epsilon=6.0, delta=1e-5, examples=ROWS)

    def interrupt(*_):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(Loop, "_take", interrupt)
    with pytest.raises(KeyboardInterrupt):
        start(source, tmp_path / "run", plan_of(class_counts=ClassCounts(3.0)), budget=shared)
    assert shared.account().total() > 0


def test_a_resumed_run_adopts_the_counts_that_were_released(source, tmp_path, monkeypatch, adopted):
    run, steps = tmp_path / "run", Loop._take

    def interrupted(training, update):
        yield next(steps(training, update))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Loop, "_take", interrupted)
        with pytest.raises(KeyboardInterrupt):
            start(source, run, plan_of(class_counts=ClassCounts(0.5)))
    outcome = runs.resume(run)
    assert adopted[0] == adopted[1]
    history, _, _ = read_history(run / "ledger")
    assert set(history.queries) == set(history.answers) == {"class counts", "holdout"}
    assert outcome.guarantee.epsilon == plan_of(class_counts=ClassCounts(0.5)).epsilon()
