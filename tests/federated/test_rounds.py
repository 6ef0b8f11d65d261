import math
from dataclasses import replace

import pytest
import torch

from privet.clipping import PSAC, AdaptiveQuantile, Automatic, Flat, Global, Layerwise, Normalize
from privet.federated import Round
from privet.federated.rounds import contribution, no_contributions
from privet.sparsification.drawing import Selection
from rounding import assert_equal_up_to_rounding

PARAMETERS = {"a.weight": torch.zeros(5, 3), "a.bias": torch.zeros(5), "b.weight": torch.zeros(2, 5)}
SHAPES = {name: tuple(tensor.shape) for name, tensor in PARAMETERS.items()}
RULES = {
    "flat": Flat(0.3),
    "automatic": Automatic(bound=2.5),
    "normalize": Normalize(0.7),
    "global": Global(bound=0.4, cutoff=3.0),
    "psac": PSAC(1.7),
    "layerwise": Layerwise(Flat(0.6)),
    "layerwise, unequal noise": Layerwise({r"a\..*": Flat(0.2), r"b\..*": Flat(2.0)}, noise="per group"),
    "adaptive": AdaptiveQuantile(Flat(0.8), share=0.2),
    "adaptive layerwise": AdaptiveQuantile(Layerwise(Flat(3.0)), share=0.1),
}
# How much of the sensitivity these lengths of updates attain, where it is not nearly all.
LEAST = {"psac": 0.2, "global": 0.1}
# Masks that are drawn travel as three numbers; those of a ranking as they are, here with one tensor left out as a whole.
RANKED = {
    "a.weight": torch.arange(15).view(5, 3) % 4 == 0, "a.bias": torch.zeros(5, dtype=torch.bool),
    "b.weight": torch.ones(2, 5, dtype=torch.bool),
}  # fmt: skip
MASKS = {"dense": None, "sparse": Selection(seed=5, block=2, zeros=20), "ranked": RANKED}


def round_of(rule, masks="dense"):
    kind = MASKS[masks]
    if isinstance(kind, Selection):
        return Round(3, PARAMETERS, RULES[rule], kind.masks(SHAPES), kind)
    return Round(3, PARAMETERS, RULES[rule], kind)


def deltas_of(clients, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return {name: scale * torch.randn(clients, *shape, generator=generator) for name, shape in SHAPES.items()}


def distance(one, other):
    """How far apart two sums are, in the norm that the noise is scaled to."""
    return math.hypot(*(
        float((tensor - other.tensors[name]).double().norm()) / one.noise_scales.get(name, 1.0)
        for name, tensor in one.tensors.items()
    ))  # fmt: skip


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("rule", RULES)
def test_no_client_moves_the_sum_further_than_the_sensitivity(rule, masks):
    told, moved = round_of(rule, masks), []
    for scale in (1e-3, 0.2, 0.5, 3.0, 1e6, 1e20, math.inf, math.nan):
        deltas = deltas_of(4)
        for tensor in deltas.values():
            tensor[2] *= scale
        without = contribution({name: tensor[[0, 1, 3]] for name, tensor in deltas.items()}, told)
        moved.append(distance(contribution(deltas, told), without))
    assert all(found <= told.rule.sensitivity * (1 + 1e-6) for found in moved), moved
    # The bound is attained: neither the rule nor its noise scales are looser than they need to be.
    assert max(moved) > LEAST.get(rule, 0.95) * told.rule.sensitivity


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("rule", RULES)
def test_clients_contribute_alone_what_they_contribute_together(rule, masks):
    told, deltas = round_of(rule, masks), deltas_of(5)
    total = no_contributions(told)
    for client in range(5):
        total = total.join(contribution({n: t[client : client + 1] for n, t in deltas.items()}, told, start=client))
    assert distance(total, contribution(deltas, told)) < 1e-5
    for name, mask in (told.masks or {}).items():
        assert not total.tensors[name][~mask].any()


def test_weights_scale_clipped_updates_and_are_at_most_one():
    told, deltas = round_of("flat"), deltas_of(1, scale=100.0)
    full = contribution(deltas, told).tensors["b.weight"]
    for weight, expected in ((0.25, 0.25), (1.0, 1.0), (8.0, 1.0), (-1.0, 0.0), (math.nan, 0.0)):
        found = contribution(deltas, told, [weight]).tensors["b.weight"]
        assert_equal_up_to_rounding(found, expected * full)


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("weight", [0.0, 0.25, 7.0])
def test_a_client_of_weight_w_moves_the_updates_by_at_most_w_times_the_sensitivity(rule, masks, weight):
    told, moved = round_of(rule, masks), []
    for scale in (1e-3, 0.5, 3.0, 1e6, 1e20):
        deltas = deltas_of(3)
        for tensor in deltas.values():
            tensor[1] *= scale
        whole = contribution(deltas, told, [1.0, weight, 0.3])
        without = contribution({name: tensor[[0, 2]] for name, tensor in deltas.items()}, told, [1.0, 0.3])
        moved.append(distance(*(replace(each, tensors={n: each.tensors[n] for n in SHAPES}) for each in (whole, without))))
    assert max(moved) <= min(weight, 1.0) * told.rule.sensitivity * (1 + 1e-6) + 1e-7
    assert max(moved) >= 0.9 * LEAST.get(rule, 0.9) * min(weight, 1.0) * told.rule.sensitivity


def test_statistics_are_not_weighted():
    told, deltas = round_of("adaptive"), deltas_of(3)
    one, other = (contribution(deltas, told, weights).tensors for weights in (None, [0.1, 0.0, 0.5]))
    statistics = [name for name in one if ":" in name]
    assert statistics
    assert all(torch.equal(one[name], other[name]) for name in statistics)


@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("rule", RULES)
def test_no_clients_contribute_zeros(rule, masks):
    found = no_contributions(round_of(rule, masks))
    assert all(not tensor.any() for tensor in found.tensors.values())
    assert found.sensitivity == RULES[rule].sensitivity
    assert (found.part.start, found.part.stop) == (0, 0)
