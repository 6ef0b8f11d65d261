"""The harness detects faults: trainers with one fault each fail, and a correct one passes."""

import time

import harness
import pytest
import torch
from harness import Program, Task, bounded, exact, judge, plain_gradients, trained_right
from materials import Body, classify, points
from snapshots import differences, snapshot
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import privet
from privet.errors import PrivetError

DATA = points(10, outlier=30.0)
LONG = "this model cannot be trained with the promise that was made"


class Plain:
    """A trainer that sums clipped gradients in a loop, with a named fault."""

    def __init__(self, task, data, fault):
        self.model, self.task, self.data, self.fault = task.model(), task, data, fault
        self.plan = privet.Plan(
            examples=len(data), sampling=privet.sampling.FullBatch(), steps=1, clipping=task.rule, delta=1e-6,
            noise=privet.noise.Gaussian(0.0, non_private=True),
        )  # fmt: skip
        self.steps_spent, self.method = 0, "loop"
        longest = max(float(x.norm()) for x, _ in data)
        if fault == "refuses all" or (fault == "refuses long ones" and longest > 30):
            raise PrivetError(LONG)
        if fault == "refuses shortly":
            raise PrivetError("no")
        if fault == "refuses with a number":
            raise PrivetError(f"{LONG}: {'long' if longest > 30 else 'short'}")

    def run(self):
        bound, total = self.task.rule.sensitivity, 0
        for place, gradients in enumerate(plain_gradients(self.task, self.data)):
            vector = harness.flat(gradients)
            weight = min(1.0, bound / float(vector.norm()))
            if self.fault == "does not clip long ones" and float(self.data[place][0].norm()) > 30:
                weight = 1.0
            if self.fault == "clips by its neighbour" and place:
                weight *= 0.1 + float(len(self.data) % 2)
            total = total + weight * vector
        if self.fault == "halves":
            total = total / 2
        self.steps_spent = 1
        if self.fault == "stops":
            raise PrivetError(LONG)
        if self.fault == "raises":
            raise RuntimeError(LONG)
        before = parameters_to_vector(self.model.parameters()).detach()
        vector_to_parameters(before - (total / self.plan.divisor).float(), self.model.parameters())
        if self.fault == "keeps a sum":
            self.model.sums = [self.data[0][0].clone()]
        if self.fault == "writes a buffer":
            self.model.register_buffer("mean", self.data[0][0].clone())
        if self.fault == "draws for each":
            torch.rand(len(self.data))


@pytest.fixture
def trainer(monkeypatch):
    """Replace `Training` by the plain trainer with a named fault."""

    def use(fault):
        monkeypatch.setattr(harness, "training_of", lambda task, data: Plain(task, data, fault))

    return use


def judged(verdict, **task):
    """Return the verdict on two layers, by a function of a task and data."""
    return judge(Program("test", "test", lambda: verdict(Task(Body, classify, **task), DATA, remove=(0, 3))))


@pytest.mark.parametrize("verdict", [bounded, exact, trained_right])
def test_a_right_trainer_passes(trainer, verdict):
    trainer("none")
    assert judged(verdict).passed


def test_what_one_example_moves_is_measured_in_units_of_the_bound(trainer):
    trainer("none")
    assert judged(bounded, bound=0.01).moved == pytest.approx(1.0, abs=1e-4)
    trainer("does not clip long ones")
    norm = float(harness.flat(plain_gradients(Task(Body, classify), DATA)[0]).norm())
    assert judged(bounded, bound=0.01).moved == pytest.approx(norm / 0.01, rel=1e-4)


@pytest.mark.parametrize(
    "fault",
    [
        "does not clip long ones", "clips by its neighbour", "keeps a sum", "writes a buffer", "draws for each",
        "refuses long ones", "refuses shortly", "refuses with a number", "stops", "raises",
    ],
)  # fmt: skip
def test_a_trainer_with_a_fault_does_not_pass_an_attack(trainer, fault):
    trainer(fault)
    assert not judged(bounded, bound=0.5).passed


def test_refusing_both_neighbours_passes_an_attack_and_fails_a_valid_program(trainer):
    trainer("refuses all")
    assert judged(bounded).passed
    assert judged(exact).passed
    assert not judged(trained_right).passed


@pytest.mark.parametrize("verdict", [exact, trained_right])
def test_a_sum_that_is_bounded_and_wrong_is_found(trainer, verdict):
    trainer("halves")
    assert judged(bounded).passed
    assert not judged(verdict).passed


def test_a_refusal_may_differ_in_the_public_number_of_examples_only(trainer, monkeypatch):
    def refuse(task, data, word=""):
        raise PrivetError(f"{LONG}, on {len(data)} examples{word}")

    monkeypatch.setattr(harness, "training_of", refuse)
    assert judged(bounded).passed
    monkeypatch.setattr(harness, "training_of", lambda task, data: refuse(task, data, "x" * len(data)))
    assert not judged(bounded).passed


def test_real_training_clips_and_without_its_clipping_it_is_found(monkeypatch):
    """The real path is measured alike: a rule whose weights are all one exceeds its stated sensitivity."""
    assert judged(bounded, bound=0.5).passed
    monkeypatch.setattr(privet.clipping.Flat, "weight", lambda self, norms: torch.ones_like(norms))
    verdict = judged(bounded, bound=0.5)
    assert not verdict.passed
    assert verdict.moved > 2


def test_a_program_that_takes_too_long_fails(monkeypatch):
    monkeypatch.setattr(harness, "SECONDS", 0.2)

    def endless(*_, **__):
        while True:
            time.perf_counter()

    assert "longer" in judged(endless).remark


def snapshots_differ(change, make=Body):
    model = make()
    before = snapshot(model)
    assert differences(before, snapshot(model)) == []
    change(model)
    return bool(differences(before, snapshot(model)))


class Holding(Body):
    def __init__(self):
        super().__init__()
        self.things, self.tensor, self.generator = {"list": [1, [2.0]]}, torch.zeros(2), torch.Generator()
        self.frozen = nn.Parameter(torch.zeros(2), requires_grad=False)
        self.register_buffer("buffer", torch.zeros(2), persistent=False)
        self.again = [self.inner.weight]


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.things["list"][1].append(0), lambda model: model.things["list"][1].__setitem__(0, 3.0),
        lambda model: model.tensor.add_(1), lambda model: torch.rand(1, generator=model.generator),
        lambda model: model.frozen.data.add_(1), lambda model: model.buffer.add_(1), lambda model: model.eval(),
        lambda model: setattr(model, "new", torch.zeros(1)), lambda model: setattr(model, "outer", nn.Identity()),
        lambda model: model.inner.train(False), lambda model: setattr(model, "tensor", torch.zeros(3)),
        lambda model: model.add_module("more", nn.ReLU()),
    ],
)  # fmt: skip
def test_whatever_is_not_released_is_looked_at(change):
    assert snapshots_differ(change, Holding)


def test_released_parameters_are_not_looked_at_wherever_they_stand():
    assert not snapshots_differ(lambda model: model.inner.weight.data.add_(1), Holding)


def test_without_the_check_training_is_told_so(monkeypatch):
    asked = []
    monkeypatch.setattr(privet, "Training", lambda *_, reading=None, **__: asked.append(reading is None or reading.probe))
    harness.training_of(Task(Body, classify), DATA)
    with harness.unchecked():
        harness.training_of(Task(Body, classify), DATA)
    harness.training_of(Task(Body, classify), DATA)
    assert asked == [True, False, True]
