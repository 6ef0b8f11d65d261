"""The reference for every method: the library's plain loop, and an independent implementation of its rules."""

import copy
import functools

import cases
import torch
from torch.utils import _pytree as pytree

from privet.audit._program.oracle import SHRINK, distance, norms_of, size
from privet.audit._program.program import cast
from privet.gradients.core.examples import count_examples, select_examples
from privet.gradients.core.losses import check_losses

EXAMPLES = cases.COINCIDENCE


class Reference:
    """A model, a batch, and the gradients of its examples by plain autograd."""

    def __init__(self, case, dtype, scale):
        self.case, self.dtype, self.model = case, dtype, case.model(dtype)
        self.batch = tuple(x * scale if x.is_floating_point() else x for x in case.batch(EXAMPLES, dtype))
        self.expected = plain_gradients(self.model, case.loss, self.batch)

    def first(self):
        """Return the same for the first example alone."""
        alone = copy.copy(self)
        alone.batch, alone.expected = (select(each, slice(0, 1)) for each in (self.batch, self.expected))
        return alone


@functools.cache
def reference(case, dtype, scale=1.0):
    """Return what a case is compared with, made once for all tests: nothing in it may be changed."""
    return Reference(case, dtype, scale)


def without(batch, position):
    """Return the neighbouring batch without one example."""
    kept = [i for i in range(count_examples(batch)) if i != position]
    return select_examples(batch, torch.tensor(kept, dtype=torch.int64))


def plain_gradients(model, loss_fn, batch):
    """Return per-example gradients, name → (B, *shape) float64, by a loop that shares no code with the tested methods."""
    model, batch = copy.deepcopy(model).double(), cast(batch, torch.float64)
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    found = {name: [] for name in named}
    for position in range(count_examples(batch)):
        loss = check_losses(loss_fn(model, select_examples(batch, slice(position, position + 1))), 1).sum()
        unused = [None] * len(named)
        grads = torch.autograd.grad(loss, list(named.values()), allow_unused=True) if loss.requires_grad else unused
        for (name, parameter), value in zip(named.items(), grads, strict=True):
            found[name].append(torch.zeros_like(parameter) if value is None else value)
    return {name: torch.stack(values).detach() for name, values in found.items()}


def moved(one, other):
    """Return the distance of two sums, with each tensor and statistic divided by its noise scale."""
    assert one.noise_scales == other.noise_scales
    scaled = [{name: t.double() / made.noise_scales.get(name, 1.0) for name, t in made.tensors.items()} for made in (one, other)]
    return distance(*scaled)


def relative_error(found, expected):
    """Return the distance relative to the norm over all parameters, which also works for parameters with zero gradient."""
    return distance(found, expected) / (size(expected) or 1.0)


def relative_error_per_example(found, expected):
    """Return the largest relative error of an example; its gradient must not vanish, as that of a saturated loss does."""
    sizes = norms_of(expected)
    assert sizes.any()
    assert {name: value.shape for name, value in found.items()} == {name: value.shape for name, value in expected.items()}
    differences = norms_of({name: found[name].double() - value for name, value in expected.items()})
    return float((differences / sizes.where(sizes > 0, 1.0)).max())


def select(batch, index):
    return pytree.tree_map(lambda leaf: leaf[index], batch)


# Independent implementation of the rules with their usual settings: weights by norm n and bound c, and sensitivity over c.
FORMULAS = {
    "Flat": (lambda n, c: torch.clamp(c / n, max=1.0), 1.0),
    "Automatic": (lambda n, c: c / (n + 0.01), 1.0),
    "Normalize": (lambda n, c: torch.where(n < 1e-12, 0.0, c / n), 1.0),
    "PSAC": (lambda n, c: c / (n + 1e-4 / (n + 1e-4)), 1.0),
    "PSASC": (lambda n, c: c / (0.9 * n + 1e-4 / (n + 1e-4)), 1 / 0.9),
    "Global": (lambda n, c: (n <= c).double(), 1.0),
}


def plain_clipped_sum(gradients, kind, bound, groups=None):
    """Return the clipped sum, with each group of parameters clipped separately; one group by default."""
    groups = groups or [list(gradients)]
    weight, _ = FORMULAS[kind]
    found = {}
    for group in groups:
        weights = weight(norms_of({name: gradients[name] for name in group}), bound / len(groups) ** 0.5)
        found |= {name: SHRINK * torch.einsum("b,b...->...", weights, gradients[name]) for name in group}
    return found
