"""Models whose forward was replaced on the instance, as accelerate and TRL do: trained as they are, and refused as copies."""

from __future__ import annotations

import copy
import functools
import types

import oracle
import pytest
import torch
from real_models import REAL_MODELS, next_words
from recording import cover

from privet.errors import UnsupportedModelError
from privet.gradients.core.examples import split_batch
from privet.gradients.probe.probe import probe

transformers = pytest.importorskip("transformers", reason="not installed: pip install 'privet[real-models]'")
pytestmark = pytest.mark.filterwarnings("ignore")
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
    wrapped(model.transformer.h[1])
    with pytest.raises(UnsupportedModelError, match=r"requires a gradient and is not a parameter.*del module\.forward"):
        probe(copy.deepcopy(model), next_words, [split_batch(batch)], public=True)
