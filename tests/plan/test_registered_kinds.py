import json
import re
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import plans
import privet
from privet import clipping, momentum, noise, report, sampling, schedules, sparsification, units
from privet.accounting import Event
from privet.accounting.privacy_unit import group_unit
from privet.errors import InvalidArgumentError

N, D, STEPS = 24, 3, 4
TAKEN = 2


@dataclass(frozen=True)
class Halved(clipping.NormRule):
    """Clips, and then halves."""

    def factor(self, norms):
        return 0.5 * (self.bound / norms).clamp(max=1.0)


@dataclass(frozen=True)
class Rare(sampling.Scheme):
    """Poisson sampling at a rate of its own."""

    part: float

    def expected_batch_size(self, examples):
        return self.part * examples

    def draws(self, examples, words):
        return sampling.Poisson(self.part * examples).draws(examples, words)

    def event(self, examples, noise_multiplier, count):
        return Event(self.part, noise_multiplier, count)


@dataclass(frozen=True)
class Alternating(schedules.Schedule):
    """1 and another factor in turns."""

    other: float

    def factors(self, total):
        return np.where(np.arange(total) % 2, self.other, 1.0)


@dataclass(frozen=True)
class Mean(momentum.Momentum):
    """Half of an example's gradient at the last parameters, and the mean of all releases instead of a sum."""

    keep: float

    @property
    def coefficients(self):
        return (0.5,)

    @property
    def accumulates(self):
        return True

    def accumulate(self, before, released):
        return released.clone() if before is None else self.keep * before + (1 - self.keep) * released


@dataclass(frozen=True)
class Striped(sparsification.Sparsification):
    """Leaves out every second coordinate of a parameter, from the second mask on."""

    @property
    def ranks(self):
        return False

    def masks(self, block, blocks, shapes, released):
        if block == 0:
            return None
        return {name: (torch.arange(int(np.prod(shape))) % 2 == 0).view(shape) for name, shape in shapes.items()}


@dataclass(frozen=True)
class Household(units.Unit):
    """A household, of which everything is in one entry."""

    name: str = "one household"
    counted: str = "household"


KINDS = {
    "clipping": Halved(bound=0.7),
    "sampling": Rare(0.25),
    "bound_schedule": Alternating(0.5),
    "momentum": Mean(0.9),
    "sparsification": Striped(0.5),
    "unit": Household(),
}
each = pytest.mark.parametrize(("field", "value"), KINDS.items(), ids=KINDS)


class Data(TensorDataset):
    """Rows of which each is of one unit."""

    def __init__(self, unit):
        super().__init__(torch.randn(N, D, generator=torch.Generator().manual_seed(3)))
        self.privacy_unit = unit


plan = partial(plans.plan, examples=N, sampling=sampling.Poisson(6), steps=STEPS, delta=1e-3, noise=noise.Gaussian(1.7))


def parts(made):
    torch.manual_seed(1)
    model = torch.nn.Linear(D, 1)
    return model, loss, torch.optim.SGD(model.parameters(), lr=0.1), Data(made.unit)


def loss(model, batch):
    return model(batch[0])[:, 0].square()


def taken(training, number=TAKEN):
    with training:
        for step in training:
            if step.number == number:
                break
    return training


@each
def test_it_trains_is_written_resumes_and_is_named(field, value, tmp_path):
    privet.register(type(value))
    made = plan(**{field: value})
    assert privet.Plan.from_json(made.to_json()) == made
    taken(privet.Training(made, *parts(made), tmp_path / "run"))
    assert json.loads((tmp_path / "run" / "plan.json").read_text())[field]["kind"] == type(value).__name__
    again = privet.Training.resume(tmp_path / "run", *parts(made))
    assert again.plan == made
    again.run()
    assert again.steps_spent == STEPS
    shown = value.name if field == "unit" else type(value).__name__
    assert shown in str(again.guarantee())
    assert shown in json.loads(again.guarantee().to_json())["prose"]
    again.close()
    assert type(value).__name__ in report.write(tmp_path / "run").read_text()


