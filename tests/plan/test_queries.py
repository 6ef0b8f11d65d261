import math
from functools import partial

import pytest

import plans
from privet import Plan, noise, sampling
from privet.accounting.guarantee import tradeoff
from privet.accounting.queries import composed_epsilon
from privet.errors import InvalidArgumentError
from privet.plan import ClassCounts, Holdout

plan = partial(plans.plan, examples=1000, sampling=sampling.Poisson(50), steps=40, noise=noise.Gaussian(1.5))


@pytest.mark.parametrize(("epsilon", "adjacency"), [(0.1, "add-remove"), (1.0, "replace-one"), (5.0, "zero-out")])
def test_a_calibrated_query_meets_its_epsilon_alone(adjacency, epsilon):
    query = Holdout.calibrate(epsilon, delta=1e-5, adjacency=adjacency, examples=10)
    spent = composed_epsilon([query.event], delta=1e-5, adjacency=adjacency)
    assert 0.999 * epsilon < spent <= epsilon


@pytest.mark.parametrize(("epsilon", "accountant"), [(0.1, "pld"), (20.0, "rdp")])
def test_the_total_is_the_larger_of_training_and_held_out_release(epsilon, accountant):
    query = Holdout.calibrate(epsilon, delta=1e-5, examples=250)
    without, with_query = plan(), plan(holdout=query)
    alone = composed_epsilon([query.event], delta=1e-5, accountant=accountant)
    assert with_query.epsilon(accountant) == max(without.epsilon(accountant), alone)
    found = with_query.guarantee(accountant=accountant)
    assert found.epsilon == with_query.epsilon(accountant)
    assert found.epsilon_by_accountant[accountant] == found.epsilon
    assert found.epsilon_without_sampling >= found.epsilon


def test_the_bound_on_attacks_is_that_of_the_weaker_part():
    query = Holdout.calibrate(20.0, delta=1e-5, examples=250)
    weaker = plan(holdout=query).guarantee().meaning
    assert weaker.advantage == pytest.approx(tradeoff.meaning([query.event], delta=1e-5).advantage, rel=1e-3)
    same = plan(holdout=Holdout.calibrate(1e-2, delta=1e-5, examples=250)).guarantee().meaning
    assert same.advantage == pytest.approx(plan().guarantee().meaning.advantage, rel=1e-6)


def test_class_counts_and_steps_are_composed_and_calibrated_together():
    counts = ClassCounts.calibrate(0.5, delta=1e-5)
    both = plan(class_counts=counts)
    assert both.epsilon() == composed_epsilon([counts.event, *plan().events()], delta=1e-5) > plan().epsilon()
    found = plan(noise=noise.Gaussian(), class_counts=counts).calibrate(2.0)
    assert found.epsilon() <= 2.0
    assert found.noise_multiplier > plan(noise=noise.Gaussian()).calibrate(2.0).noise_multiplier


def test_a_plan_with_queries_survives_its_file():
    written = plan(holdout=Holdout(3.5, examples=20), class_counts=ClassCounts(9.25))
    assert Plan.from_json(written.to_json()) == written
    assert written.queries == {"class counts": 9.25, "holdout": 3.5}
    older = {name: value for name, value in plan().to_dict().items() if name not in ("holdout", "class_counts")}
    assert Plan.from_dict(older) == plan()


def test_held_out_people_are_protected_too():
    found = plan(holdout=Holdout(3.5, examples=500)).guarantee()
    assert found.people == 1500
    assert found.to_dict()["delta_times_people"] == 1500 * 1e-5
    with pytest.raises(InvalidArgumentError, match="delta"):
        plan(delta=1 / 1400, holdout=Holdout(3.5, examples=500))


def test_the_statement_says_what_is_released_and_how_it_enters_the_total():
    text = str(plan(holdout=Holdout.calibrate(0.1, delta=1e-5, examples=250), class_counts=ClassCounts(9.25)).guarantee())
    assert "250 further examples" in text
    assert "ε = 0.1000 at δ = 1e-05" in text
    assert "the larger of the two and not their sum" in text
    assert "Class counts: before the first step" in text
    assert "evaluation on private data other than the release described above" in text
    assert "queries" not in str(plan().guarantee())


def test_an_evaluation_above_the_target_is_refused():
    with pytest.raises(InvalidArgumentError, match="at most the target, 2"):
        plan(noise=noise.Gaussian(), holdout=Holdout.calibrate(3.0, delta=1e-5, examples=9)).calibrate(2.0)


def test_known_noise_protects_no_query():
    assert math.isinf(plan(noise=noise.Gaussian(1.5, source="fixed"), holdout=Holdout(3.5, examples=9)).epsilon())


@pytest.mark.parametrize("fields", [{"multiplier": 0.0, "examples": 3}, {"multiplier": 1.0, "examples": 0}])
def test_a_query_without_noise_or_entries_is_refused(fields):
    with pytest.raises(InvalidArgumentError, match="holdout"):
        Holdout(**fields)
    with pytest.raises(InvalidArgumentError, match="holdout"):
        plan(holdout=ClassCounts(1.0))
