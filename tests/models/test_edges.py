import pytest
import torch

import privet
from privet import models
from privet.models.convolutional import OrientedEdges
from rounding import assert_equal_up_to_rounding


def step(angle, side=28):
    """Return an image that is 0 on one side of a line through its middle and 1 beyond it, in the direction of an angle."""
    along = torch.arange(side) - (side - 1) / 2
    y, x = torch.meshgrid(along, along, indexing="ij")
    return (x * angle.cos() + y * angle.sin() > 0).float()[None, None]


@pytest.mark.parametrize("direction", range(16))
def test_each_of_16_directions_has_a_channel_of_its_own(direction):
    angle = torch.tensor(2 * torch.pi * direction / 16)
    middle = OrientedEdges(1)(step(angle))[0, :, 2:-2, 2:-2].mean(dim=(1, 2))
    assert middle.argmax() == direction


def test_brightness_does_not_matter_inside_an_image():
    edges, image = OrientedEdges(1), torch.rand(2, 1, 28, 28)
    torch.testing.assert_close(edges(image + 3)[..., 1:-1, 1:-1], edges(image)[..., 1:-1, 1:-1], atol=1e-5, rtol=0)


def test_channels_are_filtered_one_by_one():
    edges, image = OrientedEdges(3), torch.rand(2, 3, 20, 17)
    dark = image.clone()
    dark[:, 1] = 0
    found, without = edges(image).unflatten(1, (2, 3, 8)), edges(dark).unflatten(1, (2, 3, 8))
    assert found.shape[-2:] == (edges.count_positions(20), edges.count_positions(17))
    assert_equal_up_to_rounding(without[:, :, [0, 2]], found[:, :, [0, 2]])
    assert not without[:, :, 1].any()


def test_private_training_is_fast_and_leaves_the_filters_alone():
    model = models.build("edge-cnn", (1, 28, 28), 10)
    before = model.edges.filters.clone()
    data = torch.utils.data.TensorDataset(torch.rand(40, 1, 28, 28), torch.arange(40) % 10)
    plan = privet.Plan(
        examples=40, sampling=privet.sampling.Poisson(20), steps=3, delta=1e-3,
        clipping=privet.clipping.Flat(0.3), noise=privet.noise.Gaussian(multiplier=0.7),
    )  # fmt: skip

    def loss_fn(model, batch):
        return torch.nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")

    training = privet.Training(plan, model, loss_fn, torch.optim.SGD(model.parameters(), lr=0.1), data)
    training.run()
    assert training.method == "ghost"
    assert torch.equal(model.edges.filters, before)
    assert not list(model.edges.parameters())
