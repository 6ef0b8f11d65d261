import pytest
import torch
from torch import nn

from privet import models
from privet.errors import InvalidArgumentError
from privet.models.networks import is_pretrained
from rounding import assert_equal_up_to_rounding

SHAPES = [(1, 28, 28), (3, 32, 32), (1, 8, 8)]
UNFIT = {("edge-cnn", (1, 8, 8)), ("cnn", (1, 8, 8)), ("relu-cnn", (1, 8, 8))}
FITTING = [
    (name, shape) for name in models.NAMES if not is_pretrained(name) for shape in SHAPES if (name, shape) not in UNFIT
]  # fmt: skip
OPTIONS = [
    ("bounded-linear", {"radius": 3.0, "intercept": 0.5}),
    ("mlp", {"width": 7}),
    ("mlp", {"activation": "relu"}),
    ("edge-cnn", {"width": 3}),
    ("cnn", {"activation": "relu"}),
    ("tanh-cnn", {"pooling": "max"}),
    ("tanh-cnn", {"width": 3}),
    ("strided-cnn", {"width": 3}),
    ("regression-mlp", {"activation": "tanh"}),
    ("table", {"numbers": [0, 5], "waves": 2, "width": 3}),
    ("table", {"scale": 0.25}),
    ("table", {"numbers": [], "waves": 0, "width": 0, "activation": "relu"}),
]


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_every_option_builds_a_working_network(name, options):
    assert models.build(name, (1, 28, 28), 10, **options)(torch.rand(2, 1, 28, 28)).shape == (2, 10)


@pytest.mark.parametrize(
    ("name", "shape", "count"),
    [
        ("logistic", (1, 28, 28), 7_850), ("bounded-linear", (1, 28, 28), 7_850), ("mlp", (1, 28, 28), 269_322),
        ("edge-cnn", (1, 28, 28), 12_650), ("edge-cnn", (3, 32, 32), 25_386), ("cnn", (1, 28, 28), 26_010),
        ("cnn", (3, 32, 32), 37_274), ("tanh-cnn", (1, 28, 28), 70_762), ("tanh-cnn", (3, 32, 32), 75_818),
        ("tanh-cnn", (1, 8, 8), 65_642), ("strided-cnn", (1, 28, 28), 19_514), ("relu-cnn", (1, 28, 28), 21_840),
        ("scattering-cnn", (81, 7, 7), 33_066), ("regression-mlp", (8,), 7_146),
    ],
)  # fmt: skip
def test_parameter_counts_match_the_architecture(name, shape, count):
    assert parameters(models.build(name, shape, 10)) == count


def test_a_regression_may_have_one_target_and_half_the_width_is_as_documented():
    assert models.build("regression-mlp", (8,), 1)(torch.rand(5, 8)).shape == (5, 1)
    assert parameters(models.build("tanh-cnn", (1, 28, 28), 10, width=16)) == 19_258


def test_a_scale_keeps_the_initial_function_and_shrinks_what_noise_does_to_it():
    moved, inputs = {}, torch.rand(50, 6, dtype=torch.float64) * 2 - 1
    for scale in (1.0, 0.25):
        torch.manual_seed(0)
        model = models.build("table", (6,), 2, scale=scale).double()
        before = model(inputs)
        with torch.no_grad():
            model.output.weight += torch.randn(2, 64, generator=torch.Generator().manual_seed(1)).double()
        moved[scale] = before, model(inputs) - before
    assert_equal_up_to_rounding(moved[0.25][0], moved[1.0][0])
    assert_equal_up_to_rounding(moved[0.25][1], moved[1.0][1] / 4)


@pytest.mark.parametrize(("name", "shape"), FITTING)
def test_a_batch_of_any_size_becomes_logits_and_no_example_influences_another(name, shape):
    model = models.build(name, shape, classes=7).train().double()
    buffers = [buffer.clone() for buffer in model.buffers()]
    batch = torch.rand(4, *shape, dtype=torch.float64)
    alone = torch.cat([model(example[None]) for example in batch])
    assert (model(batch[:0]).shape, alone.shape) == ((0, 7), (4, 7))
    assert_equal_up_to_rounding(model(batch), alone)
    assert all(torch.equal(buffer, before) for buffer, before in zip(model.buffers(), buffers, strict=True))


