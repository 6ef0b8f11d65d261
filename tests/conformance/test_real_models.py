"""ORACLE and SENS for unmodified models from `transformers`."""

from __future__ import annotations

import oracle
import pytest
import torch
from real_models import REAL_MODELS
from recording import cover

from privet.clipping import Automatic, Flat
from privet.gradients import clipped_sum
from privet.gradients.core.examples import split_batch
from privet.gradients.probe.probe import probe

transformers = pytest.importorskip("transformers", reason="not installed: pip install 'privet[real-models]'")
pytest.importorskip("peft", reason="not installed: pip install 'privet[real-models]'")
pytestmark = pytest.mark.filterwarnings("ignore")
EXAMPLES = 3


@pytest.mark.parametrize("real", REAL_MODELS, ids=str)
def test_gradients_norms_and_sums_are_those_of_plain_autograd(real):
    """All on the physical batch: at most split into groups by length, never by the loop. In float32 the bound holds."""
    model = real.build(transformers)
    check_bound_and_method(real, model)
    model, batch = model.double(), real.batch(EXAMPLES, torch.float64)
    tolerance = 1e-10 if real.exact else 1e-5
    expected = oracle.plain_gradients(model, real.loss, batch)
    wanted = oracle.norms_of(expected)
    covered = cover(model, real.loss, batch)
    assert covered.looped == 0
    assert covered.groups <= (EXAMPLES if real.steered else 2)
    assert oracle.relative_error_per_example(covered.gradients, expected) <= tolerance
    assert ((covered.norms - wanted).abs() <= tolerance * wanted).all()
    for rule in (Flat(float(wanted.median()) / 3), Automatic(0.7)):
        result = clipped_sum(model, real.loss, batch, rule, method="ghost")
        plain = oracle.plain_clipped_sum(expected, type(rule).__name__, rule.bound)
        assert oracle.relative_error(result.tensors, plain) <= tolerance


def check_bound_and_method(real, model):
    """No example moves the sum by more than the bound; the probe finds the fastest method."""
    batch, rule = real.batch(EXAMPLES, torch.float32), Flat(1e-3)
    whole = clipped_sum(model, real.loss, batch, rule, method="ghost")
    for position in range(EXAMPLES):
        rest = clipped_sum(model, real.loss, oracle.without(batch, position), rule, method="ghost")
        assert oracle.distance(whole.tensors, rest.tensors) <= rule.bound * (1 + 1e-6) + 1e-7 * EXAMPLES * rule.bound
    assert probe(model, real.loss, [split_batch(batch)], public=True) == "ghost"
