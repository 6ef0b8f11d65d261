import copy
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import privet
from one_layer import stop_after
from privet.errors import InvalidArgumentError, LedgerError
from privet.optim import AdamBC, Combined

N, STEPS = 30, 8
DATA = TensorDataset(torch.randn(N, 5))
MATRICES = {
    "sgd": lambda members: torch.optim.SGD(members, lr=0.2, momentum=0.9),
    "muon": lambda members: torch.optim.Muon(members, lr=0.02),
}
needs_muon = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="this version of torch has no Muon")
BOTH = pytest.mark.parametrize("matrix", ["sgd", pytest.param("muon", marks=needs_muon)])


def net():
    torch.manual_seed(3)
    return nn.Sequential(OrderedDict(first=nn.Linear(5, 4), tanh=nn.Tanh(), last=nn.Linear(4, 3)))


def loss_fn(model, batch):
    return model(batch[0]).square().sum(1)


def optimizers(model, matrix="sgd"):
    parameters = list(model.parameters())
    matrices, others = ([one for one in parameters if (one.dim() == 2) == kind] for kind in (True, False))
    return MATRICES[matrix](matrices), torch.optim.AdamW(others, lr=0.01)


def plan(multiplier=1.2, **options):
    return privet.Plan(
        examples=N, sampling=privet.sampling.FullBatch() if multiplier == 0 else privet.sampling.Poisson(10.0), steps=STEPS,
        delta=1e-5, clipping=privet.clipping.Flat(0.6),
        noise=privet.noise.Gaussian(multiplier, non_private=multiplier == 0), **options,
    )  # fmt: skip


def started(directory=None, matrix="sgd", resume=False, the_plan=None, make=Combined, **options):
    model = net()
    optimizer = make(*optimizers(model, matrix))
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    given = (model, loss_fn, optimizer, DATA)
    if resume:
        return privet.Training.resume(directory, *given, scheduler=scheduler)
    return privet.Training(the_plan or plan(), *given, directory, scheduler=scheduler, **options)


def flat(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@BOTH
def test_together_they_step_as_each_alone(matrix):
    training = started(matrix=matrix, the_plan=plan(multiplier=0.0))
    training.run()
    alone = net()
    each = optimizers(alone, matrix)
    schedulers = [torch.optim.lr_scheduler.CosineAnnealingLR(one, STEPS) for one in each]
    hosted = privet.Training(plan(multiplier=0.0), alone, loss_fn, Combined(*each), DATA)
    for _ in hosted.releases():
        for one in (*each, *schedulers):
            one.step()
    torch.testing.assert_close(flat(training.model), flat(alone), rtol=1e-6, atol=1e-7)
    assert not torch.equal(flat(alone), flat(net()))
    assert all(group["lr"] < 1e-9 for group in training.optimizer.param_groups)


@BOTH
def test_a_resumed_run_restores_every_optimizer_and_goes_on_with_the_schedule(tmp_path, matrix):
    first = stop_after(started(tmp_path, matrix), 5)
    again = started(tmp_path, matrix, resume=True)
    assert str(first.optimizer.state_dict()) == str(again.optimizer.state_dict())
    assert [group["lr"] for group in again.optimizer.param_groups] == [group["lr"] for group in first.optimizer.param_groups]
    again.run()
    # The groups that the scheduler changes are those that are stepped.
    assert all(group["lr"] < 1e-9 for one in again.optimizer.optimizers for group in one.param_groups)


def test_the_manifest_tells_other_optimizers_and_other_divisions(tmp_path):
    started(tmp_path).close()

    def swapped(first, second):
        return Combined(second, first)

    for make, says in [(swapped, r"optimizer\.groups\[0\]\.parameters"), (lambda *one: Combined(one[0], _sgd(one[1])), "wraps")]:
        with pytest.raises(LedgerError, match=says):
            started(tmp_path, resume=True, make=make)
    assert started(tmp_path, resume=True).steps_left == STEPS


def _sgd(other):
    return torch.optim.SGD(other.param_groups[0]["params"], lr=0.01)


def test_earlier_steps_of_one_of_them_are_refused():
    model = net()
    one, other = optimizers(model)
    model(DATA.tensors[0]).sum().backward()
    other.step()
    model.zero_grad()
    with pytest.raises(InvalidArgumentError, match=r"state from earlier steps.*first\.bias"):
        privet.Training(plan(), model, loss_fn, Combined(one, other), DATA)


def test_a_parameter_that_nobody_has_or_two_have_is_refused():
    model = net()
    one, other = optimizers(model)
    with pytest.raises(InvalidArgumentError, match="disjoint"):
        Combined(one, torch.optim.SGD(model.parameters(), lr=0.1))
    part = torch.optim.SGD([model.first.bias], lr=0.1)
    with pytest.raises(InvalidArgumentError, match=r"without last\.bias"):
        privet.Training(plan(), model, loss_fn, Combined(one, part), DATA)
    with pytest.raises(InvalidArgumentError, match=r"privet\.optim\.Combined"):
        privet.Training(plan(), model, loss_fn, [one, other], DATA)


@pytest.mark.parametrize("given", [[], [torch.optim.SGD([nn.Parameter(torch.zeros(1))])], [[], []]])
def test_what_cannot_be_combined_is_refused(given):
    with pytest.raises(InvalidArgumentError, match="two or more"):
        Combined(*given)


def test_groups_and_states_are_those_of_the_optimizers():
    optimizer = Combined(*optimizers(net()))
    with pytest.raises(InvalidArgumentError, match="before they are combined"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
    with pytest.raises(ValueError, match="1 optimizers for 2"):
        optimizer.load_state_dict({"optimizers": [optimizer.optimizers[0].state_dict()]})


def test_an_optimizer_that_knows_its_noise_is_checked_over_its_own_parameters():
    def train(deviation):
        model = net()
        rest = torch.optim.SGD(model.last.parameters(), lr=0.1)
        informed = AdamBC(model.first.parameters(), lr=0.01, noise_deviation=deviation)
        privet.Training(plan(), model, loss_fn, Combined(rest, informed), DATA).run()

    train(plan().gradient_deviations().tolist())
    with pytest.raises(InvalidArgumentError, match=r"noise_deviation is 7\.0"):
        train(7.0)


def test_a_closure_is_called_once_as_hosts_expect():
    model, calls = net(), []

    def closure():
        calls.append(torch.is_grad_enabled())
        loss = loss_fn(model, DATA.tensors).sum()
        loss.backward()
        return loss

    before = flat(model)
    with torch.no_grad():
        loss = Combined(*optimizers(model)).step(closure)
    assert calls == [True]
    assert loss.item() > 0
    assert (flat(model) != before).all()


def test_a_copy_steps_parameters_of_its_own():
    model = net()
    twin, optimizer = copy.deepcopy((model, Combined(*optimizers(model))))
    twin(DATA.tensors[0]).sum().backward()
    optimizer.step()
    assert not torch.equal(flat(twin), flat(model))
    optimizer.param_groups[0]["lr"] = 0.5
    assert optimizer.optimizers[0].param_groups[0]["lr"] == 0.5
