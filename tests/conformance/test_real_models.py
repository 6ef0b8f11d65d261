"""ORACLE and SENS over models from `transformers`, as they come."""

from __future__ import annotations

import oracle
import pytest
import torch
from real_models import REAL_MODELS

from privet.clipping import Automatic, Flat
from privet.gradients import clipped_sum, per_example_gradients, per_example_norms
from privet.gradients.probe import probe

transformers = pytest.importorskip("transformers", reason="not installed: pip install 'privet[real-models]'")
pytest.importorskip("peft", reason="not installed: pip install 'privet[real-models]'")
pytestmark = pytest.mark.filterwarnings("ignore")
EXAMPLES = 3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("real", REAL_MODELS, ids=str)
def test_gradients_norms_and_sums_are_those_of_plain_autograd(real, dtype):
    model, batch = real.build(transformers).to(dtype), real.batch(EXAMPLES, dtype)
    tolerance = 1e-10 if dtype == torch.float64 and real.exact else 1e-5
    expected = oracle.plain_gradients(model, real.loss, batch)
    wanted = oracle.norms_of(expected)
    found = per_example_gradients(model, real.loss, batch, method=real.method)
    assert oracle.relative_error_per_example(found, expected) <= tolerance
    assert ((per_example_norms(model, real.loss, batch, method=real.method) - wanted).abs() <= tolerance * wanted).all()
    for rule in (Flat(float(wanted.median()) / 3), Automatic(0.7)):
        result = clipped_sum(model, real.loss, batch, rule, method=real.method)
        plain = oracle.plain_clipped_sum(expected, type(rule).__name__, rule.bound)
        assert oracle.relative_error(result.tensors, plain) <= tolerance


@pytest.mark.parametrize("real", REAL_MODELS, ids=str)
def test_no_example_moves_the_sum_by_more_than_the_bound(real):
    model, batch = real.build(transformers), real.batch(EXAMPLES, torch.float32)
    rule = Flat(1e-3)
    whole = clipped_sum(model, real.loss, batch, rule, method=real.method)
    for position in range(EXAMPLES):
        rest = clipped_sum(model, real.loss, oracle.without(batch, position), rule, method=real.method)
        assert oracle.distance(whole.tensors, rest.tensors) <= rule.bound * (1 + 1e-6) + 1e-7 * EXAMPLES * rule.bound


@pytest.mark.parametrize("real", REAL_MODELS, ids=str)
def test_the_probe_finds_the_fastest_method_that_is_right(real):
    model = real.build(transformers)
    assert probe(model, real.loss, real.batch(EXAMPLES, torch.float32)) == real.method
