import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

import privet
from one_layer import plan
from privet.errors import InvalidArgumentError, PrivetError, UnsupportedModelError
from privet.reading.batches import check_map_style

EXAMPLES = 12
DATA = TensorDataset(torch.randn(EXAMPLES, 3), torch.zeros(EXAMPLES, dtype=torch.long))


def losses(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def start(loss_fn=losses, dataset=DATA):
    model = nn.Linear(3, 2)
    privet.Training(plan(4, examples=EXAMPLES), model, loss_fn, torch.optim.SGD(model.parameters(), lr=0.1), dataset)


class Failing(Dataset):
    def __len__(self):
        return EXAMPLES

    def __getitem__(self, index):
        raise TypeError("secret")


@pytest.mark.parametrize(
    ("loss_fn", "says"),
    [
        (nn.CrossEntropyLoss(reduction="none"), r"loss_fn is 'CrossEntropyLoss'.*function of model and batch.*Write one such as"),
        (F.cross_entropy, r"loss_fn is 'cross_entropy'.*It takes outputs and labels"),
        (lambda model, inputs, labels: inputs, r"Its arguments are \(model, inputs, labels\)"),
        (None, r"loss_fn is 'NoneType'.*It cannot be called"),
        (lambda model, batch: losses(model, batch).mean(), r"'a tensor of shape \(\)'; it must be one loss per example"),
        (lambda model, batch: None, r"'a NoneType'; it must be one loss per example"),
        (lambda model, batch: {"loss": losses(model, batch)}, r"'a dict'.*Return the sum of an example's losses"),
        (lambda model, batch: 2 * (losses(model, batch),), r"'a tuple'.*Return the sum of an example's losses"),
    ],
)
def test_a_loss_of_another_kind_is_blamed_on_the_loss(loss_fn, says):
    with pytest.raises(InvalidArgumentError, match=says):
        start(loss_fn)


def test_a_loss_that_fails_is_told_how_it_is_called():
    with pytest.raises(UnsupportedModelError, match=r"must be Tensor, not.*loss_fn\(model, batch\)"):
        start(lambda outputs, labels: F.cross_entropy(outputs, labels, reduction="none"))


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        ((torch.zeros(EXAMPLES, 3), torch.zeros(EXAMPLES)), r"TensorDataset\(inputs, labels\)"),
        ({"x": torch.zeros(EXAMPLES, 3)}, r"'a dict'.*TensorDataset\(\*columns"),
        ("train.csv", r"'a str'.*privet\.data\.load\(path\)"),
        (Path("train.csv"), r"Path'.*privet\.data\.load\(path\)"),
        (iter(DATA), r"It needs a length and indexing"),
    ],
)
def test_data_that_are_no_data_set_are_told_what_would_be(dataset, says):
    with pytest.raises(InvalidArgumentError, match=says):
        start(dataset=dataset)


def test_a_dictionary_by_position_is_a_data_set():
    assert check_map_style(dict(enumerate(DATA))) == EXAMPLES


@pytest.mark.parametrize("package", ["pandas", "polars", "pyarrow"])
def test_a_table_of_another_package_is_sent_to_the_loader(package):
    table = type("DataFrame", (), {"__module__": f"{package}.core", "__len__": lambda self: EXAMPLES, "__getitem__": None})
    with pytest.raises(InvalidArgumentError, match=rf"a {package} DataFrame.*privet\.data\.load\(frame, schema=schema\)"):
        start(dataset=table())


@pytest.mark.parametrize("item", [(object(), 1), {"label": None}, (Path("1.png"), 1)])
def test_items_that_torch_cannot_stack_need_a_collate(item):
    with pytest.raises(PrivetError, match="pass collate=") as caught:
        start(dataset=[copy.copy(item) for _ in range(EXAMPLES)])
    assert "line" not in str(caught.value)


def test_an_error_in_the_data_set_itself_names_its_place():
    with pytest.raises(UnsupportedModelError, match=r"TypeError in __getitem__, line \d+ of .*test_common_mistakes") as caught:
        start(dataset=Failing())
    assert "secret" not in str(caught.value)
