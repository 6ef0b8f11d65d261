import dataclasses
import json
import math
import os
import random
import time
import types

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import plans
import privet
from privet.accounting.queries import composed_epsilon
from privet.accounting.rounding import format_up
from privet.budget import Budget, Terms
from privet.errors import BudgetExhaustedError, InvalidArgumentError, LedgerError
from privet.ledger import Ledger, journal

N, DELTA = 1000, 1e-5


def plan(multiplier=3.0, steps=20, batch_size=50, examples=N, **options):
    options = {"sampling": privet.sampling.Poisson(batch_size), "noise": privet.noise.Gaussian(multiplier), **options}
    return plans.plan(examples=examples, steps=steps, delta=1e-4, **options)


def budget(tmp_path, epsilon=3.0, **terms):
    terms.setdefault("examples", N)
    return Budget.create(tmp_path / "budget", epsilon=epsilon, delta=DELTA, **terms)


def ledger_of(the_plan, path=None, block=16):
    return Ledger.create(the_plan.to_dict(), the_plan.multipliers().tolist(), path, block)


def drawn(shared, the_plan, path=None, **options):
    ledger = ledger_of(the_plan, path, **options)
    shared.draw(ledger, the_plan)
    return ledger


def cost(*plans):
    return composed_epsilon([event for one in plans for event in one.events()], delta=DELTA)


def test_the_whole_plan_is_drawn_before_anything_is_spent(tmp_path):
    shared = budget(tmp_path)
    ledger = drawn(shared, plan())
    assert ledger.spent == 0
    assert shared.account().total() == cost(plan())


def test_a_plan_that_is_calibrated_to_the_budget_fits_and_nothing_after_it(tmp_path):
    shared = budget(tmp_path, epsilon=1.3)
    drawn(shared, dataclasses.replace(plan(multiplier=None), delta=DELTA).calibrate(1.3))
    with pytest.raises(BudgetExhaustedError, match=r"allows ε = 1\.3"):
        drawn(shared, plan(multiplier=1000.0, steps=1))


def test_a_plan_beyond_the_budget_is_refused_and_leaves_it_as_it_was(tmp_path):
    shared = budget(tmp_path, epsilon=0.1)
    before = shared.path.read_bytes()
    with pytest.raises(BudgetExhaustedError):
        drawn(shared, plan())
    assert shared.path.read_bytes() == before


def test_fixed_plans_compose_exactly(tmp_path):
    """Pretraining, then finetuning on the same data, both planned in advance: heterogeneous releases, all priced at once."""
    first, second = plan(multiplier=2.0, steps=30), plan(multiplier=4.5, steps=70, batch_size=20)
    together = cost(first, second)
    shared = budget(tmp_path, epsilon=together, plans="fixed")
    drawn(shared, first)
    drawn(shared, second)
    assert shared.account().total() == together
    assert together < cost(first) + cost(second)
    tight = Budget.create(tmp_path / "tight", epsilon=together * (1 - 1e-6), delta=DELTA, examples=N, plans="fixed")
    drawn(tight, first)
    with pytest.raises(BudgetExhaustedError):
        drawn(tight, second)


def test_plans_that_may_depend_on_results_cost_more_than_fixed_ones(tmp_path):
    shared = budget(tmp_path)
    drawn(shared, plan())
    assert shared.account().total() == cost(plan())  # the first depends on nothing
    drawn(shared, plan(multiplier=4.0))
    assert cost(plan(), plan(multiplier=4.0)) < shared.account().total() < 3.0


def test_the_order_is_fixed_by_the_first_run_and_stays(tmp_path):
    shared = budget(tmp_path)
    drawn(shared, plan())
    (order,) = shared.account().orders.values()
    other = plan(multiplier=30.0, steps=500, batch_size=200)
    drawn(shared, other)
    assert list(shared.account().orders.values()) == [order]


