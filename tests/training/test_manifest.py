"""A run is gone on with what it began with, or refused before anything is restored or spent; the right parts still fit then."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from functools import partial

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, StepLR
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import TensorDataset

import privet
from privet.clipping import Flat, Layerwise, NormRule
from privet.errors import InvalidArgumentError, LedgerError
from privet.ledger import read_history
from privet.plan import PARTS
from privet.training.manifest import name_of

N, STEPS = 20, 6


def plan(clipping=None):
    return privet.Plan(
        examples=N, sampling=privet.sampling.Poisson(5.0), steps=STEPS, delta=1e-5,
        clipping=clipping or Flat(0.7), noise=privet.noise.Gaussian(1.3),
    )  # fmt: skip


def loss_fn(model, batch):
    return model(batch[0])[:, 0].square()


DATA = TensorDataset(torch.randn(N, 3))


def adam(model):
    return torch.optim.Adam(model.parameters(), lr=0.1)


def parts(optimizer=adam, scheduler=None, average=None):
    model = nn.Linear(3, 1)
    made = optimizer(model)
    options = {
        "scheduler": scheduler and scheduler(made),
        "average": average and average(model),
    }
    return (model, loss_fn, made, DATA), options


def begun(directory, steps=2, the_plan=None, **how):
    arguments, options = parts(**how)
    training = privet.Training(the_plan or plan(), *arguments, directory, **options)
    for step in training:
        if step.number == steps:
            break
    training.close()
    return training


def resumed(directory, **how):
    arguments, options = parts(**how)
    return privet.Training.resume(directory, *arguments, **options)


def contents(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


RATE = {"scheduler": lambda o: StepLR(o, 1, gamma=0.5)}
WRONG = {
    "another optimizer": ({}, {"optimizer": lambda m: torch.optim.SGD(m.parameters(), lr=0.1)}, r"optimizer torch.*Adam, .*SGD"),
    "no scheduler": (RATE, {}, "began with the scheduler .*StepLR, and is to be resumed with no scheduler"),
    "a scheduler too many": ({}, RATE, "began with no scheduler"),
    "another scheduler": (RATE, {"scheduler": lambda o: ExponentialLR(o, 0.9)}, "StepLR.*ExponentialLR"),
    "no average": ({"average": AveragedModel}, {}, "began with the average .*AveragedModel"),
    "an average too many": ({}, {"average": AveragedModel}, "began with no average"),
    "other groups": (
        {}, {"optimizer": lambda m: torch.optim.Adam([{"params": [m.weight]}, {"params": [m.bias]}], lr=0.1)}, "other groups",
    ),
    "another order": ({}, {"optimizer": lambda m: torch.optim.Adam([m.bias, m.weight], lr=0.1)}, "in another order"),
}  # fmt: skip


@pytest.mark.parametrize(("right", "wrong", "says"), WRONG.values(), ids=list(WRONG))
def test_a_run_is_not_gone_on_with_something_else(right, wrong, says, tmp_path):
    begun(tmp_path, **right)
    before = contents(tmp_path)
    (model, *others), options = parts(**wrong)
    start = model.weight.detach().clone()
    with pytest.raises(LedgerError, match=says):
        privet.Training.resume(tmp_path, model, *others, **options)
    assert contents(tmp_path) == before
    assert torch.equal(model.weight, start)
    again = resumed(tmp_path, **right)
    again.run()
    assert (again.steps_spent, read_history(tmp_path / "ledger")[0].spent) == (STEPS, STEPS)


@pytest.mark.parametrize("wrong", [RATE, {"average": AveragedModel}], ids=["scheduler", "average"])
def test_without_a_manifest_the_checkpoint_tells(wrong, tmp_path):
    for name, right, other in (("more", {}, wrong), ("less", wrong, {})):
        begun(tmp_path / name, **right)
        (tmp_path / name / "manifest.json").unlink()
        with pytest.raises(LedgerError, match=r"holds .*state for (scheduler|average)"):
            resumed(tmp_path / name, **other)
        assert resumed(tmp_path / name, **right).steps_left == STEPS - 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": 1}', '{"format": 1, "optimizer": {"groups": [3]}}'])
def test_a_damaged_manifest_is_refused(text, tmp_path):
    begun(tmp_path)
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(LedgerError, match=r"manifest|optimizer"):
        resumed(tmp_path)


def test_the_manifest_says_what_trains(tmp_path):
    begun(tmp_path, **RATE)
    held = json.loads((tmp_path / "manifest.json").read_text())
    (group,) = held["optimizer"]["groups"]
    assert held["optimizer"]["class"] == "torch.optim.adam.Adam"
    assert group["parameters"] == ["weight", "bias"]
    assert (group["options"]["lr"], group["options"]["betas"]) == (0.1, [0.9, 0.999])
    assert held["scheduler"]["class"].endswith(".StepLR")
    assert held["average"] is None
    assert held["loss"].endswith("test_manifest.loss_fn")


def test_names_of_losses():
    assert name_of(partial(partial(loss_fn), model=None)) == name_of(loss_fn)
    assert name_of(nn.MSELoss()) == "torch.nn.modules.loss.MSELoss"


def test_options_that_changed_are_those_of_the_run(tmp_path):
    begun(tmp_path)
    again = resumed(tmp_path, optimizer=lambda m: torch.optim.Adam(m.parameters(), lr=77.0))
    assert again.optimizer.param_groups[0]["lr"] == 0.1


def test_a_run_that_is_refused_leaves_no_manifest(tmp_path):
    budget = privet.Budget.create(tmp_path / "budget", epsilon=1e-3, delta=1e-5, examples=N)
    arguments, _ = parts()
    with pytest.raises(LedgerError):
        privet.Training(plan(), *arguments, privet.Storage(tmp_path / "run", budget=budget))
    assert list((tmp_path / "run").iterdir()) == []


# Kinds of one's own ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Half(NormRule):
    """Clips, and then halves."""

    def factor(self, norms):
        return 0.5 * (self.bound / norms).clamp(max=1.0)


def own_kind(name, factor):
    return dataclass(frozen=True)(type(name, (NormRule,), {"factor": factor, "__module__": __name__}))


@pytest.fixture
def registered():
    return privet.register(Half)


@pytest.mark.parametrize("rule", [Half(0.7), Layerwise(Half(0.7))], ids=["itself", "in another"])
def test_a_rule_that_could_not_be_read_back_is_refused_before_anything_is_made(rule, tmp_path):
    arguments, _ = parts()
    with pytest.raises(InvalidArgumentError, match=r"^plan\.clipping.*'Half'.*privet\.register\(Half\)"):
        privet.Training(plan(rule), *arguments, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    budget = privet.Budget.create(tmp_path / "budget", epsilon=30.0, delta=1e-5, examples=N)
    with pytest.raises(InvalidArgumentError, match=r"privet\.register\(Half\)"):
        privet.Training(plan(rule), *arguments, privet.Storage(budget=budget))
    assert budget.account().shares == {}
    privet.Training(plan(rule), *arguments).run()  # in memory, nothing is ever read back


@pytest.mark.parametrize(
    "wrap", [lambda rule: rule, Layerwise, privet.clipping.AdaptiveQuantile], ids=["itself", "layers", "moving"]
)
def test_a_run_with_a_registered_rule_is_gone_on_with(wrap, registered, tmp_path):
    begun(tmp_path, the_plan=plan(wrap(Half(0.7))))
    again = resumed(tmp_path)
    assert again.plan == plan(wrap(Half(0.7)))
    again.run()
    assert again.steps_spent == STEPS


def test_a_kind_that_is_not_registered_is_named_with_the_rules_that_there_are():
    text = plan(Half(0.7)).to_json()
    with pytest.raises(InvalidArgumentError, match=r"^plan\.clipping\.kind is 'Half'.*'Flat'.*privet\.register") as caught:
        privet.Plan.from_json(text)
    assert "Poisson" not in str(caught.value)


def test_what_cannot_be_registered():
    class Plain(NormRule):
        def factor(self, norms):
            return norms

    @dataclass(frozen=True)
    class Other:
        x: int = 1

    @dataclass
    class Thawed(privet.schedules.Schedule):
        def factors(self, steps):
            return None

    impostor = own_kind("Flat", lambda self, norms: norms)
    for kind in (Other, Thawed, Half(0.7), 3):
        with pytest.raises(InvalidArgumentError, match="a frozen dataclass"):
            privet.register(kind)
    with pytest.raises(InvalidArgumentError, match=r"kind is 'Flat'.*rename"):
        privet.register(impostor)
    assert PARTS["Flat"] is Flat


def test_another_kind_of_a_known_name_is_refused(tmp_path):
    impostor = dataclass(frozen=True)(
        type("Flat", (NormRule,), {"factor": lambda self, norms: norms * 0, "__module__": __name__})
    )
    arguments, _ = parts()
    with pytest.raises(InvalidArgumentError, match=r"plan\.clipping\.kind is 'Flat'"):
        privet.Training(plan(impostor(0.7)), *arguments, tmp_path / "run")


def test_a_kind_that_is_defined_again_takes_the_place_of_the_first(registered):
    again = own_kind("Half", Half.factor)
    privet.register(again)
    assert PARTS["Half"] is again


def test_a_value_that_json_changes_is_refused(tmp_path):
    @privet.register
    @dataclass(frozen=True)
    class Odd(NormRule):
        extra: object = field(default_factory=lambda: lambda: None)

        def factor(self, norms):
            return norms * 0

    try:
        arguments, _ = parts()
        with pytest.raises(InvalidArgumentError, match="what its JSON gives back"):
            privet.Training(plan(Odd(0.7)), *arguments, tmp_path / "run")
        assert not (tmp_path / "run").exists()
    finally:
        del PARTS["Odd"]


SCRIPT = """
import sys, torch, privet
from dataclasses import dataclass

class Mine(torch.optim.SGD):
    pass

@privet.register
@dataclass(frozen=True)
class Quarter(privet.clipping.NormRule):
    def factor(self, norms):
        return 0.25 * (self.bound / norms).clamp(max=1.0)

def loss(model, batch):
    return model(batch[0])[:, 0].square()

def parts():
    model = torch.nn.Linear(3, 1)
    return model, loss, Mine(model.parameters(), lr=0.1), torch.utils.data.TensorDataset(torch.ones(20, 3))

if __name__ == "__main__":
    plan = privet.Plan(
        examples=20, sampling=privet.sampling.Poisson(5.0), steps=6, delta=1e-5, clipping=Quarter(0.7),
        noise=privet.noise.Gaussian(1.3),
    )
    with privet.Training(plan, *parts(), sys.argv[1]) as training:
        next(iter(training))
"""


def test_what_a_script_defined_is_known_when_it_is_imported(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    subprocess.run([sys.executable, "script.py", "run"], cwd=tmp_path, check=True)
    code = "import privet, script; t = privet.Training.resume('run', *script.parts()); t.run(); print(t.steps_spent)"
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "6"
