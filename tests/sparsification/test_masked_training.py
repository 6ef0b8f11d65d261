"""Training with masks, compared with the paper's listings as loops that share no code with the engine."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import one_layer
import privet
from one_layer import Recording, stop_after
from privet.clipping import Automatic, Flat, Unclipped
from privet.errors import InvalidArgumentError
from privet.noise import FixedSource
from privet.sparsification import Random, Ranked
from privet.sparsification.drawing import Selection

N, BATCH, EPOCHS, SIGMA, BOUND, RATE, MOMENTUM = 24, 6, 4, 1.7, 0.6, 0.23, 0.6
KINDS = [Random(0.8, seed=3), Random(0.9, refresh=2), Ranked(0.8), Ranked(0.7, refresh=2)]


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 3)).double()


def data():
    generator = torch.Generator().manual_seed(2)
    return torch.randn(N, 7, generator=generator).double(), torch.randint(3, (N,), generator=generator)


def loss(model, batch):
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


def plan(kind, sigma=SIGMA, source="fixed", clipping=None, steps=EPOCHS * N // BATCH, **options):
    made = {"clipping": clipping or Flat(BOUND), "sparsification": kind}
    return one_layer.plan(BATCH, steps, sigma, source, N, **made, **options)


def training(the_plan, model, directory=None, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    return privet.Training(the_plan, model, loss, optimizer, TensorDataset(*data()), directory, **options)


def parameters(model):
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def listing(kind, sigma, weight, sensitivity=BOUND):
    """Algorithms 1 and 4 (and 2, 3 without clipping or noise): parameters after every step."""
    model, (x, y), source, scheme = network(), data(), FixedSource(), privet.sampling.Poisson(BATCH)
    theta, epoch = list(model.parameters()), N // BATCH
    d = sum(p.numel() for p in theta)
    velocity, total, mask = torch.zeros(d).double(), torch.zeros(d).double(), torch.ones(d).double()
    for t in range(EPOCHS * epoch):
        n, blocks = t // (epoch // kind.refresh), EPOCHS * kind.refresh
        if t % (epoch // kind.refresh) == 0:
            zeros, mask = round(kind.final_rate * n / (blocks - 1) * d), torch.ones(d).double()
            words = np.random.Philox(key=getattr(kind, "seed", 0), counter=[0, 0, 0, n]).random_raw(d)
            order = torch.tensor(np.argsort(words)) if isinstance(kind, Random) else total.abs().argsort()
            mask[order[:zeros]], total = 0, torch.zeros(d).double()
        gradient = torch.zeros(d).double()
        for i in next(scheme.draws(N, source.words)):
            value = F.cross_entropy(model(x[i : i + 1]), y[i : i + 1])
            g = mask * torch.cat([part.flatten() for part in torch.autograd.grad(value, theta)])
            gradient += weight(g.norm()) * g
        where = mask.bool() if isinstance(kind, Random) else torch.ones(d, dtype=torch.bool)
        if sigma:
            gradient[where] += sigma * sensitivity * source.normal(int(where.sum()))
        gradient /= BATCH
        total += gradient
        velocity = MOMENTUM * velocity + mask * gradient  # not masked itself: what was selected before goes on moving
        for p, part in zip(theta, velocity.split([p.numel() for p in theta]), strict=True):
            p.data -= RATE * part.view(p.shape)
        yield parameters(model)


WEIGHTS = {
    Flat(BOUND): lambda norm: min(1.0, BOUND / float(norm)) if norm else 1.0,
    Automatic(BOUND, 0.05): lambda norm: BOUND / (float(norm) + 0.05),
    Unclipped(BOUND, non_private=True): lambda norm: 1.0,
}


@pytest.mark.parametrize(("kind", "rule"), [
    *((kind, Flat(BOUND)) for kind in KINDS), *zip(KINDS[1:3], [*WEIGHTS][1:], strict=True),
], ids=str)  # fmt: skip
def test_every_step_is_that_of_the_papers_listing(kind, rule):
    model = network()
    running = training(plan(kind, SIGMA, clipping=rule), model, physical_batch_size=4)
    for _, expected in zip(running, listing(kind, SIGMA, WEIGHTS[rule]), strict=True):
        torch.testing.assert_close(parameters(model), expected, rtol=1e-5, atol=1e-5)


def watched(kind, physical_batch_size=256, loss_fn=loss, **options):
    model = network()
    optimizer = Recording(model.parameters())
    the_plan = plan(kind, source="secure", **options)
    privet.Training(the_plan, model, loss_fn, optimizer, TensorDataset(*data()), physical_batch_size=physical_batch_size).run()
    return the_plan, {name: p.shape for name, p in model.named_parameters()}, optimizer.seen


@pytest.mark.parametrize(("refresh", "physical_batch_size"), [(1, 256), (2, 1), (3, 3)])
def test_data_and_noise_share_their_support_at_every_step_also_where_an_epoch_is_no_whole_number(refresh, physical_batch_size):
    kind = Random(0.9, refresh, seed=8)
    the_plan, shapes, seen = watched(kind, physical_batch_size, steps=17)
    times, size = the_plan.timetable(), len(seen[0])
    for step, gradient in enumerate(seen, 1):
        selection = kind.selection(times.block(step), times.blocks, size)
        kept = torch.cat([mask.flatten() for mask in selection.masks(shapes).values()])
        assert not gradient[~kept].any()
        assert float((gradient[kept] != 0).double().mean()) > 0.9
    assert selection.zeros == round(0.9 * size)


def test_ranked_noise_is_released_everywhere_and_moves_what_is_kept():
    """Without data, release and movement are noise alone, so neither depends on the gradients."""
    kind, model = Ranked(0.9, 2), network()
    optimizer = Recording(model.parameters())
    running = privet.Training(
        plan(kind, source="secure"), model, lambda model, batch: 0.0 * loss(model, batch), optimizer, TensorDataset(*data()),
        reading=privet.Reading(probe=False),
    )  # fmt: skip
    masks, sums = running._state.masks, []
    apply = masks.apply
    masks.apply = lambda released: sums.append(torch.cat([r.flatten() for r in released.values()])) or apply(released)
    times = running.plan.timetable()
    running.run()
    for step, (gradient, release) in enumerate(zip(optimizer.seen, sums, strict=True), 1):
        zeros = kind.zeros(times.block(step), times.blocks, len(gradient))
        moved = gradient != 0
        assert bool((release != 0).all())
        assert int((~moved).sum()) == zeros
        assert torch.equal(gradient[moved], release[moved])
        if zeros and times.block(step) > times.block(step - 1):
            ranking = sum(sums[s - 1] for s in range(1, step) if times.block(s) == times.block(step) - 1).abs()
            assert float(ranking[~moved].max()) <= float(ranking[moved].min())
    assert zeros == round(0.9 * len(gradient))


@pytest.mark.parametrize(("kind", "stop"), [*zip(KINDS, (1, 8, 8, 1), strict=True)], ids=str)
def test_a_resumed_run_has_the_masks_that_it_would_have_had(kind, stop, tmp_path):
    """Noise is fresh after resuming, so what is compared are the masks for the same releases."""
    the_plan, model = plan(kind, source="secure"), network()
    first = stop_after(training(the_plan, model, privet.Storage(tmp_path / "run", checkpoint_every=1)), stop)
    again = network()
    optimizer = torch.optim.SGD(again.parameters(), lr=RATE, momentum=MOMENTUM)
    second = privet.Training.resume(tmp_path / "run", again, loss, optimizer, TensorDataset(*data()))
    for step in range(second.steps_spent + 1, len(second) + 1, 3):
        one, other = first._state.at(step)[1], second._state.at(step)[1]
        assert (one is None) == (other is None)
        assert one is None or all(torch.equal(one[name], other[name]) for name in one)
    second._state.parts["masks"].load_state_dict(first._state.parts["masks"].state_dict())
    second.run()
    assert second.steps_left == 0


def test_privacy_is_that_of_the_same_plan_without_masks():
    assert plan(KINDS[0], source="secure").epsilon() == plan(None, source="secure").epsilon() < math.inf
    statement = str(plan(KINDS[0], source="secure").guarantee())
    assert "do not improve ε" in statement
    assert "to every coordinate that the step's public mask keeps" in statement
    assert "to every coordinate, and divides" in str(plan(Ranked(0.5), source="secure").guarantee())
    for kind in (*KINDS, None):
        assert privet.Plan.from_json(plan(kind).to_json()) == plan(kind)
    for value in (0.9, "Random", Selection(0, 0, 1), Flat(1.0)):
        with pytest.raises(InvalidArgumentError, match=r"^sparsification is"):
            plan(value)


def test_without_clipping_the_statement_says_that_there_is_no_privacy():
    made = plan(KINDS[0], source="secure", clipping=Unclipped(BOUND, non_private=True))
    assert made.epsilon() == math.inf
    statement = str(made.guarantee())
    assert statement.startswith("NO PRIVACY (ε = ∞): NOTHING IS CLIPPED")
    assert "bounds the contribution" not in statement
    assert "the bound of 0.6 is nominal" in statement
    assert privet.Plan.from_json(made.to_json()) == made
    with pytest.raises(InvalidArgumentError, match="non_private is False"):
        Unclipped(BOUND)
    with pytest.raises(InvalidArgumentError, match="Without one no noise meets a target"):
        plan(None, sigma=None, clipping=Unclipped(BOUND, non_private=True)).calibrate(epsilon=3.0)


def test_without_clipping_a_resumed_run_is_still_without(tmp_path):
    model = network()
    stop_after(training(plan(None, clipping=Unclipped(BOUND, non_private=True)), model, tmp_path / "run"), 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    second = privet.Training.resume(tmp_path / "run", model, loss, optimizer, TensorDataset(*data()))
    second.run()
    assert second.epsilon() == math.inf