def test_runs_without_divergences_need_fixed_plans_or_a_separate_budget(tmp_path):
    truncated = plan(sampling=privet.sampling.TruncatedPoisson(50, cap=90))
    shared = budget(tmp_path)
    drawn(shared, truncated)
    with pytest.raises(InvalidArgumentError, match="'fixed'"):
        drawn(shared, plan())


@pytest.mark.parametrize("plans", ["adaptive", "fixed"])
def test_what_was_not_spent_comes_back_when_the_run_is_closed(tmp_path, plans):
    shared = budget(tmp_path, plans=plans)
    ledger = drawn(shared, plan(), block=4)
    for _ in range(6):
        ledger.reserve()
    ledger.give_back()
    shared.settle(ledger)
    (share,) = shared.account().shares.values()
    assert (share.steps, share.settled) == (6, True)
    assert shared.account().total() == cost(plan(steps=6))


def test_a_plan_that_fits_only_alone_returns_nothing_as_stopping_may_depend_on_results(tmp_path):
    whole = cost(plan())
    shared = budget(tmp_path, epsilon=whole)  # the filter is looser, so the plan is not within it
    ledger = drawn(shared, plan())
    ledger.reserve()
    ledger.give_back()
    shared.settle(ledger)
    assert shared.account().total() == whole


def test_a_run_that_released_nothing_returns_everything(tmp_path):
    shared = budget(tmp_path, epsilon=cost(plan()))
    ledger = drawn(shared, plan())
    shared.settle(ledger)
    assert shared.account().total() == 0.0
    drawn(shared, plan())


def test_a_crash_returns_nothing_until_the_run_is_resumed_and_closed(tmp_path):
    shared, path = budget(tmp_path), tmp_path / "ledger"
    ledger = drawn(shared, plan(steps=40), path, block=4)
    ledger.reserve()
    os.close(ledger._chain._descriptor)
    assert shared.account().total() == cost(plan(steps=40))
    again = Ledger.open(plan(steps=40).to_dict(), [3.0] * 40, path)
    shared.draw(again, plan(steps=40))
    shared.settle(again)
    assert shared.account().total() == cost(plan(steps=4))
    assert len(shared.account().shares) == 1


def test_a_resumed_run_draws_again_what_it_had_returned_and_is_refused_if_it_is_gone(tmp_path):
    the_plan = plan(multiplier=2.0, steps=40)
    shared, path = budget(tmp_path, epsilon=1.5 * cost(the_plan)), tmp_path / "ledger"
    ledger = drawn(shared, the_plan, path)
    ledger.reserve()
    ledger.give_back()
    shared.settle(ledger)
    ledger.close()
    other = drawn(shared, plan(multiplier=2.0, steps=45))
    again = Ledger.open(the_plan.to_dict(), [2.0] * 40, path)
    with pytest.raises(BudgetExhaustedError):
        shared.draw(again, the_plan)
    shared.settle(other)
    shared.draw(again, the_plan)


def test_a_copy_of_a_run_that_continued_is_refused(tmp_path):
    shared, path, copy = budget(tmp_path), tmp_path / "ledger", tmp_path / "copy"
    ledger = drawn(shared, plan(), path)
    copy.write_bytes(path.read_bytes())
    ledger.reserve()
    ledger.give_back()
    shared.settle(ledger)
    with pytest.raises(LedgerError, match="is a copy"):
        shared.draw(Ledger.open(plan().to_dict(), [3.0] * 20, copy), plan())


def test_disjoint_parts_do_not_add_up_and_runs_on_one_part_do(tmp_path):
    shared = budget(tmp_path, epsilon=3.0, parts=("pretraining", "finetuning"), plans="fixed")
    one, other = plan(examples=700), plan(multiplier=2.0, examples=300, batch_size=15)
    drawn(shared.of("pretraining"), one)
    drawn(shared.of("finetuning"), other)
    assert shared.account().total() == max(cost(one), cost(other))
    drawn(shared.of("finetuning"), other)
    assert shared.account().epsilon("pretraining") == cost(one)
    assert shared.account().epsilon("finetuning") == shared.account().total() == cost(other, other)


