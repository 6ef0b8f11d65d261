import contextlib
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from privet._utils.randomness import preserve_generators
from privet.errors import PrivetWarning, UnsupportedModelError
from privet.gradients.core.examples import split_batch
from privet.gradients.methods.ghost import Program
from privet.gradients.parameters import trainable
from privet.gradients.probe.joint import _ConstantCalls, _ConstantDraw, disable_inner_dropout, refuse_in_batch_loss

DRAWS = {
    "rand": (lambda n: torch.rand(n, 2), 0, 1),
    "randn": (lambda n: torch.randn((n, 2)), -5, 5),
    "rand_like": (lambda n: torch.rand_like(torch.zeros(n, 2)), 0, 1),
    "randn_like": (lambda n: torch.randn_like(torch.zeros(n, 2)), -5, 5),
    "randint to": (lambda n: torch.randint(7, (n, 2)), 0, 6),
    "randint from": (lambda n: torch.randint(-4, -1, (n, 2)), -4, -2),
    "randint by name": (lambda n: torch.randint(low=3, high=5, size=(n, 2)), 3, 4),
    "randint, mixed": (lambda n: torch.randint(3, high=5, size=(n, 2)), 3, 4),
    "randint, one name": (lambda n: torch.randint(high=5, size=(n, 2)), 0, 4),
    "bernoulli": (lambda n: torch.bernoulli(torch.full((n, 2), 0.5)), 0, 1),
    "bernoulli of a tensor": (lambda n: torch.full((n, 2), 0.5).bernoulli(), 0, 1),
    "bernoulli in place": (lambda n: torch.zeros(n, 2).bernoulli_(0.1), 0, 1),
    "uniform in place": (lambda n: torch.zeros(n, 2).uniform_(3, 4), 3, 4),
    "normal in place": (lambda n: torch.zeros(n, 2).normal_(100, 0.5), 90, 110),
}


def steady(model):
    return _ConstantCalls(Program(model, lambda m, b: m(b), trainable(model)).guard, _ConstantDraw())


@pytest.mark.parametrize("name", DRAWS)
def test_every_number_is_the_same_and_in_its_range(name):
    draw, low, high = DRAWS[name]
    with steady(nn.Linear(2, 2)):
        few, many = draw(1), draw(30)
    assert (few.shape, many.shape) == ((1, 2), (30, 2))
    assert len({*few.flatten().tolist(), *many.flatten().tolist()}) == 1
    assert low <= few[0, 0].item() <= high
    assert few.dtype == (torch.int64 if "randint" in name else torch.float32)


def test_chances_decide_coins_and_examples_are_mixed_up():
    with steady(nn.Linear(2, 2)):
        assert torch.bernoulli(torch.tensor([0.0, 1.0])).tolist() == [0.0, 1.0]
        assert torch.randperm(4).tolist() == [3, 2, 1, 0]


def refused(loss, model=None, examples=3):
    torch.manual_seed(0)
    model, batch = model or nn.Linear(4, 3), (torch.randn(examples, 4), torch.randint(3, (examples,)))
    with preserve_generators():
        try:
            refuse_in_batch_loss(Program(model, loss, trainable(model)), split_batch(batch))
        except UnsupportedModelError:
            return True
    return False


def classify(m, b):
    return F.cross_entropy(m(b[0]), b[1], reduction="none")


def mixup(m, b):
    order = torch.randperm(len(b[0]))
    return classify(m, (0.6 * b[0] + 0.4 * b[0][order], b[1]))


def mixup_by_numpy(m, b):
    order, share = np.random.permutation(len(b[0])), np.random.beta(0.5, 0.5)
    return classify(m, (share * b[0] + (1 - share) * b[0][order], b[1]))


def contrast(m, b):
    features = F.normalize(m(b[0]), dim=1)
    return F.cross_entropy(features @ features.t(), torch.arange(len(features)), reduction="none")


def balanced(m, b):
    return classify(m, b) / torch.bincount(b[1], minlength=3)[b[1]]


def centred(m, b):
    return classify(m, (b[0] - b[0].mean(0), b[1]))


def weighted_mean(m, b):
    return F.cross_entropy(m(b[0]), b[1], torch.tensor([1.0, 5.0, 25.0]))


SHARED = [mixup, mixup_by_numpy, contrast, balanced, centred]
FORMS = {"one each": lambda x: x, "one number": lambda x: x.mean(), "one number in a vector": lambda x: x.mean()[None]}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("loss", SHARED)
def test_losses_that_examples_share_are_refused(loss, form):
    assert refused(lambda m, b: FORMS[form](loss(m, b)), examples=8)


@pytest.mark.filterwarnings("ignore:the loss of a batch is one number")
def test_a_mean_weighted_by_classes_is_refused_and_a_plain_mean_or_sum_is_taken_apart():
    assert refused(weighted_mean)
    for reduce in (torch.mean, torch.sum):
        with pytest.warns(PrivetWarning, match="the mean or the sum of its examples' losses"):
            assert not refused(lambda m, b, reduce=reduce: reduce(classify(m, b))[None])


def test_random_numbers_that_only_change_rounding_do_not_hide_the_dependence():
    def mixed(m, b):
        return (1 + 1e-6 * np.random.rand()) * classify(m, (b[0] + b[0].flip(0), b[1]))

    assert refused(mixed)


@pytest.mark.parametrize("loss", [
    classify, lambda m, b: classify(m, (F.dropout(b[0], 0.5), b[1])),
    lambda m, b: classify(m, (b[0] + torch.randn_like(b[0]), b[1])),
    lambda m, b: classify(m, (b[0] + torch.from_numpy(np.random.randn(*b[0].shape)).float(), b[1])),
    lambda m, b: classify(m, (b[0] + torch.tensor([[random.random()] for _ in b[0]]), b[1])),
    lambda m, b: classify(m, (b[0] / b[0].norm(dim=1, keepdim=True), b[1])),
    lambda m, b: classify(m, b) + m.weight.square().sum(),
    lambda m, b: torch.stack([classify(m, (x[None], y[None]))[0] for x, y in zip(*b, strict=True)]),
])  # fmt: skip
def test_losses_of_single_examples_are_not(loss):
    assert not refused(loss)


def test_one_example_has_no_neighbours_and_a_program_for_one_cannot_be_changed_by_a_batch():
    def of_one(m, b):
        (label,) = b[1].tolist()
        return -m(b[0]).log_softmax(1)[:, label]

    assert not refused(of_one)
    assert not refused(contrast, examples=1)


def test_what_parameters_of_zero_hide_is_found():
    model = nn.Linear(4, 3)
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    assert refused(lambda m, b: (m(b[0]) - m(b[0]).mean(0)).sum(1) + m(b[0])[:, 0], model)


def test_what_only_the_first_parameters_show_is_found():
    def compares_at_first(m, b):
        return classify(m, b) + F.relu(0.01 - m.bias.abs().sum()) * centred(m, b)

    model = nn.Linear(4, 3)
    nn.init.zeros_(model.bias)
    assert refused(compares_at_first, model)


def test_dropout_within_one_call_is_off_inside_and_as_it_was_outside():
    model = nn.ModuleList([nn.LSTM(2, 2, 2, dropout=0.3), nn.MultiheadAttention(2, 1, dropout=0.4), nn.Dropout(0.5)])
    with contextlib.suppress(ZeroDivisionError), disable_inner_dropout(model):
        assert [layer.dropout for layer in model[:2]] == [0.0, 0.0]
        raise ZeroDivisionError
    assert [model[0].dropout, model[1].dropout, model[2].p] == [0.3, 0.4, 0.5]
