import json
import math

import numpy as np
import pytest
import torch

import one_layer
import privet
from one_layer import N, participants, resume
from privet._utils.registry import kinds_of
from privet.errors import InvalidArgumentError
from privet.sampling import (
    BallsInBins,
    ByEpoch,
    CyclicPoisson,
    FixedOrder,
    FixedSize,
    FullBatch,
    Poisson,
    Scheme,
    Shuffle,
    TruncatedPoisson,
)

UNIT_VECTORS = torch.eye(N)


def plan(sampling, steps=20, multiplier=0.0, **options):
    adjacency = "replace-one" if isinstance(sampling, FixedSize | Shuffle) else "add-remove"
    return one_layer.plan(steps=steps, multiplier=multiplier, sampling=sampling, **{"adjacency": adjacency, **options})


def setup(the_plan, directory=None, **options):
    return one_layer.setup(the_plan, UNIT_VECTORS, directory, **options)


SCHEMES_HERE = [
    Poisson(13.0), TruncatedPoisson(13.0, cap=15), FixedSize(13), BallsInBins(13), FullBatch(), Shuffle(13),
    CyclicPoisson(13.0, cycle=3), FixedOrder(13),
]  # fmt: skip
EVERY = pytest.mark.parametrize("scheme", SCHEMES_HERE, ids=str)


@pytest.mark.product
@EVERY
def test_training_takes_each_draw_whole_and_divides_by_the_public_size(scheme):
    training = setup(plan(scheme), physical_batch_size=100 if isinstance(scheme, Poisson | BallsInBins | FixedOrder) else 5)
    found = torch.stack(list(participants(training).values()))
    assert training.plan.divisor == scheme.expected_batch_size(N)
    assert set(found.flatten().tolist()) <= {0.0, 1.0}
    assert found.sum(0).max() <= scheme.participation(N, 20)
    assert abs(found.sum(1).mean() - training.plan.divisor) < 6 * math.sqrt(13 / 20) + 1
    if isinstance(scheme, ByEpoch):
        assert (found.sum(0) == 4).all()  # four epochs of five steps


@EVERY
def test_a_plan_derives_its_numbers_from_the_scheme(scheme):
    made = plan(scheme, steps=privet.epochs(3), multiplier=1.7)
    assert made.total_steps == math.floor(scheme.steps_in(3, N)) == (15 if isinstance(scheme, ByEpoch) else
                                                                     3 if scheme == FullBatch() else 13)  # fmt: skip
    assert made.sampling_rate == scheme.rate(N)
    assert privet.Plan.from_json(made.to_json()) == made


def test_every_scheme_is_tried_here_and_a_pair_that_no_accountant_covers_is_refused_when_the_plan_is_made():
    assert {type(scheme).__name__ for scheme in SCHEMES_HERE} == set(kinds_of(Scheme))
    with pytest.raises(InvalidArgumentError, match=r"^adjacency is 'add-remove'.*Shuffle sampling"):
        plan(Shuffle(13), adjacency="add-remove")


@pytest.mark.parametrize(("scheme", "stop", "workers"), [
    (BallsInBins(13), 4, 0), (Shuffle(13), 5, 1), (BallsInBins(13), 7, 0), (Shuffle(13), 7, 0),
], ids=str)  # fmt: skip
def test_another_loop_continues_the_epoch_and_another_process_counts_it_as_spent(scheme, stop, workers, tmp_path):
    training = setup(plan(scheme), tmp_path, reading=privet.Reading(workers=workers))
    first = participants(training, stop)
    rest = participants(training, 6)  # the same run, another loop
    training.close()
    again = resume(tmp_path, UNIT_VECTORS, reading=privet.Reading(workers=workers))
    last = participants(again)
    assert again.steps_spent == 20
    assert json.loads((tmp_path / "status.json").read_text(encoding="utf-8"))["state"] == "trained"
    assert list(first) == list(range(1, stop + 1))
    assert list(rest) == list(range(stop + 1, stop + 7))
    assert list(last) == list(range(scheme.resumes_at(stop + 7, N), 21))
    taken = {**first, **rest, **last}
    for epoch in range(4):
        steps = [taken[step] for step in range(5 * epoch + 1, 5 * epoch + 6) if step in taken]
        assert not steps or torch.stack(steps).sum(0).max() <= 1
        assert len(steps) < 5 or torch.stack(steps).sum(0).min() == 1


def test_nothing_is_left_to_resume_when_the_last_epoch_is_interrupted(tmp_path):
    training = setup(plan(Shuffle(13)), tmp_path)
    participants(training, 17)
    assert training.steps_spent == 17
    training.close()
    again = resume(tmp_path, UNIT_VECTORS)
    assert participants(again) == {}
    assert (again.steps_spent, again.steps_left) == (20, 0)
    assert participants(again) == {}


def test_a_custom_scheme_must_be_a_scheme():
    class Everybody:
        batch_size = 60

        def draws(self, examples, words):
            yield np.arange(examples)

    with pytest.raises(InvalidArgumentError, match=r"^sampling is"):
        plan(Everybody())
