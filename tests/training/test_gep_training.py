import itertools
import json
import math
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import privet
from one_layer import Recording, stop_after
from privet.clipping import GEP, Flat
from privet.errors import InvalidArgumentError, LedgerError
from privet.noise import Gaussian
from privet.sparsification import Random

EXAMPLES, BATCH, STEPS, RATE, ANCHORS = 40, 13.0, 6, 0.35, 9
INNER, OUTER, SHARE = 0.5, 0.2, 0.3


def network():
    torch.manual_seed(4)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def squared_error(model, batch):
    return (model(batch[0])[:, 0] - batch[1]).square()


def data(seed=9, number=EXAMPLES):
    generator = torch.Generator().manual_seed(seed)
    return 2 * torch.randn(number, 3, generator=generator).double(), torch.randn(number, generator=generator).double()


PUBLIC = TensorDataset(*data(11, ANCHORS))


def plan(residual=True, sigma=0.7, source="fixed", **options):
    clipping = GEP(
        Flat(INNER), Flat(OUTER) if residual else None, dimensions=6, anchors=ANCHORS, public="made-up points", share=SHARE,
        iterations=2,
    )  # fmt: skip
    return privet.Plan(
        examples=EXAMPLES, sampling=privet.sampling.Poisson(BATCH), steps=STEPS, clipping=clipping, delta=1e-5,
        noise=Gaussian(sigma, source=source, non_private=sigma == 0), **options,
    )  # fmt: skip


def training(the_plan, net, directory=None, **options):
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    settings = {"physical_batch_size": 5, "public": PUBLIC, **options}
    return privet.Training(the_plan, net, squared_error, optimizer, TensorDataset(*data()), directory, **settings)


def gradient(net, rows):
    loss = squared_error(net, rows)[0]
    found = [g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))]
    return [torch.cat(found[:2]), torch.cat(found[2:])]


def bases_of(net, ranks, iterations, generator, masks):
    """Algorithm 2: the public gradients of each module, and the subspaces that power iteration finds in them."""
    torch.randperm(ANCHORS, generator=generator)
    rows = [gradient(net, tuple(x[i : i + 1] for x in PUBLIC.tensors)) for i in range(ANCHORS)]
    anchors = [torch.stack([row[number] for row in rows]) * masks[number] for number in (0, 1)]
    bases = [torch.randn(g.shape[1], k, generator=generator).double() for g, k in zip(anchors, ranks, strict=True)]
    for _ in range(iterations):
        bases = [torch.linalg.qr(g.t() @ (g @ basis))[0] for g, basis in zip(anchors, bases, strict=True)]
    return bases


def by_hand(net, the_plan, masks_at):
    """Algorithm 1 of the paper, with the noise of a part that has the given share of the budget."""
    source, sigma, x = the_plan.noise.make_source(), the_plan.noise_multiplier, data()
    rule, sizes = the_plan.clipping, [16, 5]
    ranks = rule.ranks(sizes)
    for step in range(STEPS):
        masks = masks_at(step)
        generator = torch.Generator().manual_seed(step)
        bases = bases_of(net, ranks, rule.iterations, generator, masks)
        inside, outside = [torch.zeros(k).double() for k in ranks], [torch.zeros(p).double() for p in sizes]
        for i in next(the_plan.sampling.draws(EXAMPLES, source.words)).tolist():
            g = [part * mask for part, mask in zip(gradient(net, tuple(v[i : i + 1] for v in x)), masks, strict=True)]
            e = [basis.t() @ part for basis, part in zip(bases, g, strict=True)]
            r = [part - basis @ own for basis, part, own in zip(bases, g, e, strict=True)]
            for total, own, bound in ((inside, e, INNER), (outside, r, OUTER)):
                weight = min(1.0, bound / float(torch.cat(own).norm()))
                for one, part in zip(total, own, strict=True):
                    one += weight * part
        share = SHARE if rule.residual is not None else 1.0
        where = [mask.bool() for mask in masks]
        drawn = source.normal(sum(ranks) + (sum(int(w.sum()) for w in where) if rule.residual is not None else 0))
        if sigma:
            for one in inside:
                one += sigma * INNER / math.sqrt(share) * drawn[: len(one)]
                drawn = drawn[len(one) :]
        if rule.residual is None:
            outside = [torch.zeros(p).double() for p in sizes]
        elif sigma:
            for one, kept in zip(outside, where, strict=True):
                number = int(kept.sum())
                one[kept] += sigma * OUTER / math.sqrt(1 - share) * drawn[:number]
                drawn = drawn[number:]
        step_of = torch.cat([basis @ e + r for basis, e, r in zip(bases, inside, outside, strict=True)]) / BATCH
        for p, part in zip(net.parameters(), step_of.split([q.numel() for q in net.parameters()]), strict=True):
            p.data -= RATE * part.view(p.shape)


def all_kept(step):
    return [torch.ones(16).double(), torch.ones(5).double()]


def seeded(running):
    """A training whose choice of anchors and start of power iteration have the number of the step as their seed."""
    numbers = itertools.count()
    running._anchors._words = lambda number: [2 * next(numbers)]
    return running


