import json
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import privet
from plans import plan
from privet import audit
from privet.audit._program import guarantee
from privet.audit._program.program import AuditedProgram
from privet.audit.production import ReleaseRecorder
from privet.clipping import AdaptiveQuantile, Automatic, Flat, Layerwise, Projected
from privet.errors import InvalidArgumentError
from privet.noise import Gaussian
from privet.sampling import Poisson
from privet.training import loop

PLAN = plan(examples=500, sampling=Poisson(25), steps=100, delta=1e-4, noise=Gaussian(1.7))
RULES = [
    Flat(0.7), Layerwise(Automatic(0.3), by="parameter", noise="per group"), AdaptiveQuantile(Flat(0.7)),
    Projected(Flat(0.7), projections=20),
]  # fmt: skip


def loss_fn(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


class Coupled(nn.Module):
    """Subtracts the mean over the batch."""

    def __init__(self):
        super().__init__()
        self.map = nn.Linear(5, 3)

    def forward(self, x):
        out = self.map(x)
        return out - out.mean(0)


def subject(model=None, rule=None, loss=loss_fn, examples=6):
    torch.manual_seed(0)
    model = model or nn.Sequential(nn.Linear(5, 40), nn.Tanh(), nn.Dropout(0.5), nn.Linear(40, 3))
    made = PLAN if rule is None else replace(PLAN, clipping=rule)
    return AuditedProgram(model, loss, made, batch=(torch.randn(examples, 5), torch.arange(examples) % 3))


@pytest.mark.parametrize(("family", "rule"), [
    ("ISOLATION", RULES[0]), *((family, rule) for family in guarantee.FAMILIES if family != "ISOLATION" for rule in RULES),
], ids=str)  # fmt: skip
def test_a_correct_model_passes_every_family(family, rule):
    found = guarantee.run_family(subject(nn.Linear(5, 3) if isinstance(rule, Projected) else None, rule), family)
    assert found or isinstance(rule, Projected)  # estimated norms bound no sum by itself
    assert not guarantee.find_rejected(found), found
    assert all(check.name.startswith(family + ": ") for check in found)


@pytest.mark.parametrize("module", [Coupled, lambda: nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3))], ids=["centring", "norm"])
def test_examples_that_influence_each_other_are_named(module):
    found = guarantee.run_family(subject(module()), "ISOLATION")
    findings = {check.name: check.finding for check in found if check.name in guarantee.find_rejected(found)}
    refused = findings["ISOLATION: training accepts the program and the data set"]
    assert "changes with its neighbours" in refused or "normalises over the batch" in refused
    assert len(findings) == 2  # losses in a batch, or buffers


@pytest.mark.parametrize("family", ["ORACLE", "SENS"])
@pytest.mark.parametrize("factor", [1.001, 2])
def test_a_sum_that_is_too_large_is_detected_on_the_path_of_training(family, factor, monkeypatch):
    right = ReleaseRecorder.step

    def wrong(self, closure=None):
        for parameter in self._parameters.values():
            parameter.grad.mul_(factor)
        return right(self, closure)

    monkeypatch.setattr(ReleaseRecorder, "step", wrong)
    assert guarantee.find_rejected(guarantee.run_family(subject(rule=Flat(0.01)), family))


def test_an_example_that_changes_the_contribution_of_others_is_detected(monkeypatch):
    right = AuditedProgram.first_step

    def wrong(self, model, batches, **options):
        return {name: value / max(1, len(batches)) for name, value in right(self, model, batches, **options).items()}

    monkeypatch.setattr(AuditedProgram, "first_step", wrong)
    assert "SENS: contribution of the other examples" in guarantee.find_rejected(guarantee.run_family(subject(), "SENS"))


def test_a_parameter_without_noise_is_detected(monkeypatch):
    release = loop.release

    def wrong(clipped, token, source, divisor, *past, **_):
        noised = release(clipped, token, source, divisor, *past)
        return replace(noised, tensors={**noised.tensors, "3.bias": clipped.tensors["3.bias"] / divisor})

    monkeypatch.setattr(loop, "release", wrong)
    assert "NOISE: noise of every parameter" in guarantee.find_rejected(guarantee.run_family(subject(), "NOISE"))


def test_all_checks_together_are_one_certificate():
    one = subject()
    parts = []
    found = audit.check(one.model, loss_fn, one.batch, PLAN, observations=10_000, progress=parts.append)
    assert found.passed, found
    assert parts[:4] == list(guarantee.FAMILIES)
    values = json.loads(found.to_json())
    assert values["epsilon_lower_bound"] <= values["epsilon_claimed"]
    assert values["mechanism"]["passed"]
    assert str(found).startswith("PASSED")
    assert all(parameter.grad is None for parameter in one.model.parameters())
    assert one.model.training


@pytest.mark.parametrize(("given", "says"), [
    ({}, "neither of batch and dataset"),
    ({"batch": torch.zeros(4, 5), "dataset": [1, 2]}, "both of batch and dataset"),
    ({"batch": torch.zeros(4, 5)}, "plan is None"),
    ({"batch": torch.zeros(1, 5), "plan": PLAN}, "at least two examples"),
    ({"batch": torch.zeros(4, 5), "plan": PLAN, "collate": list}, "left out with a batch"),
])  # fmt: skip
def test_invalid_arguments_are_refused(given, says):
    with pytest.raises(InvalidArgumentError, match=says):
        audit.check(nn.Linear(5, 3), loss_fn, **given)


def test_users_with_several_examples_are_read_as_in_training():
    data = TensorDataset(torch.randn(90, 5), torch.randint(0, 3, (90,)))
    users = privet.units.Users(data, torch.arange(90) % 30, cap=2)
    made = replace(PLAN, examples=len(users), sampling=Poisson(5), delta=1e-3, unit=users.privacy_unit)
    one = AuditedProgram(nn.Linear(5, 3), privet.units.grouped(loss_fn), made, users)
    for family in ("ISOLATION", "ORACLE", "SENS"):
        found = guarantee.run_family(one, family)
        assert not guarantee.find_rejected(found), found


def test_the_usual_plan_meets_its_epsilon():
    usual = audit.usual_plan(1000, epsilon=2.0)
    assert 1.9 < usual.epsilon() <= 2.0
    assert usual.delta == pytest.approx(1e-4, rel=1e-9)