@pytest.mark.parametrize(
    ("name", "side"),
    [("edge-cnn", 11), ("cnn", 14), ("tanh-cnn", 8), ("strided-cnn", 5), ("relu-cnn", 16), ("scattering-cnn", 2)],
)
def test_the_smallest_image_is_exactly_the_documented_one(name, side):
    assert models.build(name, (1, side, side), 2)(torch.rand(1, 1, side, side)).shape == (1, 2)
    assert models.build(name, (2, side, side + 3), 2)(torch.rand(1, 2, side, side + 3)).shape == (1, 2)
    with pytest.raises(InvalidArgumentError, match=f"height and width at least {side}"):
        models.build(name, (1, side, side - 1), 2)


def test_the_default_activation_is_bounded():
    for name in ("mlp", "cnn", "tanh-cnn"):
        kinds = {type(module) for module in models.build(name, (1, 28, 28), 10).modules()}
        assert nn.Tanh in kinds
        assert nn.ReLU not in kinds


def test_an_unsuitable_shape_is_refused_with_the_suitable_models():
    always = "logistic, linear, bounded-linear, mlp, table"
    with pytest.raises(InvalidArgumentError, match=rf"input_shape is \(1, 8, 8\).*'cnn'.*: {always}, tanh-cnn, regression-mlp\."):
        models.build("cnn", (1, 8, 8), 10)
    with pytest.raises(InvalidArgumentError, match=rf"input_shape is \(54,\).*'tanh-cnn'.*: {always}, reg"):
        models.build("tanh-cnn", (54,), 7)
    with pytest.raises(InvalidArgumentError, match=r"input_shape is \(\).*one dimension or more"):
        models.build("logistic", (), 7)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("resnet", (1, 28, 28), 10), {}, "name is 'resnet'; it must be one of 'logistic', 'linear', 'bounded-linear', 'mlp', "),
        (("mlp", (0,), 10), {}, "input_shape is 0"),
        (("logistic", (4,), 1), {}, "classes is 1; it must be at least 2"),
        (("table", (4,), 2), {"numbers": [4]}, "positions of features, from 0 to 3"),
        (("table", (4,), 2), {"waves": -1}, "waves is -1"),
        (("table", (4,), 2), {"scale": 0.0}, "scale is 0"),
        (("regression-mlp", (4,), 0), {}, "classes is 0; it must be at least 1"),
        (("tanh-cnn", (1, 8, 8), 2), {"width": 0}, "width is 0"),
        (("mlp", (4,), 2), {"width": 0}, "width is 0"),
        (("mlp", (4,), 2), {"activation": "gelu"}, "activation is 'gelu'; it must be one of 'tanh', 'relu'"),
        (("mlp", (4,), 2), {"depth": 3}, "option is 'depth'; it must be one of width, activation for the model 'mlp'"),
        (("logistic", (4,), 2), {"width": 3}, "option is 'width'; it must be left out for the model 'logistic'"),
        (("tanh-cnn", (1, 8, 8), 2), {"pooling": "sum"}, "pooling is 'sum'; it must be one of 'average', 'max'"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        models.build(*arguments, **options)


@pytest.mark.parametrize(
    ("name", "shape", "last"),
    [("cnn", (1, 28, 28), True), ("relu-cnn", (3, 32, 32), True), ("scattering-cnn", (81, 7, 7), False)],
)
def test_maps_of_images_lie_channels_last_and_those_of_features_do_not(name, shape, last):
    maps = models.build(name, shape, 10)[0](torch.rand(2, *shape))
    assert maps.is_contiguous(memory_format=torch.channels_last) == last
    assert maps.is_contiguous() != last
