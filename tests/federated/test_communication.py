from dataclasses import replace
from itertools import cycle
from math import prod

import pytest
import torch
from test_rounds import PARAMETERS, RULES, SHAPES, deltas_of

from privet import Plan, sampling
from privet.federated import Communication, Round
from privet.federated.communication import downloaded
from privet.federated.messages import message
from privet.federated.rounds import contribution
from privet.federated.server import tell
from privet.noise import Gaussian
from privet.sparsification import Random, Ranked

KINDS = {
    "dense": None,
    "random": Random(final_rate=0.9),
    "random, refreshed": Random(final_rate=0.5, refresh=3),
    "ranked": Ranked(final_rate=0.8),
}
SIZE = sum(map(prod, SHAPES.values()))


def plan_of(rule="flat", kind="dense", **changes):
    facts = {"examples": 40, "sampling": sampling.Poisson(batch_size=8), "steps": 17, "delta": 1e-3, "noise": Gaussian(1.0)}
    return Plan(**facts | {"unit": "one user", "clipping": RULES[rule], "sparsification": KINDS[kind]} | changes)


def masks_of(plan, number):
    times, kind = plan.timetable(), plan.sparsification
    generator = torch.Generator().manual_seed(number)
    released = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    return None if kind is None else kind.masks(times.block(number), times.blocks, SHAPES, released)


@pytest.mark.parametrize(("rule", "kind"), [*zip(RULES, cycle(KINDS), strict=False), *(("adaptive", kind) for kind in KINDS)])
def test_planned_bytes_are_those_of_the_messages(rule, kind):
    plan, sent, received = plan_of(rule, kind), 0, 0
    for number in range(1, plan.total_steps + 1):
        told = Round(number, PARAMETERS, plan.clipping, masks_of(plan, number))
        data = message(contribution(deltas_of(1, number), told))
        sent += len(data)
        received += downloaded(plan, PARAMETERS, number)
        found = Communication.of(plan, PARAMETERS, number)
        assert (found.up, found.down, found.dense_down) == (sent, received, number * 4 * SIZE)
    dense = len(message(contribution(deltas_of(1), Round(1, PARAMETERS, plan.clipping))))
    found = Communication.of(plan, PARAMETERS)
    assert (found.up, found.dense_up) == (sent, 17 * dense)
    assert (found.up < found.dense_up) == (kind != "dense")


def test_clients_receive_the_parameters_and_a_description_of_the_mask():
    plan = plan_of(kind="random")
    told = tell(plan, PARAMETERS, 17, RULES["flat"], masks_of(plan, 17))
    assert told.selection is not None  # seed, block and zeros: three numbers below 2³¹
    received = {kind: [downloaded(plan_of(kind=kind), PARAMETERS, number) for number in (1, 17)] for kind in KINDS}
    ranked = -(-SIZE // 8)
    assert received["dense"] == [4 * SIZE, 4 * SIZE]
    assert received["random"] == [4 * SIZE + 12, 4 * SIZE + 12]
    assert received["ranked"] == [4 * SIZE, 4 * SIZE + ranked]


def test_volumes_are_those_of_the_expected_cohort():
    found = Communication.of(plan_of(kind="random"), PARAMETERS)
    assert (found.cohort, found.rounds, found.rounds_per_epoch) == (8.0, 17, 5.0)
    assert found.client.up == found.up / 17
    assert found.round.down == pytest.approx(8 * found.client.down)
    assert found.epoch.dense_up == pytest.approx(5 * found.round.dense_up)
    assert found.run.up == 8 * found.up
    assert found.to_dict()["run"] == found.run.to_dict()
    whole = Communication.of(replace(plan_of(), sampling=sampling.FullBatch()), PARAMETERS)
    assert (whole.cohort, whole.rounds_per_epoch) == (40.0, 1.0)


def test_nine_tenths_fewer_coordinates_take_a_tenth_of_the_bytes_upstream():
    plan = plan_of(kind="random", steps=50)
    parameters = {"w": torch.zeros(10_000)}
    first, before, last = (Communication.of(plan, parameters, rounds).up for rounds in (1, 49, 50))
    assert last - before <= 0.105 * first