def test_a_run_names_an_existing_part(tmp_path):
    shared = budget(tmp_path, parts=("a", "b"))
    with pytest.raises(InvalidArgumentError, match="part"):
        drawn(shared, plan())
    with pytest.raises(InvalidArgumentError, match="part"):
        shared.of("c")
    (tmp_path / "whole").mkdir()
    with pytest.raises(InvalidArgumentError, match="declares no parts"):
        budget(tmp_path / "whole").of("a")


@pytest.mark.parametrize(("terms", "says"), [
    ({"epsilon": 0.0}, "epsilon"), ({"epsilon": math.nan}, "epsilon"), ({"delta": 1.0}, "delta"),
    ({"adjacency": "friends"}, "adjacency"), ({"unit": "one planet"}, "unit"), ({"examples": None}, "examples"),
    ({"examples": 1}, "examples"), ({"data": 7}, "data"), ({"plans": "wishful"}, "plans"), ({"parts": ("a", "a")}, "parts"),
    ({"parts": ("",)}, "parts"), ({"parts": ("a", "b"), "adjacency": "replace-one"}, "parts"),
])  # fmt: skip
def test_impossible_terms_are_named_and_no_file_is_made(tmp_path, terms, says):
    with pytest.raises(InvalidArgumentError, match=says):
        Budget.create(tmp_path / "budget", **{"epsilon": 1.0, "delta": DELTA, "examples": N, **terms})
    assert not (tmp_path / "budget").exists()


@pytest.mark.parametrize(("the_plan", "says"), [
    (plan(adjacency="zero-out"), "adjacency"),
    (plan(unit="one user"), "unit"),
    (plan(examples=N + 1), "examples"),
    (plan(noise=privet.noise.Gaussian(3.0, source="fixed")), "without privacy"),
])  # fmt: skip
def test_a_plan_for_other_data_or_without_privacy_is_refused(tmp_path, the_plan, says):
    with pytest.raises(InvalidArgumentError, match=says):
        drawn(budget(tmp_path), the_plan)


def test_files_that_are_no_budgets_are_refused(tmp_path):
    with pytest.raises(LedgerError, match="No such file"):
        Budget(tmp_path / "budget")
    shared = budget(tmp_path)
    with pytest.raises(LedgerError, match="exists already"):
        budget(tmp_path)
    shared.path.unlink()
    with pytest.raises(LedgerError, match="is missing"):
        drawn(shared, plan())
    assert not shared.path.exists()
    ledger_of(plan(), tmp_path / "ledger").close()
    with pytest.raises(LedgerError, match="opening record of a budget"):
        Budget(tmp_path / "ledger")


def test_terms_are_plain_values():
    assert Terms(1.0, DELTA, examples=N, parts=["a"]).parts == ("a",)


def test_concurrent_processes_never_overdraw(tmp_path):
    one = plan(multiplier=2.0, steps=10)
    allowed = 4
    shared = budget(tmp_path, epsilon=cost(*[one] * allowed) * (1 + 1e-9), plans="fixed")
    children = []
    for _ in range(12):
        child = os.fork()
        if child == 0:
            time.sleep(random.SystemRandom().random() * 0.05)
            try:
                drawn(shared, one)
            except BudgetExhaustedError:
                os._exit(3)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes.count(0) == allowed
    assert codes.count(3) == 12 - allowed
    assert shared.account().total() <= shared.account().terms.epsilon


DATA = TensorDataset(torch.randn(N, 3), torch.randn(N))


def loss(module, batch):
    return (module(batch[0])[:, 0] - batch[1]).square()


def training(shared, directory=None, the_plan=None, **options):
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    return privet.Training(the_plan or plan(), model, loss, optimizer, DATA, privet.Storage(directory, budget=shared), **options)


