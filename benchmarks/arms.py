"""Ways to take one step: plain, Privet with and without noise, and Opacus where it is installed."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import numpy as np
import torch
import torch._dynamo  # optimizers and tapes import it on first use: code, not a step's memory
from torch.utils.data import TensorDataset

from benchmarks.models import Case, losses
from privet.clipping import Flat, Layerwise, Rule
from privet.gradients import per_example_norms, trainable
from privet.gradients.core.examples import Examples
from privet.gradients.core.randomness import make_seed_source
from privet.gradients.engine import Clipper, Engine, tapes
from privet.gradients.projection.clipping import estimate_norms
from privet.gradients.projection.directions import Directions
from privet.noise import SecureSource, Token, release
from privet.noise.past import PastNoise
from privet.reading.rows import ExampleReader

Step = Callable[[], object]
torch.func.vmap(torch.sin)(torch.zeros(1))  # imports code on first use, too
BOUND, MULTIPLIER, RATE = 0.7, 1.1, 0.01


def plain(case: Case) -> Step:
    model, batch = case.build(), case.batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step() -> None:
        optimizer.zero_grad()
        losses(model, batch).mean().backward()
        optimizer.step()

    return step


def privet(
    case: Case,
    source: SecureSource | None,
    rule: Rule = Flat(BOUND),  # noqa: B008
    method: str = "ghost",
    past: PastNoise | None = None,
) -> Step:
    """Return a private step: without noise if there is no source, with correlated noise if past noise is given.

    Like `Training` and Opacus' wrappers, it prepares the model once; `clipped_sum` does so in every call.
    """
    model, examples = case.build(), read(case)
    engine = Engine(model, losses, trainable(model), method, seeds=make_seed_source(SecureSource().words))
    clipper = Clipper.of(engine.parameters, rule)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    numbers = itertools.count(1)

    def step() -> None:
        optimizer.zero_grad()
        clipped = engine.clipped_sum(examples, clipper).to_clipped_sum(examples.count)
        if source:
            token = Token(next(numbers), MULTIPLIER)
            tensors = release(clipped, token, source, examples.count, past, reuse=True).tensors
        else:
            tensors = {name: tensor.div_(examples.count) for name, tensor in clipped.tensors.items()}
        for name, parameter in model.named_parameters():
            parameter.grad = tensors[name]
        optimizer.step()

    return step


def read(case: Case) -> Examples:
    """Return the case's batch as `Training` reads it from a `TensorDataset`."""
    data = TensorDataset(*case.batch())
    (group,) = ExampleReader(data).read(np.arange(len(data)))
    return group.examples


def with_noise(case: Case) -> Step:
    """Return a step as in `Training`: noise is drawn ahead from the first step on, so the step's memory includes it."""
    source = SecureSource()
    step, size = privet(case, source), case.size
    begin = functools.cache(lambda: source.draw_ahead(size))

    def prepared() -> None:
        begin()
        step()

    return prepared


def opacus(case: Case, mode: str) -> Step:
    from opacus import PrivacyEngine

    model, (x, y) = case.build(), case.batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=len(y))
    parts = PrivacyEngine().make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=MULTIPLIER, max_grad_norm=BOUND,
        poisson_sampling=False, grad_sample_mode=mode, criterion=torch.nn.CrossEntropyLoss(),
    )  # fmt: skip
    private, wrapped = parts[0], parts[1]
    criterion = parts[2] if len(parts) == 4 else torch.nn.CrossEntropyLoss()

    def step() -> None:
        wrapped.zero_grad()
        criterion(private(x), y).backward()
        wrapped.step()

    return step


def norms(case: Case, projections: int | None) -> Step:
    """Return a function that measures every example's norm once, exactly or from random projections, and nothing else."""
    model, batch = case.build(), case.batch()
    if projections is None:
        return lambda: per_example_norms(model, losses, batch, method="ghost")
    parameters = trainable(model)
    return lambda: [estimate_norms(tape, projections, Directions()) for _, tape in tapes(model, losses, batch, parameters)]


ARMS: dict[str, Callable[[Case], Step]] = {
    "plain": plain,
    "privet, no noise": lambda case: privet(case, None),
    "privet, secure noise": with_noise,
    "privet, many groups": lambda case: privet(case, None, Layerwise(Flat(BOUND), by="parameter")),
    "opacus hooks": lambda case: opacus(case, "hooks"),
    "opacus functorch": lambda case: opacus(case, "functorch"),
    "opacus ghost": lambda case: opacus(case, "ghost"),
}
NORM_ARMS: dict[str, Callable[[Case], Step]] = {
    "exact": lambda case: norms(case, None),
    "r = 1": lambda case: norms(case, 1),
    "r = 10": lambda case: norms(case, 10),
    "r = 30": lambda case: norms(case, 30),
}
