"""Optimizer, scheduler and average of a new run have no past: what they would carry along was never released."""

import warnings
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import ChainedScheduler, ExponentialLR, OneCycleLR, StepLR
from torch.optim.swa_utils import SWALR, AveragedModel
from torch.utils.data import TensorDataset

import privet
from one_layer import BOUND, SIGMA, plan
from privet.errors import InvalidArgumentError

N, STEPS = 20, 3


def net():
    return nn.Sequential(OrderedDict(first=nn.Linear(3, 4), tanh=nn.Tanh(), last=nn.Linear(4, 1)))


DATA = TensorDataset(torch.randn(N, 3))


def loss_fn(model, batch):
    return model(batch[0])[:, 0].square()


def training(model, optimizer, directory=None, **options):
    return privet.Training(plan(5.0, STEPS, examples=N), model, loss_fn, optimizer, DATA, directory, **options)


class Wrapper(torch.optim.Optimizer):
    """Steps another optimizer; its constructor takes arguments that its groups do not show."""

    def __init__(self, inner, weight):
        super().__init__(inner.param_groups, {})
        self.base_optimizer, self.weight = inner, weight

    def step(self, closure=None):
        self.base_optimizer.step()


class StatesFromTheStart(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1):
        super().__init__(params, {"lr": lr})
        for group in self.param_groups:
            for member in group["params"]:
                self.state[member]["z"] = member.detach().clone()

    def step(self, closure=None):
        for group in self.param_groups:
            for member in group["params"]:
                self.state[member]["z"].sub_(member.grad, alpha=group["lr"])
                member.data.copy_(self.state[member]["z"])


class Lookahead(torch.optim.SGD):
    """Moves slow weights, which start as copies of the parameters, every second step."""

    def __init__(self, params, lr=0.1, shift=0.0):
        super().__init__(params, lr=lr)
        self.slow = [[member.detach() + shift for member in group["params"]] for group in self.param_groups]
        self.count = 0

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        self.count += 1
        for group, slow in zip(self.param_groups, self.slow, strict=True):
            for member, kept in zip(group["params"], slow, strict=True):
                if self.count % 2 == 0:
                    member.copy_(kept.lerp_(member, 0.5))


class Sharpness(torch.optim.Optimizer):
    def step(self, closure):
        return closure()


class ChoosesItsRate(torch.optim.Optimizer):
    """Has a rate of None in its groups, as Adafactor of transformers with a relative step has."""

    def __init__(self, params):
        super().__init__(params, {"lr": None})

    @torch.no_grad()
    def step(self, closure=None):
        for member in (member for group in self.param_groups for member in group["params"]):
            member.sub_(0.01 * member.grad)


def stepped(optimizer, model):
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    return optimizer


def injected(optimizer, key, value):
    optimizer.state[key] = value
    return optimizer


def sgd(model, **options):
    return torch.optim.SGD(model.parameters(), lr=0.1, **options)


