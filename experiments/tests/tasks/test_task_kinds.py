"""Losses and measurements of the tasks, and features, on examples worked out by hand."""

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from privet.data import DataSet
from privet.errors import InvalidArgumentError
from privet.runs.config import Setup
from privet_experiments.features import extracted
from privet_experiments.tasks.kinds import TASKS
from privet_experiments.tasks.train_task import REGRESSION, outputs, squared_error
from rounding import assert_equal_up_to_rounding


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Features are kept on the disk: not on the developer's."""
    monkeypatch.setenv("PRIVET_CACHE", str(tmp_path))


EXAMPLES = TensorDataset(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([1.5, 2.0, 1.0]))


def test_a_regression_is_measured_in_the_unit_of_its_targets_and_left_as_it_was():
    model = nn.Sequential(nn.Identity(), nn.Dropout(0.9)).train()
    found = REGRESSION.measure(model, EXAMPLES)
    assert (found.mean_squared_error, found.mean_absolute_error) == pytest.approx(((0.25 + 0 + 9) / 3, (0.5 + 0 + 3) / 3))
    assert model.training
    assert model[1].training


def test_the_loss_of_a_regression_is_one_number_an_example():
    assert_equal_up_to_rounding(squared_error(nn.Identity(), EXAMPLES.tensors), torch.tensor([0.25, 0.0, 9.0]))


def test_a_network_has_an_output_for_each_label_or_one_for_a_target():
    assert outputs(DataSet("labels", EXAMPLES, None, 4, "")) == 4
    assert outputs(DataSet("targets", EXAMPLES, None, None, "")) == 1
    assert set(TASKS) == {"classification", "regression", "gradient flow", "federated"}


def test_a_network_for_targets_without_bounds_is_refused():
    with pytest.raises(InvalidArgumentError, match="target_bounds is missing; it must be given for a regression"):
        Setup("targets", "mlp", 0.1).build_model(DataSet("targets", EXAMPLES, None, None, ""))


def test_scattering_coefficients_are_a_function_of_one_image_alone():
    pytest.importorskip("kymatio", reason="scattering needs the extra of this name")
    images, labels = torch.rand(3, 1, 28, 28), torch.tensor([0, 1, 2])
    whole = extracted(DataSet("tiny", TensorDataset(images, labels), TensorDataset(images[:1], labels[:1]), 3, ""), "scattering")
    assert whole.input_shape == (81, 7, 7)
    assert_equal_up_to_rounding(whole.train.tensors[0][:1], whole.test.tensors[0])


def test_scattering_is_of_images():
    pytest.importorskip("kymatio", reason="scattering needs the extra of this name")
    with pytest.raises(InvalidArgumentError, match=r"images \(channels, height, width\)"):
        extracted(DataSet("rows", EXAMPLES, None, 3, ""), "scattering")
