import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import privet
from one_layer import RATE, D, N, Probe, linear_loss, plan, setup
from privet.errors import LedgerError, PrivetWarning
from privet.training.preflight import RUNS_UNCOMPILED
from rounding import assert_equal_up_to_rounding

DATA = torch.randn(N, D, generator=torch.Generator().manual_seed(0))


class Backend:
    """Counts what torch compiles; the compiled code is the graph itself."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return graph.forward


def in_place(model, backend):
    model.compile(backend=backend)
    return model


FORMS = {
    "model wrapped": lambda backend: (torch.compile(Probe(), backend=backend), linear_loss),
    "model compiled in place": lambda backend: (in_place(Probe(), backend), linear_loss),
    "part of the model": lambda backend: (nn.Sequential(torch.compile(Probe(), backend=backend)), linear_loss),
    "loss": lambda backend: (Probe(), torch.compile(linear_loss, backend=backend)),
    "loss module": lambda backend: (Probe(), in_place(Criterion(), backend)),
}


class Criterion(nn.Module):
    def forward(self, model, batch):
        return linear_loss(model, batch)


def train(model, loss=linear_loss, directory=None, the_plan=None, **options):
    return setup(the_plan or plan(), DATA, directory, model, loss, **options)


@pytest.mark.parametrize(("form", "method"), [*((form, "ghost") for form in FORMS), ("model wrapped", "loop"), ("loss", "loop")])
def test_neither_the_check_nor_a_step_compiles_and_the_user_is_told_once(form, method):
    torch._dynamo.reset()
    backend = Backend()
    model, loss = FORMS[form](backend)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", PrivetWarning)
        training = train(model, loss, method=method)
        training.run()
    assert [str(each.message) for each in said if issubclass(each.category, PrivetWarning)] == [RUNS_UNCOMPILED]
    assert training.steps_left == 0
    assert backend.graphs == 0
    loss(model, (DATA,))  # outside of a training it is as compiled as before
    assert backend.graphs >= 1


@pytest.mark.parametrize("form", [form for form in FORMS if "model" in form])
def test_a_compiled_model_is_released_as_a_plain_one(form):
    """σ = 0 and every example in every batch: runs differ by nothing but the compilation."""
    the_plan, found = plan(float(N), multiplier=0.0), []
    for model in (Probe(), FORMS[form](Backend())[0]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PrivetWarning)
            train(model, the_plan=the_plan).run()
        found.append(next(iter(model.parameters())).detach())
    assert float(found[0].norm()) > 0
    assert_equal_up_to_rounding(*found)


def layered():
    return nn.Sequential(nn.Linear(D, 3), nn.Tanh(), nn.Linear(3, 1))


def squares(model, batch):
    return model(batch[0])[:, 0].square()


@pytest.mark.filterwarnings("ignore::privet.errors.PrivetWarning")
def test_the_state_keeps_the_names_of_a_wrapped_model(tmp_path):
    model = torch.compile(layered(), backend=Backend())
    before = list(model.state_dict())
    assert before[0] == "_orig_mod.0.weight"
    training = train(model, squares, tmp_path)
    next(iter(training))
    training.close()
    assert list(model.state_dict()) == before

    def resume(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        return privet.Training.resume(tmp_path, model, squares, optimizer, TensorDataset(DATA))

    with pytest.raises(LedgerError, match="_orig_mod"):
        resume(layered())
    resumed = resume(torch.compile(layered(), backend=Backend()))
    resumed.run()
    assert resumed.steps_left == 0