@each
def test_unregistered_it_is_refused_before_the_first_step_and_the_fix_is_named(field, value, tmp_path):
    made, name = plan(**{field: value}), type(value).__name__
    with pytest.raises(InvalidArgumentError, match=rf"^plan\.{field}\.kind is '{name}'.*privet\.register\({name}\)"):
        privet.Training(made, *parts(made), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(InvalidArgumentError, match=rf"^plan\.{field}\.kind is '{name}'.*privet\.register\(Kind\)"):
        privet.Plan.from_json(made.to_json())
    taken(privet.Training(made, *parts(made)))  # in memory, nothing is ever read back


def released(made):
    """What an optimizer is handed at every step without noise, on full batches, by hand and by training."""
    model, _, optimizer, data = parts(made)
    handed = []
    optimizer.register_step_pre_hook(lambda *_: handed.append(model.weight.grad.clone()))
    privet.Training(made, model, loss, optimizer, data, reading=privet.Reading(probe=False)).run()
    return handed


def test_the_optimizer_receives_the_result_of_a_registered_momentum():
    silent = {"sampling": sampling.FullBatch(), "noise": noise.Gaussian(0.0, non_private=True), "clipping": clipping.Flat(1e3)}
    found = released(plan(**silent, momentum=Mean(0.9)))
    made = plan(**silent)
    model, _, optimizer, data = parts(made)
    (x,), past, before = data.tensors, [], None
    for handed in found:
        now = [parameter.detach().clone() for parameter in model.parameters()]
        total = [torch.zeros_like(parameter) for parameter in now]
        for coefficient, values in [(1.0, now), *zip((0.5,), past, strict=False)]:
            rows = x @ values[0][0] + values[1]
            total[0] += coefficient * (2 * rows[:, None] * x).sum(0, keepdim=True) / N
            total[1] += coefficient * (2 * rows).sum()[None] / N
        before = total if before is None else [0.9 * old + 0.1 * new for old, new in zip(before, total, strict=True)]
        torch.testing.assert_close(handed, before[0], rtol=1e-4, atol=1e-5)
        for parameter, direction in zip(model.parameters(), before, strict=True):
            parameter.grad = direction.clone()
        optimizer.step()
        past = [now]


def test_a_part_may_refuse_a_combination():
    @dataclass(frozen=True)
    class Careful(Halved):
        def check_combination(self, plan):
            super().check_combination(plan)
            if plan.adjacency != "zero-out":
                raise InvalidArgumentError("adjacency", plan.adjacency, "'zero-out' with Careful")

    with pytest.raises(InvalidArgumentError, match="'zero-out' with Careful"):
        plan(clipping=Careful(0.7))
    assert plan(clipping=Careful(0.7), adjacency="zero-out").clipping.bound == 0.7


def test_a_registered_schedule_can_scale_the_noise(tmp_path):
    privet.register(Alternating)
    made = plan(noise=noise.Gaussian(1.7, schedule=Alternating(2.0)))
    assert made.multipliers().tolist() == [1.7, 3.4, 1.7, 3.4]
    taken(privet.Training(made, *parts(made), tmp_path))
    assert privet.Training.resume(tmp_path, *parts(made)).plan == made
    assert "Noise schedule: Alternating(other=2.0)" in str(made.guarantee())


def test_a_unit_is_what_statement_and_data_set_say():
    made = plan(unit=units.Unit("one clinic", counted="clinic", size=3), delta=1e-3)
    statement = made.guarantee()
    assert made.people == statement.people == 3 * N
    assert "differential privacy for one clinic, where" in str(statement)
    assert f"{N} clinics" in str(statement)
    assert json.loads(statement.to_json())["unit"] == "one clinic"
    privet.Training(made, *parts(made)[:3], Data("one clinic"))  # by its name, too
    with pytest.raises(InvalidArgumentError, match=re.escape("of the plan's unit, 'one clinic'")):
        privet.Training(made, *parts(made)[:3], Data("one example"))


@pytest.mark.parametrize("options", [{"name": ""}, {"name": 3}, {"counted": " "}, {"size": 0}, {"size": 1.5}])
def test_a_unit_that_makes_no_sense_is_refused_by_name(options):
    with pytest.raises(InvalidArgumentError, match=rf"^unit\.{next(iter(options))} is"):
        units.Unit(**{"name": "one clinic", "counted": "clinic", **options})


@pytest.mark.parametrize("name", ["one user", "one example", str(group_unit(4))])
def test_a_unit_does_not_take_the_name_of_another(name):
    with pytest.raises(InvalidArgumentError, match=r"^unit\.name is .*no other unit has"):
        plan(unit=units.Unit(name, counted="clinic"), adjacency="replace-one")


def test_a_unit_may_refuse_neighbours():
    @dataclass(frozen=True)
    class Pair(Household):
        @property
        def refused(self):
            return {"add-remove": "Nobody leaves a pair."}

    with pytest.raises(InvalidArgumentError, match=r"^adjacency is 'add-remove'.*Nobody leaves a pair"):
        plan(unit=Pair())


def test_a_budget_is_for_one_unit(tmp_path):
    privet.register(Household)
    budget = privet.Budget.create(tmp_path / "budget", epsilon=50.0, delta=1e-3, examples=N, unit=Household())
    assert budget.account().terms.unit == Household()
    made = plan(unit=Household())
    taken(privet.Training(made, *parts(made), privet.Storage(budget=budget)))
    other = plan()
    with pytest.raises(InvalidArgumentError, match=r"^plan\.unit is 'one example'"):
        privet.Training(other, *parts(other), privet.Storage(budget=budget))