def test_a_training_draws_spends_and_returns(tmp_path):
    shared = budget(tmp_path)
    with training(shared) as first:
        assert shared.account().total() == cost(plan())
        first.run()
        assert "together with no other run that drew from it" in str(first.guarantee())
    with training(shared, tmp_path / "second") as second:
        for step in second:
            if step.number == 3:
                break
        assert "together with 1 other run that drew from it" in str(second.guarantee())
    assert [share.steps for share in shared.account().shares.values()] == [20, 3]


def test_the_statement_says_what_everything_came_to(tmp_path):
    shared = budget(tmp_path, plans="fixed")
    trainings = [training(shared) for _ in range(3)]
    for one in trainings:
        one.run()
    expected = format_up(cost(*[plan()] * 3))
    assert f"together with 2 other runs that drew from it, ε ≤ {expected} at δ = 1e-05" in str(trainings[0].guarantee())


def test_a_training_that_is_refused_leaves_room_in_its_directory(tmp_path):
    shared = budget(tmp_path, epsilon=0.1)
    with pytest.raises(BudgetExhaustedError):
        training(shared, tmp_path / "run")
    with training(None, tmp_path / "run") as instead:
        instead.run()


def test_a_resumed_training_finds_its_budget(tmp_path):
    shared = budget(tmp_path)
    first = training(shared, tmp_path / "run")
    with first:
        next(iter(first))
    again = privet.Training.resume(tmp_path / "run", first.model, loss, first.optimizer, first._rows.dataset)
    with again:
        assert shared.account().total() == cost(plan())
        again.run()
    assert [share.steps for share in shared.account().shares.values()] == [20]


def test_a_run_cannot_change_its_budget(tmp_path):
    shared, other = budget(tmp_path), Budget.create(tmp_path / "other", epsilon=1.0, delta=DELTA, examples=N)
    first = training(shared, tmp_path / "run")
    first.close()
    arguments = (first.model, loss, first.optimizer, first._rows.dataset)
    with pytest.raises(LedgerError, match="not the one"):
        privet.Training.resume(privet.Storage(tmp_path / "run", budget=other), *arguments)
    moved = tmp_path / "moved"
    shared.path.rename(moved)
    with pytest.raises(LedgerError, match="No such file"):
        privet.Training.resume(tmp_path / "run", *arguments)
    privet.Training.resume(privet.Storage(tmp_path / "run", budget=Budget(moved)), *arguments).close()
    training(None, tmp_path / "free").close()
    with pytest.raises(LedgerError, match="began without a budget"):
        privet.Training.resume(privet.Storage(tmp_path / "free", budget=other), *arguments)


@pytest.mark.parametrize("recorded", [3, "x", ["x"], {}, {"path": 1e-300, "part": None}, {"path": "x", "part": 2}])
def test_a_ledger_that_names_no_budget_where_it_should_is_refused(recorded, tmp_path):
    ledger = types.SimpleNamespace(facts={"budget": recorded}, path=tmp_path / "ledger")
    with pytest.raises(LedgerError, match="does not say which budget"):
        Budget.of_run(ledger)


@pytest.mark.parametrize("change", [
    {"run": None}, {"steps": -1}, {"steps": "5"}, {"settled": 1}, {"part": 3}, {"order": "2"}, {"order": 0.5},
    {"order": math.nan}, {"plan": []}, {"record": "other"},
])  # fmt: skip
def test_a_share_that_makes_no_sense_is_refused(change, tmp_path):
    shared = budget(tmp_path)
    training(shared, tmp_path / "run").close()
    first, *shares = (json.loads(line[9:]) for line in shared.path.read_bytes().splitlines())
    line = journal._line(first)
    shared.path.write_bytes(line + journal._line({**shares[0], "previous": journal._hash(line), **change}))
    with pytest.raises(LedgerError, match="cannot be read"):
        shared.account()