TORCHS = ["Adadelta", "Adafactor", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"]
NEW = {
    **{kind: lambda m, kind=kind: getattr(torch.optim, kind)(m.parameters(), lr=0.01) for kind in TORCHS},
    "Adagrad that starts above zero": lambda m: torch.optim.Adagrad(m.parameters(), lr=0.1, initial_accumulator_value=0.3),
    "groups": lambda m: torch.optim.Adam(
        [{"params": m.first.parameters(), "lr": 0.3, "betas": (0.5, 0.6)}, {"params": m.last.parameters()}], lr=0.1
    ),
    "a rate of its own": lambda m: ChoosesItsRate(m.parameters()),
    "a rate in a tensor": lambda m: torch.optim.Adam(m.parameters(), lr=torch.tensor(0.01)),
    "state from the start": lambda m: StatesFromTheStart(m.parameters()),
    "a wrapper": lambda m: Wrapper(sgd(m, momentum=0.9), 0.5),
    "slow weights": lambda m: Lookahead(m.parameters()),
    "blank state": lambda m: injected(sgd(m, momentum=0.9), m.last.bias, {"momentum_buffer": torch.zeros(1)}),
    "AdamBC": lambda m: privet.optim.AdamBC(m.parameters(), lr=0.1, noise_deviation=SIGMA * BOUND / 5),
}


@pytest.mark.parametrize("make", NEW.values(), ids=list(NEW))
def test_new_optimizers_train(make):
    model = net()
    run = training(model, make(model))
    run.run()
    assert run.steps_spent == 3


def test_an_optimizer_that_chooses_its_rate_has_none_in_a_run_and_is_resumed(tmp_path):
    model = net()
    with training(model, ChoosesItsRate(model.parameters()), tmp_path) as run:
        assert next(iter(run)).learning_rate is None
    with privet.Training.resume(tmp_path, model, loss_fn, ChoosesItsRate(model.parameters()), DATA) as run:
        run.run()
    assert run.steps_spent == STEPS


@pytest.mark.parametrize(
    "rate", ["0.1", [0.1], float("nan"), torch.tensor(float("inf")), object()], ids=["text", "list", "nan", "infinite", "object"]
)
def test_a_rate_that_is_no_number_is_refused_by_name(rate):
    model = net()
    optimizer = sgd(model)
    optimizer.param_groups[0]["lr"] = rate
    with pytest.raises(InvalidArgumentError, match=r"^optimizer\.lr is"):
        training(model, optimizer)


def test_hooks_see_what_is_released_and_are_allowed():
    model, seen = net(), []
    optimizer = sgd(model)
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))
    optimizer.register_step_post_hook(lambda *_: seen.append("after"))
    training(model, optimizer).run()
    assert seen == ["before", "after"] * 3


OLD = {
    "momentum of earlier steps": (lambda m: stepped(sgd(m, momentum=0.9), m), r"momentum_buffer of first\.weight"),
    "steps of Adam": (lambda m: stepped(torch.optim.Adam(m.parameters()), m), "state from earlier steps"),
    "steps of Adagrad": (lambda m: stepped(torch.optim.Adagrad(m.parameters()), m), "state from earlier steps"),
    "steps of a wrapped optimizer": (lambda m: Wrapper(stepped(sgd(m, momentum=0.9), m), 0.5), "momentum_buffer"),
    "injected momentum": (
        lambda m: injected(sgd(m, momentum=0.9), m.last.bias, {"momentum_buffer": torch.ones(1)}),
        r"momentum_buffer of last\.bias",
    ),
    "injected beside the step": (
        lambda m: injected(
            torch.optim.Adam(m.parameters()), m.last.bias,
            {"step": torch.tensor(0.0), "exp_avg": torch.ones(1), "exp_avg_sq": torch.zeros(1)},
        ),
        r"exp_avg of last\.bias",
    ),
    "injected where a copy is due": (
        lambda m: injected(StatesFromTheStart(m.parameters()), m.last.bias, {"z": torch.tensor([5.0])}), r"z of last\.bias",
    ),
    "a number": (lambda m: injected(sgd(m), m.last.bias, {"count": 4}), r"count of last\.bias"),
    "slow weights of earlier steps": (
        lambda m: Lookahead(m.parameters(), shift=0.5), r"tensors of its own in an attribute \(slow\)'",
    ),
    "LBFGS": (lambda m: torch.optim.LBFGS(m.parameters()), "one gradient per step"),
    "a step that needs a closure": (lambda m: Sharpness(m.parameters(), {}), "one gradient per step"),
    "sparse gradients": (lambda m: torch.optim.SparseAdam(m.parameters()), "for dense gradients"),
    "differentiable steps": (lambda m: torch.optim.Adam(m.parameters(), differentiable=True), "for dense gradients"),
    "a part of the model": (lambda m: torch.optim.SGD(m.first.parameters(), lr=0.1), r"without last\.weight"),
    "something else's parameters": (
        lambda m: torch.optim.SGD([*m.parameters(), *net().parameters()], lr=0.1), "foreign",
    ),
    "LBFGS inside": (lambda m: Wrapper(torch.optim.LBFGS(m.parameters()), 0.5), "one gradient per step"),
    "something else's parameters inside": (lambda m: with_inner(sgd(m), sgd(net())), "foreign"),
}  # fmt: skip


