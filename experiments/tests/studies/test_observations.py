"""Observations match their definitions, computed from per-example gradients."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import nn

from privet import per_example_gradients
from privet.clipping import PSAC, Flat, Layerwise, Projected
from privet.errors import InvalidArgumentError
from privet_experiments.studies import Mechanism, observe, read_observations
from privet_experiments.tangent_kernel.batch_clipping import BatchClipping

RULES = [
    Flat(0.4),
    PSAC(0.3, stability=0.05),
    BatchClipping(0.7),
    Projected(Flat(0.4), projections=30),
    Layerwise(Flat(0.5)),
    Layerwise({"0.*": Flat(0.2), "2.*": PSAC(0.4, stability=0.1)}, noise="per group"),
]


def flat(gradients, names=None):
    return torch.cat([gradients[name].flatten(1) for name in names or gradients], dim=1)


def of_definition(model, loss_fn, batch, rule):
    """Return the gradients (B, d), weights (G, B) and clipped gradients (B, d)."""
    gradients = per_example_gradients(model, loss_fn, batch, method="loop")
    groups = rule.groups(tuple(gradients))
    norms = torch.stack([flat(gradients, names).norm(dim=1) for names in groups])
    weights = rule.weights(norms)
    of_name = {name: row for row, names in zip(weights, groups, strict=True) for name in names}
    clipped = {name: of_name[name].view(-1, *[1] * (value.ndim - 1)) * value for name, value in gradients.items()}
    return flat(gradients), weights, flat(clipped)


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_numbers_match_their_definitions(model, loss_fn, batch, rule):
    raw, weights, clipped = of_definition(model, loss_fn, batch, rule)
    found = observe(model, loss_fn, batch, Mechanism(rule), step=3)
    assert found.step == 3
    assert found.norms == pytest.approx(raw.norm(dim=1).tolist(), rel=1e-9)
    assert found.gradient_norm == pytest.approx(float(raw.mean(0).norm()), rel=1e-9)
    assert found.mean_weight == pytest.approx(float(weights.mean()), rel=1e-9)
    assert found.clipped_share == pytest.approx(float((weights < 1).any(0).double().mean()))
    cosine = torch.cosine_similarity(raw.mean(0), clipped.mean(0), dim=0)
    assert found.clipped_similarity == pytest.approx(float(cosine), abs=1e-12)
    assert found.noised_similarity == pytest.approx(found.clipped_similarity)  # there is no noise
    assert set(found.signal_to_noise.values()) == {math.inf}


def test_equal_weights_keep_the_direction_and_unequal_ones_change_it(model, loss_fn, batch):
    assert observe(model, loss_fn, batch, Mechanism(BatchClipping(0.1))).clipped_similarity == pytest.approx(1.0, abs=1e-12)
    assert observe(model, loss_fn, batch, Mechanism(Flat(1e6))).clipped_similarity == pytest.approx(1.0, abs=1e-12)
    assert observe(model, loss_fn, batch, Mechanism(Flat(0.01))).clipped_similarity < 0.999


def test_noise_has_the_deviation_of_the_mechanism(model, loss_fn, batch):
    rule, deviation = Flat(0.4), 0.02
    _, _, clipped = of_definition(model, loss_fn, batch, rule)
    found = observe(model, loss_fn, batch, Mechanism(rule, deviation))
    layer = clipped.mean(0)[:63]  # 6·9 weights and 9 biases
    assert found.signal_to_noise["0"] == pytest.approx(float(layer.norm()) / (deviation * math.sqrt(63)), rel=1e-9)
    # Over many draws, |v·z|/|z| is small against |v|: the cosine falls like the share of the signal in the sum.
    signal, noise = float(clipped.mean(0).norm()), deviation * math.sqrt(clipped.shape[1])
    draws = [observe(model, loss_fn, batch, Mechanism(rule, deviation), seed=seed).noised_similarity for seed in range(40)]
    mean = sum(draws) / len(draws)
    assert mean == pytest.approx(found.clipped_similarity * signal / math.hypot(signal, noise), abs=0.04)


def test_groups_with_their_own_noise_have_their_own_ratio(model, loss_fn, batch):
    rule = Layerwise({"0.*": Flat(0.2), "2.*": Flat(0.4)}, noise="per group")
    scales = rule.noise_scales([name for name, _ in model.named_parameters()])
    equal, own = (
        observe(model, loss_fn, batch, Mechanism(r, 0.01)) for r in (Layerwise({"0.*": Flat(0.2), "2.*": Flat(0.4)}), rule)
    )
    assert scales["0.weight"] != scales["2.weight"]
    for module in ("0", "2"):
        assert own.signal_to_noise[module] == pytest.approx(equal.signal_to_noise[module] / scales[f"{module}.weight"])


def test_non_finite_gradients_count_as_in_training(model, loss_fn, batch):
    broken = (batch[0].clone(), batch[1])
    broken[0][4] = math.inf
    found = observe(model, loss_fn, broken, Mechanism(Flat(0.4)))
    rest = [index for index in range(24) if index != 4]
    alone = observe(model, loss_fn, (batch[0][rest], batch[1][rest]), Mechanism(Flat(0.4)))
    assert not math.isfinite(found.norms[4])
    assert found.gradient_norm == pytest.approx(alone.gradient_norm, rel=1e-9)
    assert found.clipped_similarity == pytest.approx(alone.clipped_similarity, abs=1e-12)


def test_model_and_random_state_are_unchanged(batch, loss_fn):
    model = nn.Sequential(nn.Linear(6, 9), nn.Dropout(0.5), nn.Linear(9, 3)).double()
    state, before = torch.get_rng_state(), {name: value.clone() for name, value in model.state_dict().items()}
    found = [observe(model, loss_fn, batch, Mechanism(Flat(0.4), 0.1)) for _ in range(2)]
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert found[0] == found[1]


def test_every_output_is_marked_as_not_private(model, loss_fn, batch):
    found = observe(model, loss_fn, batch, Mechanism(Flat(0.4), 0.1), step=8)
    assert found.private is False
    for words in (str(found), repr(found), f"{[found]}"):
        assert "NOT PRIVATE: computed from raw gradients" in words
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["private"] is False
    assert read_observations({"observations": [plain]}) == (found,)


def test_empty_batches_and_bad_mechanisms_are_refused(model, loss_fn, batch):
    with pytest.raises(InvalidArgumentError, match="at least one example"):
        observe(model, loss_fn, (batch[0][:0], batch[1][:0]), Mechanism(Flat(0.4)))
    with pytest.raises(InvalidArgumentError, match="deviation"):
        Mechanism(Flat(0.4), -0.1)
    with pytest.raises(InvalidArgumentError, match="rule"):
        Mechanism(0.4)
