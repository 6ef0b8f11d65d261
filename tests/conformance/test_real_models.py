"""ORACLE and SENS for models from `transformers`, as they are and with forwards that were replaced."""

import copy
import functools
import types

import oracle
import pytest
import torch
from cases import slow_unless
from real_models import REAL_MODELS, next_words
from recording import cover

from privet.clipping import Automatic, Flat
from privet.errors import UnsupportedModelError
from privet.gradients import clipped_sum
from privet.gradients.core.examples import split_batch
from privet.gradients.probe.probe import probe

transformers = pytest.importorskip("transformers", reason="not installed: pip install 'privet[real-models]'")
pytest.importorskip("peft", reason="not installed: pip install 'privet[real-models]'")
pytestmark = pytest.mark.filterwarnings("ignore")
EXAMPLES = 3
# Their layers are those of another: BERT, GPT-2, Llama, Whisper, ViT.
ALIKE = {"RoBERTa", "DistilBERT", "OPT", "GPT-NeoX", "Mistral", "BART", "CLIP's image half"}


@pytest.mark.product
@pytest.mark.parametrize("real", [slow_unless(real.name not in ALIKE, real) for real in REAL_MODELS], ids=str)
def test_gradients_norms_and_sums_are_those_of_plain_autograd(real):
    """All on the physical batch: at most split into groups by length, never by the loop. In float32 the bound holds."""
    model = real.build(transformers)
    check_bound_and_method(real, model)
    model, batch = model.double(), real.batch(EXAMPLES, torch.float64)
    tolerance = 1e-10 if real.exact else 1e-5
    expected = oracle.plain_gradients(model, real.loss, batch)
    wanted = oracle.norms_of(expected)
    covered = cover(model, real.loss, batch, "ghost", rule=Automatic(0.7))
    assert covered.groups <= (EXAMPLES if real.steered else 2)
    assert oracle.relative_error_per_example(covered.gradients, expected) <= tolerance
    assert ((covered.norms - wanted).abs() <= tolerance * wanted).all()
    assert oracle.relative_error(covered.sums, oracle.plain_clipped_sum(expected, "Automatic", 0.7)) <= tolerance


def check_bound_and_method(real, model):
    """No example moves the sum by more than the bound; the probe finds the fastest method."""
    batch, rule = real.batch(EXAMPLES, torch.float32), Flat(1e-3)
    whole = clipped_sum(model, real.loss, batch, rule, method="ghost")
    for position in (0, 1):  # a long sentence and a short one
        rest = clipped_sum(model, real.loss, oracle.without(batch, position), rule, method="ghost")
        assert oracle.moved(whole, rest) <= rule.bound * (1 + 1e-6 + 1e-7 * EXAMPLES)
    assert probe(model, real.loss, [split_batch(batch)], public=True) == "ghost"


GPT2 = next(real for real in REAL_MODELS if real.name == "GPT-2")


def wrapped(model):
    """A function that calls the original one."""
    original = model.forward
    model.forward = lambda *args, **kwargs: original(*args, **kwargs)


def bound(model):
    """A function of another place, bound to the model."""
    original = model.forward

    @functools.wraps(type(model).forward)
    def forward(self, *args, **kwargs):
        return original(*args, **kwargs)

    model.forward = types.MethodType(forward, model)


def accelerates_hooks(model):
    hooks = pytest.importorskip("accelerate.hooks")
    for module in model.modules():
        hooks.add_hook_to_module(module, hooks.AlignDevicesHook(execution_device="cpu", io_same_device=True))


def accelerates_outputs(model):
    model.forward = pytest.importorskip("accelerate.utils").convert_outputs_to_fp32(model.forward)


def trls_head(model):
    pytest.importorskip("trl.trainer.utils").add_fused_lm_head(model)


PATCHES = [wrapped, bound, accelerates_hooks, accelerates_outputs, trls_head]


@pytest.mark.parametrize("patch", PATCHES)
def test_patched_models_are_differentiated_as_the_original(patch):
    model, batch = GPT2.build(transformers), GPT2.batch(3, torch.float32)
    expected = oracle.plain_gradients(GPT2.build(transformers), next_words, batch)
    patch(model)
    assert "forward" in model.__dict__
    assert probe(model, next_words, [split_batch(batch)], public=True) == "ghost"
    covered = cover(model, next_words, batch)
    assert covered.looped == 0
    assert oracle.relative_error_per_example(covered.gradients, expected) <= 1e-4


@pytest.mark.parametrize("patch", [wrapped, bound, trls_head])
def test_a_copy_that_still_runs_the_original_is_refused(patch):
    model, batch = GPT2.build(transformers), GPT2.batch(3, torch.float32)
    patch(model)
    with pytest.raises(UnsupportedModelError, match=r"del module\.forward|depends on no trainable parameter"):
        probe(copy.deepcopy(model), next_words, [split_batch(batch)], public=True)


def test_a_patched_part_of_a_copy_is_refused():
    model, batch = GPT2.build(transformers), GPT2.batch(3, torch.float32)
    wrapped(model.transformer.h[0])
    with pytest.raises(UnsupportedModelError, match=r"requires a gradient and is not a parameter.*del module\.forward"):
        probe(copy.deepcopy(model), next_words, [split_batch(batch)], public=True)