def with_inner(optimizer, inner):
    optimizer.others = [inner]
    return optimizer


@pytest.mark.parametrize(("make", "says"), OLD.values(), ids=list(OLD))
def test_optimizers_with_a_past_are_refused(make, says, tmp_path):
    model = net()
    with pytest.raises(InvalidArgumentError, match=rf"^optimizer is .*{says}"):
        training(model, make(model), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_gradient_that_lies_around_at_a_frozen_parameter_is_not_applied():
    """The optimizer holds it, and would apply what a backward pass of the user's own left there."""
    model = net()
    model.first.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.first.weight.detach().clone()
    run = training(model, optimizer)
    model.first.weight.grad = torch.ones_like(model.first.weight)
    run.run()
    assert torch.equal(model.first.weight, before)


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_without_a_past(tmp_path):
    model = net()
    training(model, sgd(model, momentum=0.9), tmp_path).close()
    (tmp_path / "checkpoint.pt").unlink()
    used = stepped(sgd(model, momentum=0.9), model)
    with pytest.raises(InvalidArgumentError, match="momentum_buffer"):
        privet.Training.resume(tmp_path, model, loss_fn, used, DATA)
    privet.Training.resume(tmp_path, model, loss_fn, sgd(model, momentum=0.9), DATA).run()


def old(scheduler):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch, that the optimizer has not stepped
        scheduler.step()
    return scheduler


SCHEDULERS = {
    "a chain": lambda o: ChainedScheduler([lr_scheduler.LinearLR(o), ExponentialLR(o, 0.9)], optimizer=o),
    "a sequence": lambda o: lr_scheduler.SequentialLR(o, [StepLR(o, 1), ExponentialLR(o, 0.9)], milestones=[2]),
    "a cycle": lambda o: OneCycleLR(o, 0.1, total_steps=STEPS),
    "of averages": lambda o: SWALR(o, 0.01),
    "a function": lambda o: lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
}


@pytest.mark.parametrize("make", SCHEDULERS.values(), ids=list(SCHEDULERS))
def test_new_schedulers_are_stepped(make):
    model = net()
    optimizer = sgd(model)
    training(model, optimizer, scheduler=make(optimizer)).run()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda o: StepLR(sgd(net()), 1), "StepLR of another optimizer"),
        (lambda o: old(StepLR(o, 1)), "StepLR after 1 steps"),
        (lambda o: ChainedScheduler([old(StepLR(o, 1))], optimizer=o), "ChainedScheduler after 1 steps"),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o), "needs no arguments.*between steps, with a metric of public data"),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, privet.epochs(2)), r"T_max=Epochs.*Use plan\.total_steps"),
        (lambda o: lr_scheduler.CosineAnnealingLR(o, None), r"T_max=None.*Use plan\.total_steps"),
        (
            lambda o: lr_scheduler.SequentialLR(o, [StepLR(o, 1), lr_scheduler.LinearLR(o, total_iters=privet.epochs(2))], [2]),
            r"LinearLR\(total_iters=Epochs",
        ),
        (lambda o: OneCycleLR(o, 0.1, total_steps=STEPS - 1), "of at least"),
        (lambda o: object(), "LRScheduler"),
    ],
)
def test_schedulers_that_do_not_fit_are_refused(make, says):
    model = net()
    optimizer = sgd(model)
    with pytest.raises(InvalidArgumentError, match=rf"^scheduler is .*{says}"):
        training(model, optimizer, scheduler=make(optimizer))


def test_an_average_of_other_parameters_is_refused():
    model = net()
    average = AveragedModel(model)
    with torch.no_grad():
        average.module.last.bias.add_(1.0)
    with pytest.raises(InvalidArgumentError, match=r"^average is .*another value of last\.bias"):
        training(model, sgd(model), average=average)
    training(model, sgd(model), average=AveragedModel(model)).run()
