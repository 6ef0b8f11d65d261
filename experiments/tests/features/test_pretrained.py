"""Features and trainable parts of pretrained networks; with cached weights, which are never fetched here."""

from dataclasses import replace

import pytest
import torch
from torch.utils.data import TensorDataset

from privet import models
from privet._utils.files import cache_directory
from privet.clipping import Flat
from privet.data import DataSet
from privet.errors import InvalidArgumentError, PrivetError
from privet.gradients import clipped_sum
from privet.models.pretrained import minilm
from privet.runs.config import Setup
from privet.runs.tasks import cross_entropy
from privet_experiments.data_sets.text_set import encode
from privet_experiments.features import EXTRACTORS, efficientnet
from privet_experiments.features.minilm import last_layer

# Before any test has a cache of its own.
CACHE = cache_directory()
IMAGES = DataSet(
    "images", TensorDataset(torch.rand(4, 3, 32, 32) * 2 - 1, torch.tensor([0, 1, 2, 1])), None, 3, "", pixel_range=(-1.0, 1.0)
)
SENTENCES = ["a lovely film", "a wonderful movie", "the stock market fell"]
TEXTS = DataSet("texts", TensorDataset(torch.from_numpy(encode(SENTENCES, 40).copy()), torch.tensor([1, 1, 0])), None, 2, "")


@pytest.fixture
def here(monkeypatch):
    """Use the weights and packages on this machine, or skip the test."""
    monkeypatch.setenv("PRIVET_CACHE", str(CACHE))
    for module in (efficientnet, minilm):
        monkeypatch.setattr(module, "WEIGHTS", replace(module.WEIGHTS, requirement=""))

    def needed(prepare):
        try:
            return prepare()
        except PrivetError as error:
            pytest.skip(str(error).splitlines()[0])

    return needed


def test_the_trainable_block_matches_the_end_of_the_network(here):
    before = here(lambda: EXTRACTORS["efficientnet before its last block"].prepared(IMAGES))
    pooled = EXTRACTORS["efficientnet"].prepared(IMAGES)
    inputs = IMAGES.train.tensors[0]
    with torch.no_grad():
        states = before(inputs)
        assert states.shape[1:] == efficientnet.LAST_BLOCK_INPUT
        torch.testing.assert_close(efficientnet.last_block()(states), pooled(inputs), rtol=1e-4, atol=1e-4)


def test_a_grey_image_is_converted_to_colour_at_any_scale(here):
    grey = torch.rand(2, 1, 28, 28)
    sets = [
        DataSet("grey", TensorDataset(low + (high - low) * grey.expand(-1, channels, -1, -1), torch.zeros(2)), None, 2, "",
                pixel_range=(low, high))
        for low, high, channels in ((0.0, 1.0, 1), (-0.4, 2.8, 3))
    ]  # fmt: skip
    one, other = (here(lambda data=data: EXTRACTORS["efficientnet"].prepared(data)) for data in sets)
    with torch.no_grad():
        torch.testing.assert_close(
            one(sets[0].train.tensors[0]), other(sets[1].train.tensors[0]), rtol=1e-3, atol=1e-3
        )  # fmt: skip


def test_sentences_of_the_same_meaning_are_close_and_padding_does_not_count(here):
    with torch.no_grad():
        vectors = here(lambda: EXTRACTORS["minilm"].prepared(TEXTS))(TEXTS.train.tensors[0])
    near, far = (torch.cosine_similarity(vectors[0], other, dim=0) for other in vectors[1:])
    assert near > 0.6 > 0.3 > far


def test_the_trainable_layer_matches_the_end_of_the_encoder(here):
    before = here(lambda: EXTRACTORS["minilm before its last layer"].prepared(TEXTS))
    whole = EXTRACTORS["minilm"].prepared(TEXTS)
    inputs = TEXTS.train.tensors[0]
    with torch.no_grad():
        states = before(inputs)
        assert (states.dtype, states.shape[1:]) == (torch.float16, (minilm.LENGTH, minilm.WIDTH))
        torch.testing.assert_close(last_layer()(states), whole(inputs), rtol=1e-2, atol=2e-3)
        assert last_layer()(torch.zeros_like(states)).isfinite().all()


@pytest.mark.parametrize("features", ["minilm tokens", "minilm before its last layer"])
def test_sentences_are_trimmed_to_the_longest(here, features):
    inputs = here(lambda: EXTRACTORS[features].prepared(TEXTS)(TEXTS.train.tensors[0]))
    lengths = EXTRACTORS[features].lengths(inputs)
    assert lengths.tolist() == [len(sentence.split()) + 2 for sentence in SENTENCES]
    model, encoder = _sentence_model(features)
    places = []
    encoder.register_forward_pre_hook(
        lambda _, args, named: places.append((args[0] if args else named["input_ids"]).shape[1]), with_kwargs=True
    )
    with torch.no_grad():
        alone, together = torch.cat([model(row[None]) for row in inputs]), model(inputs)
    assert places == [*lengths, max(lengths)]
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-5)


def _sentence_model(features):
    if features == "minilm tokens":
        model = minilm.pretrained()
        return model, model.encoder
    model = last_layer()
    return model, model.layer


@pytest.mark.parametrize(("name", "features", "trained"), [
    ("minilm-last-layer", "minilm before its last layer", ("output.", "encoder.layer.")),
    ("minilm-lora", "minilm tokens", ("output.", "lora_")),
])  # fmt: skip
def test_only_the_trainable_part_is_trained_and_every_example_is_clipped(here, name, features, trained):
    inputs = here(lambda: EXTRACTORS[features].prepared(TEXTS)(TEXTS.train.tensors[0]))
    model = here(lambda: models.build(name, tuple(inputs.shape[1:]), 2))
    named = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert all(any(word in one for word in trained) for one in named)
    assert not any(module.training for module in model.encoder.modules())
    found = clipped_sum(model, cross_entropy, (inputs, TEXTS.train.tensors[1]), Flat(1e-3))
    length = sum(float(value.square().sum()) for value in found.tensors.values()) ** 0.5
    assert 0 < length <= 3e-3 * 1.001


@pytest.mark.parametrize(("features", "data", "message"), [
    ("efficientnet", replace(IMAGES, pixel_range=None), "images of a known scale"),
    ("efficientnet", TEXTS, "images of a known scale"),
    ("minilm", IMAGES, "a set of texts"),
    ("minilm tokens", replace(TEXTS, train=TensorDataset(torch.rand(2, 5), torch.zeros(2))), "a set of texts"),
])  # fmt: skip
def test_unsupported_inputs_are_refused_before_weights_are_loaded(features, data, message):
    with pytest.raises(InvalidArgumentError, match=message):
        EXTRACTORS[features].prepared(data)


def test_texts_are_refused_for_numeric_models():
    with pytest.raises(InvalidArgumentError, match="data is 'texts'; it must be a data set with numeric inputs"):
        Setup("texts", "mlp", 0.1).build_model(TEXTS)


def test_an_unsuitable_shape_is_refused_with_the_expected_one():
    with pytest.raises(InvalidArgumentError, match=r"\(192, 3, 3\) for the model 'efficientnet-last-block'"):
        models.build("efficientnet-last-block", (1, 28, 28), 10)
