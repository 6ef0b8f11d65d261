from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plans import plan
from privet.clipping import Flat, Projected
from privet.errors import InvalidArgumentError
from privet.noise import Gaussian
from privet.sampling import FixedSize, FullBatch, Poisson, Shuffle
from privet.schedules import Constant, Geometric, Piecewise

# How far below the target ε may stay with exact norms; the rare norms that are estimated far too small make it jump. Steps are
# whole, so for them the next one decides.
TIGHT, TIGHT_WITH_SCHEDULE = 1e-3, 1e-2
# The most steps that are solved for.
MOST, MOST_WITH_SCHEDULE = 2**31 - 1, 2**20
SCHEMES = [
    (Poisson(25), "add-remove"), (Poisson(25), "replace-one"), (Poisson(3), "zero-out"), (FixedSize(25), "replace-one"),
    (FullBatch(), "add-remove"), (Shuffle(25), "zero-out"),
]  # fmt: skip
SCHEDULES = [Constant(), Constant(), Geometric(rate=0.02), Piecewise((1.0, 3.0), (0.8,))]


@st.composite
def plans(draw):
    sampling, adjacency = draw(st.sampled_from(SCHEMES))
    projected = isinstance(sampling, Poisson) and adjacency != "replace-one" and draw(st.integers(0, 3)) == 0
    schedule = draw(st.sampled_from(SCHEDULES))  # of which each multiplier is accounted for by itself
    return plan(
        examples=2500, sampling=sampling, adjacency=adjacency, noise=Gaussian(schedule=schedule),
        steps=draw(st.integers(1, 5 if projected or not isinstance(schedule, Constant) else 150)),
        clipping=Projected(Flat(0.3), 300) if projected else Flat(0.3), delta=10 ** draw(st.floats(-9, -4)),
    )  # fmt: skip


@settings(max_examples=3)
@given(plans(), st.floats(0.05, 8.0), st.sampled_from([None, None, None, "rdp"]))
def test_noise_that_is_solved_for_meets_the_target_and_is_no_more_than_needed(asked, target, accountant):
    accountant = None if isinstance(asked.clipping, Projected) else accountant
    found = asked.calibrate(target, accountant=accountant)
    spent = found.epsilon(accountant or "pld")
    tight = TIGHT if isinstance(asked.noise.schedule, Constant) else TIGHT_WITH_SCHEDULE
    assert spent <= target
    assert target * (1 - tight) <= spent or isinstance(asked.clipping, Projected)
    assert found == replace(asked, noise=replace(asked.noise, multiplier=found.noise_multiplier))


@settings(max_examples=4)
@given(plans(), st.floats(0.5, 6.0), st.floats(1.0, 6.0))
def test_steps_that_are_solved_for_meet_the_target_and_are_as_many_as_fit(made, target, multiplier):
    asked = replace(made, steps=None, noise=replace(made.noise, multiplier=multiplier))
    once = replace(asked, steps=1)
    if once.epsilon() > target:
        with pytest.raises(InvalidArgumentError, match=r"^epsilon is .*, the cost of one step"):
            asked.calibrate(target)
        return
    most = replace(asked, steps=MOST_WITH_SCHEDULE if not isinstance(made.noise.schedule, Constant) else MOST)
    if most.epsilon() < target:
        with pytest.raises(InvalidArgumentError, match="any number of steps up to that meets the target"):
            asked.calibrate(target)
        return
    found = asked.calibrate(target)
    # A schedule stretches over the whole training, so one step more is another schedule.
    assert found.epsilon() <= target < replace(found, steps=found.total_steps + 1).epsilon()


def test_a_budget_that_no_training_spends_is_said_to_be_none():
    idle = plan(examples=10**6, sampling=Poisson(1), steps=None, delta=1e-8, noise=Gaussian(1e5))
    with pytest.raises(InvalidArgumentError, match=r"^epsilon is 3\.0; it must be below .* the cost of 2,147,483,647 steps"):
        idle.calibrate(3)
    moving = replace(idle, noise=Gaussian(1e5, schedule=Geometric(rate=0.1)))
    with pytest.raises(InvalidArgumentError, match=r"^epsilon is 3\.0; it must be below .* the cost of 1,048,576 steps"):
        moving.calibrate(3)
