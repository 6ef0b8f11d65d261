"""Features for private linear models depend on one example, have similar variances, and use no private statistics."""

import pytest
import torch
from torch.utils.data import TensorDataset

from privet.data import DataSet
from privet.data.sets.dead_leaves import dead_leaves
from privet_experiments.features import normalising
from privet_experiments.features.normalising import normalise, normalise_groups, normalise_locally, take_roots, whiten
from rounding import assert_equal_up_to_rounding

STEPS = {"roots": take_roots, "whitened": whiten, "local": normalise_locally, "groups": normalise_groups}


def public(number=500, channels=27):
    """Return coefficients with correlated channels of different scales and non-zero means."""
    random = torch.Generator().manual_seed(3)
    mixing = torch.randn(channels, channels, generator=random) * torch.logspace(0, -1, channels)
    rows = torch.randn(number, 3, 4, channels, generator=random) @ mixing.T + torch.arange(channels)
    return rows.movedim(-1, 1)


def test_dead_leaves_are_reproducible_and_differ_from_each_other():
    images = dead_leaves(50, 28)
    assert images.shape == (50, 1, 28, 28)
    assert torch.equal(images, dead_leaves(50, 28))
    assert len({image.numpy().tobytes() for image in images}) == 50
    assert images.min() == pytest.approx(-0.8)
    assert 0.8 < images.std() < 1.2


def test_dead_leaves_do_not_change_the_global_random_state():
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    dead_leaves(5, 28)
    assert torch.equal(torch.rand(3), expected)


def test_whitened_channels_of_public_images_have_mean_zero_and_identity_covariance(monkeypatch):
    monkeypatch.setattr(normalising, "_FLOOR", 1e-9)
    values = whiten(public())(public())
    rows = values.movedim(1, -1).flatten(0, -2)
    torch.testing.assert_close(rows.mean(0), torch.zeros(27), atol=1e-3, rtol=0)
    torch.testing.assert_close(torch.cov(rows.T), torch.eye(27), atol=1e-2, rtol=0)


def test_directions_without_public_variance_are_scaled_by_the_floor():
    flat = torch.randn(200, 1, 2, 2).expand(-1, 2, -1, -1)  # one direction of two
    change = whiten(flat)
    across = torch.tensor([1.0, -1.0]).view(1, 2, 1, 1)
    length = change(flat.mean((0, 2, 3)).view(1, 2, 1, 1) + across).norm()
    variance = 2 * flat[:, 0].var(correction=0)
    assert length == pytest.approx(float(2**0.5 / (normalising._FLOOR * variance) ** 0.5), rel=1e-3)


def test_roots_are_taken_of_moduli_and_the_first_channel_stays():
    values = torch.tensor([-4.0, 4.0, 0.0, -1e-9]).view(1, 4, 1, 1)
    assert take_roots(values)(values).flatten().tolist() == [-4.0, 2.0, 0.0, 0.0]


def test_positions_have_similar_weight():
    values = torch.ones(1, 9, 1, 2) * torch.tensor([3.0, 300.0])
    found = normalise_locally(values)(values).norm(dim=1).flatten()
    assert_equal_up_to_rounding(found, torch.tensor([9 / 10, 900 / 901]))


@pytest.mark.parametrize("names", [(), ("groups",), ("roots", "whitened", "local")], ids=str)
def test_features_are_a_function_of_one_example_and_have_length_ten(monkeypatch, names):
    monkeypatch.setattr(normalising, "_dead_leaves_coefficients", lambda width: public())
    monkeypatch.setattr(normalising, "_AT_ONCE", 4)
    inputs = public(10)
    steps = [STEPS[name] for name in names]
    whole = normalise(data_set(inputs), steps)
    changed = normalise(data_set(torch.cat((inputs[:5], 7 * inputs[5:].flip(0)))), steps)
    assert_equal_up_to_rounding(whole.train.tensors[0][:5], changed.train.tensors[0][:5])
    assert_equal_up_to_rounding(whole.test.tensors[0], whole.train.tensors[0][:2])
    assert_equal_up_to_rounding(whole.train.tensors[0].flatten(1).norm(dim=1), torch.full((10,), 10.0))


def data_set(inputs):
    labels = torch.arange(len(inputs)) % 2
    return DataSet("made up", TensorDataset(inputs, labels), TensorDataset(inputs[:2], labels[:2]), 2, "")


def test_steps_are_fitted_to_public_images_after_the_steps_before(monkeypatch):
    """Whitening after roots needs the statistics of the roots: with those of the moduli, the mean would not be zero."""
    monkeypatch.setattr(normalising, "_dead_leaves_coefficients", lambda width: public().abs())
    found = normalise(data_set(public().abs()), (take_roots, whiten)).train.tensors[0]
    assert found.mean((0, 2, 3)).abs().max() < 0.1