def assert_same(net, expected):
    for found, value in zip(net.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(found, value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sigma", [0.0, 0.7])
@pytest.mark.parametrize("residual", [True, False])
def test_training_is_the_papers_loop(residual, sigma):
    the_plan, net, expected = plan(residual, sigma), network(), network()
    by_hand(expected, the_plan, all_kept)
    seeded(training(the_plan, net)).run()
    assert_same(net, expected)
    assert any(not torch.equal(one, other) for one, other in zip(net.parameters(), network().parameters(), strict=True))


@pytest.mark.parametrize("residual", [True, False])
def test_random_masks_apply_to_anchors_gradients_and_noise(residual):
    kind = Random(0.6, seed=5)
    the_plan, net, expected = plan(residual, sparsification=kind), network(), network()
    times, shapes = the_plan.timetable(), {name: p.shape for name, p in net.named_parameters()}

    def masks_at(step):
        found = kind.selection(times.block(step + 1), times.blocks, 21).masks(shapes)
        flat = torch.cat([mask.flatten() for mask in found.values()]).double()
        return flat.split([16, 5])

    assert float(masks_at(STEPS - 1)[0].mean()) < 0.8
    by_hand(expected, the_plan, masks_at)
    seeded(training(the_plan, net)).run()
    assert_same(net, expected)


def released(x, y, sampling, **options):
    """Return the gradients of two noiseless steps at the initial parameters, times the divisor."""
    net = network()
    optimizer = Recording(net.parameters())
    settings = {"examples": len(x), "sampling": sampling, "steps": 2, "accept_large_delta": True}
    privet_plan = replace(plan(sigma=0, **options), **settings)
    running = privet.Training(privet_plan, net, squared_error, optimizer, TensorDataset(x, y), public=PUBLIC)
    seeded(running).run()
    return [privet_plan.divisor * gradient for gradient in optimizer.seen]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6, math.inf])
def test_neighbours_move_what_the_optimizer_gets_by_at_most_both_bounds(scale):
    """B·e and r of one example are orthogonal, so together they are at most √(S₁² + S₂²) long."""
    x, y = data()
    x[0] *= scale
    whole = released(x, y, privet.sampling.FullBatch())
    rest = released(x[1:], y[1:], privet.sampling.FullBatch())
    moved = [float((one - other).norm()) for one, other in zip(whole, rest, strict=True)]
    assert max(moved) <= math.hypot(INNER, OUTER) * (1 + 1e-6)
    if scale == 1e6:
        assert max(moved) > 0.9 * INNER
    if scale == math.inf:
        assert max(moved) < 1e-9


def test_anchors_are_drawn_anew_where_there_are_more():
    seen = []

    class Counted(torch.utils.data.Dataset):
        def __len__(self):
            return 200

        def __getitem__(self, index):
            seen.append(index)
            return PUBLIC[index % ANCHORS]

    running = training(plan(), network(), public=Counted())
    seen.clear()
    next(iter(running))
    first, _ = set(seen), seen.clear()
    next(iter(running))
    assert len(first) == ANCHORS
    assert len(seen) == 2 * ANCHORS  # read again for each of two power iterations
    assert set(seen) != first


@pytest.mark.parametrize(("public", "message"), [
    (None, "public is None; it must be a data set of public examples"), (TensorDataset(*data(3, ANCHORS - 1)), "at least the 9"),
    (TensorDataset(torch.zeros(ANCHORS, 7)), "items are like those of the training data"), (3, "map-style"),
])  # fmt: skip
def test_public_data_that_do_not_fit_are_refused_before_the_first_step(public, message, tmp_path):
    with pytest.raises(InvalidArgumentError, match=message):
        training(plan(), network(), tmp_path / "run", public=public)
    assert not (tmp_path / "run").exists()


def test_private_data_are_not_public_and_rules_that_do_not_use_public_data_refuse_them():
    both, net = TensorDataset(*data()), network()
    with pytest.raises(InvalidArgumentError, match="public is 'the training data'; it must be other data"):
        privet.Training(plan(), net, squared_error, torch.optim.SGD(net.parameters(), lr=RATE), both, public=both)
    with pytest.raises(InvalidArgumentError, match=r"left out with clipping\.Flat"):
        training(replace(plan(), clipping=Flat(1.0)), net)


def test_a_resumed_run_takes_the_rest_and_compares_the_public_data(tmp_path):
    net = network()
    first = training(plan(source="secure"), net, privet.Storage(tmp_path / "run", checkpoint_every=1))
    stop_after(first, 2)
    described = json.loads((tmp_path / "run" / "manifest.json").read_text())["parts"]
    assert described["public.entries"] == ANCHORS
    again = network()
    parts = again, squared_error, torch.optim.SGD(again.parameters(), lr=RATE), TensorDataset(*data())
    with pytest.raises(LedgerError, match="public"):
        privet.Training.resume(tmp_path / "run", *parts, public=TensorDataset(*data(3, ANCHORS + 1)))
    second = privet.Training.resume(tmp_path / "run", *parts, public=PUBLIC)
    for one, other in zip(net.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    second.run()
    assert (second.steps_spent, second.steps_left) == (STEPS, 0)
    assert "made-up points" in str(second.guarantee())


@pytest.mark.parametrize("momentum", [privet.momentum.InnerOuter(0.6, 0.2, 2), privet.momentum.PerExample(0.5)], ids=str)
def test_where_nothing_is_clipped_and_noised_the_parts_add_up_to_the_gradients(momentum):
    ends = []
    for clipping in (GEP(Flat(1e6), Flat(1e6), 6, ANCHORS, "made-up points"), Flat(1e6)):
        changed = {"clipping": clipping, "sampling": privet.sampling.FullBatch(), "momentum": momentum, "steps": 3}
        net = network()
        training(replace(plan(sigma=0), **changed), net, public=PUBLIC if clipping != Flat(1e6) else None).run()
        ends.append(torch.cat([p.detach().flatten() for p in net.parameters()]))
    torch.testing.assert_close(*ends, rtol=1e-5, atol=1e-6)
