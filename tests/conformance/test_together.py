"""Units × views × masks × past parameters × styles combined: ORACLE, SENS, and refusals."""

from itertools import cycle, product

import oracle
import pytest
import torch
from test_sensitivity import STYLES, every, masks_for
from test_units import COMBINED, scaled, units_of
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch.utils.data import TensorDataset

import privet
from privet.clipping import NORM_RULES, PSASC, AdaptiveQuantile, Flat, Layerwise, Projected
from privet.errors import InvalidArgumentError
from privet.gradients import clipped_sum
from privet.units import Groups, Users, averaged, grouped
from privet.units.augmentations import augmentation

PAST, FACTORS, SLACK = (0.6, -0.3), (1.0, -0.4), 1 + 1e-6


def changed(case, by):
    """Return the model with other values of its parameters."""
    model = case.model(torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + by)
    return model


def viewed(loss_fn):
    """Return the mean over two views of each example; every parameter set sees the same views in the same order."""
    calls = cycle(FACTORS)
    return averaged(loss_fn, lambda batch: scaled(batch, next(calls)), len(FACTORS))


def inner_momentum_of_units(case, model, units, masks):
    """Return name → (B, *shape), m∘(Σ over parameter sets of the mean over a unit's examples and their views), by a loop."""
    (content, _), numbers = units
    sets, found = [(1.0, model), *((c, changed(case, c)) for c in PAST)], {}
    for unit, number in enumerate(numbers):
        own = pytree.tree_map(lambda leaf: leaf[unit, :number], content)  # noqa: B023
        for (c, at), factor in product(sets, FACTORS):
            for name, value in oracle.plain_gradients(at, case.loss, scaled(own, factor)).items():
                found.setdefault(name, torch.zeros(len(numbers), *value.shape[1:]).double())
                found[name][unit] += c * value.sum(0) * masks[name] / (number * len(FACTORS))
    return found


@pytest.mark.product
@pytest.mark.parametrize(("case", "method"), [*((case, "ghost") for case in COMBINED), (COMBINED[0], "loop")], ids=str)
def test_units_of_views_at_past_parameters_under_masks(case, method):
    """The loop's gradients are clipped; removing any unit changes the sum by at most the sensitivity. Models share the styles."""
    model, units, number = case.model(torch.float64), units_of(case), COMBINED.index(case)
    masks, names = masks_for(model, 0.4), [name for name, _ in model.named_parameters()]
    past = [(c, {name: p.detach() for name, p in changed(case, c).named_parameters()}) for c in PAST]
    expected = inner_momentum_of_units(case, model, units, masks)

    def summed(rule, batch):
        return clipped_sum(model, grouped(viewed(case.loss)), batch, rule, method=method, masks=masks, past=past)

    for kind in every(3, NORM_RULES, number):
        found = summed(NORM_RULES[kind](bound=0.05), units[0])
        assert oracle.relative_error(found.tensors, oracle.plain_clipped_sum(expected, kind, 0.05)) <= 1e-8
    for style in every(5, STYLES.values(), number):
        rule = style(PSASC(0.05), names)
        whole = summed(rule, units[0])
        assert whole.sensitivity == rule.sensitivity
        assert all(not whole.tensors[name][~mask].any() for name, mask in masks.items())
        for unit in range(len(units[1])):
            assert oracle.moved(whole, summed(rule, oracle.without(units[0], unit))) <= rule.sensitivity * SLACK


N = 24
RULES = {
    "flat": Flat(0.3),
    "module": Layerwise(PSASC(0.3), by="module"),
    "own noise": Layerwise((Flat(0.3), Flat(0.1), Flat(0.2), Flat(0.1)), by="parameter", noise="per group"),
    "adaptive": AdaptiveQuantile(Layerwise(PSASC(0.3), by="parameter")),
    "projected": Projected(Flat(0.3), projections=10),
}
MASKS = {"no masks": None, "random": privet.sparsification.Random(0.6, refresh=2), "ranked": privet.sparsification.Ranked(0.6)}
MOMENTA = {
    "no momentum": None,
    "inner and outer": privet.momentum.InnerOuter(0.8, 0.3, 2),
    "per example": privet.momentum.PerExample(0.4),
}
UNITS = {
    "examples": lambda data: data,
    "users": lambda data: Users(data, [number % 8 for number in range(N)], cap=2),
    "groups": lambda data: Groups(data, 3),
}


def refused(rule, masks, momentum):
    """Return the unsupported argument that the refusal names, or None."""
    if rule == "projected" and momentum == "per example":
        return "clipping"
    if rule == "projected" and masks != "no masks":
        return "sparsification"
    return None


# All pairs.
COMBINATIONS = [
    (rule, list(MASKS)[(r + u) % 3], list(MOMENTA)[(r + 2 * u) % 3], units)
    for (r, rule), (u, units) in product(enumerate(RULES), enumerate(UNITS))
]


@pytest.mark.product
@pytest.mark.parametrize(("rule", "masks", "momentum", "units"), COMBINATIONS)
def test_every_combination_trains_or_is_refused_by_name(rule, masks, momentum, units):
    """Two views of every example throughout; plans come back from their JSON."""
    dataset = UNITS[units](TensorDataset(torch.randn(N, 1, 8, 8), torch.randint(3, (N,))))

    def make():
        return privet.Plan(
            examples=len(dataset), sampling=privet.sampling.FullBatch(), steps=3, clipping=RULES[rule], delta=1e-3,
            noise=privet.noise.Gaussian(1.4), sparsification=MASKS[masks], momentum=MOMENTA[momentum],
            adjacency="replace-one" if units == "groups" else "add-remove",
            unit=getattr(dataset, "privacy_unit", "one example"),
        )  # fmt: skip

    if name := refused(rule, masks, momentum):
        with pytest.raises(InvalidArgumentError, match=f"^{name} is"):
            make()
        return
    plan = make()
    assert privet.Plan.from_json(plan.to_json()) == plan
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Flatten(), nn.Linear(72, 3))
    loss = averaged(lambda m, batch: F.cross_entropy(m(batch[0]), batch[1], reduction="none"), augmentation("flip", "shift"), 2)
    loss = loss if units == "examples" else grouped(loss)
    training = privet.Training(plan, model, loss, torch.optim.SGD(model.parameters(), lr=0.1), dataset, physical_batch_size=5)
    assert training.method == "ghost"
    training.run()
    assert all(parameter.isfinite().all() for parameter in model.parameters())
