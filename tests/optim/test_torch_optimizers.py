"""Torch's optimizers, schedulers and averages work unchanged: Training gives them the gradients of a plain loop."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import TensorDataset

import privet
from privet.errors import InvalidArgumentError, LedgerError
from privet.noise import FixedSource

N, D, B, SIGMA, BOUND, STEPS = 40, 3, 16.0, 1.7, 0.6, 6

OPTIMIZERS = {
    "SGD": lambda w: torch.optim.SGD(w, lr=0.3),
    "heavy ball": lambda w: torch.optim.SGD(w, lr=0.3, momentum=0.6),
    "Nesterov": lambda w: torch.optim.SGD(w, lr=0.3, momentum=0.6, nesterov=True, weight_decay=0.02),
    "Adam": lambda w: torch.optim.Adam(w, lr=0.07),
    "AdamW": lambda w: torch.optim.AdamW(w, lr=0.07, weight_decay=0.1),
    "Adagrad": lambda w: torch.optim.Adagrad(w, lr=0.2),
    "RMSprop": lambda w: torch.optim.RMSprop(w, lr=0.05, momentum=0.5),
    "UncorrectedAdam": lambda w: privet.optim.UncorrectedAdam(w, lr=0.03),
    "NAG": lambda w: privet.optim.NAG(w, lr=0.2),
    "AdamBC": lambda w: privet.optim.AdamBC(w, lr=0.07, noise_deviation=plan().gradient_deviations(), floor=1e-4),
    "SGLD": lambda w: privet.optim.SGLD(
        w, 0.3, examples=N, diffusion=0.3 * plan().gradient_deviations()[0] ** 2, prior=privet.optim.GaussianPrior(0.8), keep=2
    ),
}
every = pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)


def plan(steps=STEPS, **options):
    kinds = {"clipping": privet.clipping.Flat(BOUND), "noise": privet.noise.Gaussian(SIGMA, source="fixed"), **options}
    return privet.Plan(examples=N, sampling=privet.sampling.Poisson(B), steps=steps, delta=1e-5, **kinds)


def model_and_data():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(N, D, generator=generator, dtype=torch.float64)
    y = torch.randint(0, 2, (N,), generator=generator)
    model = nn.Linear(D, 2).double()
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    return model, TensorDataset(x, y)


def loss_fn(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def training(model, optimizer, data, directory=None, **options):
    return privet.Training(plan(), model, loss_fn, optimizer, data, directory, **options)


def loop(model, optimizer, data, steps, source=None):
    source = source or FixedSource()
    parameters = list(model.parameters())
    for _ in range(steps):
        total = [torch.zeros_like(parameter) for parameter in parameters]
        for i in next(privet.sampling.Poisson(B).draws(N, source.words)):
            gradient = torch.autograd.grad(loss_fn(model, [t[i : i + 1] for t in data.tensors]).sum(), parameters)
            norm = torch.cat([g.flatten() for g in gradient]).norm()
            for held, g in zip(total, gradient, strict=True):
                held += g * min(1.0, BOUND / norm.item())
        noise = source.normal(sum(held.numel() for held in total)).split([held.numel() for held in total])
        for parameter, held, z in zip(parameters, total, noise, strict=True):
            parameter.grad = (held + SIGMA * BOUND * z.view_as(held)) / B
        optimizer.step()
        yield [parameter.detach().clone() for parameter in parameters]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.detach(), other, rtol=1e-5, atol=1e-6)  # weights are shrunk by one part in a million


@every
def test_training_takes_the_steps_of_a_plain_loop_and_resumes_with_the_optimizers_state(make, tmp_path):
    (model, data), (twin, _) = model_and_data(), model_and_data()
    optimizer, own = make(twin.parameters()), make(model.parameters())
    expected = [*loop(twin, optimizer, data, 4), *loop(twin, optimizer, data, STEPS - 4)]  # a resumed source starts anew
    with training(model, own, data, tmp_path) as first:
        for step in first:
            assert_same(model.parameters(), expected[step.number - 1])
            if step.number == 4:
                break
    model, _ = model_and_data()
    again = make(model.parameters())
    found = []
    for _ in privet.Training.resume(tmp_path, model, loss_fn, again, data):
        found.append([parameter.detach().clone() for parameter in model.parameters()])
        assert_same(found[-1], expected[4 + len(found) - 1])
    assert len(found) == STEPS - 4
    if isinstance(again, privet.optim.SGLD):
        assert len(again.samples) == 2
        assert_same(again.samples[0], expected[-2])


DECAY = 0.7
AVERAGES = {
    "uniform": (AveragedModel, lambda values: [sum(each) / len(values) for each in zip(*values, strict=True)]),
    "ema": (lambda model: AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY)), lambda values: exponential(values)),
}
averages = pytest.mark.parametrize(("make", "reference"), AVERAGES.values(), ids=AVERAGES)


def exponential(values):
    held = values[0]
    for value in values[1:]:
        held = [DECAY * old + (1 - DECAY) * new for old, new in zip(held, value, strict=True)]
    return held


@averages
def test_the_average_is_over_the_parameters_after_every_step_and_survives_a_restart(make, reference, tmp_path):
    model, data = model_and_data()
    values = []
    first = training(model, torch.optim.SGD(model.parameters(), lr=0.3), data, tmp_path, average=make(model))
    for step in first:
        values.append([parameter.detach().clone() for parameter in model.parameters()])
        if step.number == 4:
            break
    first.close()
    model, _ = model_and_data()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    again = privet.Training.resume(tmp_path, model, loss_fn, optimizer, data, average=make(model))
    values += [[parameter.detach().clone() for parameter in model.parameters()] for _ in again]
    assert len(values) == STEPS
    assert_same(again.averaged_model.module.parameters(), reference(values))


def test_an_average_is_not_forgotten_on_resuming_and_must_fit(tmp_path):
    model, data = model_and_data()
    sgd = torch.optim.SGD(model.parameters(), lr=0.3)
    used = AveragedModel(model)
    used.update_parameters(model)
    other = AveragedModel(nn.Linear(D, 5))
    for average, says in ((copy.deepcopy(model), "AveragedModel"), (other, "another model"), (used, "earlier steps")):
        with pytest.raises(InvalidArgumentError, match=says):
            training(model, sgd, data, average=average)
    with training(model, sgd, data, tmp_path) as first:
        next(iter(first))
    with pytest.raises(LedgerError, match="average"):
        privet.Training.resume(tmp_path, model, loss_fn, sgd, data, average=AveragedModel(model))


def one_weight():
    return torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.3)


def rates_of(steps, make):
    sgd, rates = one_weight(), []
    scheduler = make(sgd)
    for _ in range(steps):
        rates.append(sgd.param_groups[0]["lr"])
        sgd.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize("deviation", ["relative", "fixed"])
def test_a_coupled_learning_rate_keeps_the_noise_that_reaches_the_parameters(deviation):
    noise = privet.noise.Gaussian(SIGMA, schedule=privet.schedules.Linear(), deviation=deviation)
    the_plan = plan(9, noise=noise, bound_schedule=privet.schedules.Geometric(rate=0.1))
    rates = rates_of(12, lambda sgd: privet.optim.coupled_learning_rate(sgd, the_plan))
    np.testing.assert_allclose(rates[:9] * the_plan.gradient_deviations(), 0.3 * SIGMA * BOUND / B, rtol=1e-12)
    assert rates[9:] == [rates[8]] * 3


def test_without_noise_there_is_nothing_to_couple_to():
    with pytest.raises(InvalidArgumentError, match=r"noise\.multiplier"):
        privet.optim.coupled_learning_rate(one_weight(), plan(noise=privet.noise.Gaussian(0.0, non_private=True)))


def test_a_scheduled_learning_rate_is_the_schedules_part_of_the_first():
    schedule = privet.schedules.ToZero()
    rates = rates_of(7, lambda sgd: privet.optim.scheduled_learning_rate(sgd, schedule, steps=5))
    np.testing.assert_allclose(rates, 0.3 * np.array([1, 0.8, 0.6, 0.4, 0.2, 0.2, 0.2]), rtol=1e-12)


def test_a_schedule_of_no_steps_is_refused():
    with pytest.raises(InvalidArgumentError, match="steps is 0"):
        privet.optim.scheduled_learning_rate(one_weight(), privet.schedules.ToZero(), steps=0)


def test_an_optimizer_without_a_rate_has_none_to_schedule():
    sgd = one_weight()
    sgd.param_groups[0]["lr"] = None
    for make in (lambda: privet.optim.scheduled_learning_rate(sgd, privet.schedules.ToZero(), steps=5),
                 lambda: privet.optim.coupled_learning_rate(sgd, plan())):  # fmt: skip
        with pytest.raises(InvalidArgumentError, match=r"optimizer\.lr is None; it must be a number"):
            make()
