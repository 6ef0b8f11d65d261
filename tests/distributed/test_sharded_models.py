"""Training of models under FSDP2 gives what one process gives, by module and with the whole model gathered."""

import warnings

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard

import privet
from distributed.processes import run_ranks
from distributed.sharded_trainings import CASES, VECTORS, WIDTH, Case, Layers, make, shard, square_losses, whole
from privet import clipping, momentum, sampling, sparsification
from privet.clipping import Flat
from privet.distributed.world import ALONE

# In the quick tests, by module and gathered: other passes than one for each batch, state, values that are read again.
QUICK = ("AdamW, scheduler", "raising", "derived"), ("adaptive", "outside")
ROUNDING = 1e-6  # float32 sums in another order, over some steps of small updates


def train_all(world, folder, names, gathered):
    """Train the cases; save parameters, how they were summed, and the number of steps that count."""
    warnings.simplefilter("ignore")
    world.gathered, found = gathered, {}
    for name in names:
        with make(name, world) as training:
            training.run()
            assert all(each.grad is None for each in training.model.parameters())
            sums = getattr(training, "_sums", None)
            way = "alone" if sums is None else "by module" if sums.passes is not None else "gathered"
            found[name] = whole(training.model), way, training.steps_spent
    if world.first:
        torch.save(found, f"{folder}/{world.size}-{gathered}.pt")


def compare(folder, sizes, names, gathered):
    train_all(ALONE, folder, names, False)
    alone, wrong = torch.load(folder / "1-False.pt"), {}
    for size in sizes:
        run_ranks(size, train_all, folder, names, gathered)
        several = torch.load(folder / f"{size}-{gathered}.pt")
        for name in names:
            parameters, way, spent = several[name]
            assert way == ("gathered" if gathered else CASES[name].way), name
            assert spent == alone[name][2]
            if (error := float((parameters - alone[name][0]).abs().max())) > ROUNDING:
                wrong[name, size] = error
    assert not wrong


@pytest.mark.parametrize("gathered", [False, True])
def test_two_ranks_with_shards_give_the_parameters_of_one_process(tmp_path, gathered):
    compare(tmp_path, (2,), QUICK[gathered], gathered)


@pytest.mark.slow
@pytest.mark.parametrize("gathered", [False, True])
def test_ranks_with_shards_give_the_parameters_of_one_process_for_every_kind_of_model(tmp_path, gathered):
    compare(tmp_path, (2, 3), tuple(CASES), gathered)


def test_ranks_take_different_numbers_of_passes(tmp_path):
    """Of an odd draw, rank 1 has the larger part: in most steps, it alone has examples."""
    compare(tmp_path, (2,), ("empty ranks",), gathered=False)


def continue_elsewhere(world, folder, name, session):
    """Take three steps in the first session, and the others in the second, which saves the model."""
    warnings.simplefilter("ignore")
    with make(name, world, folder / "run", resume=session == 2) as training:
        for step in training:
            if step.number == 3 and session == 1:
                break
        if session == 2:
            privet.save(training)
            final = whole(training.model)
            if world.first:
                torch.save(final, folder / "final.pt")


@pytest.mark.parametrize(("name", "first", "second"), [
    ("AdamW, scheduler", 2, 1),
    *(pytest.param(*each, marks=pytest.mark.slow)
      for each in [("AdamW, scheduler", 1, 2), ("frozen", 2, 3), ("frozen", 3, 1), ("tied", 2, 1), ("adaptive", 2, 3),
                   ("LoRA", 3, 2), ("AdamBC", 2, 1)]),
])  # fmt: skip
def test_a_run_resumes_in_any_number_of_processes_and_its_model_is_whole(tmp_path, name, first, second):
    """The test source begins anew in each session, so all ways to divide the same steps have the same result."""
    results = []
    for sizes in ((first, second), (1, 1)):
        (folder := tmp_path / f"{sizes}").mkdir()
        for session, size in enumerate(sizes, 1):
            if size == 1:
                continue_elsewhere(ALONE, folder, name, session)
            else:
                run_ranks(size, continue_elsewhere, folder, name, session)
        results.append(torch.load(folder / "final.pt"))
        model = CASES[name].model()
        privet.load(folder / "run", model)
        assert torch.equal(whole(model), results[-1])
    assert float((results[0] - results[1]).abs().max()) <= ROUNDING


def expect(words, call, *arguments, **options):
    with pytest.raises((privet.errors.InvalidArgumentError, privet.errors.UnsupportedModelError)) as raised:
        call(*arguments, **options)
    assert all(word in str(raised.value) for word in words), raised.value


def refuse(world, folder):
    """What shards cannot do is refused on all ranks, by name."""
    warnings.simplefilter("ignore")
    plans = {
        "sparsification.Random": {"sparsification": sparsification.Random(0.5)},
        "momentum.InnerOuter": {"momentum": momentum.InnerOuter(inner=0.9, outer=0.1, length=2)},
        "momentum.PerExample": {"sampling": sampling.FullBatch(), "momentum": momentum.PerExample(0.5)},
        "clipping.Projected": {"clipping": clipping.Projected(Flat(0.5), projections=16)},
        "clipping.GEP": {"clipping": clipping.GEP(Flat(0.5), Flat(0.5), dimensions=3, anchors=24, public="others")},
    }
    for name, plan in plans.items():
        CASES["refused"] = Case(lambda: Layers(nn.Linear(WIDTH, 4), nn.Linear(4, 2)), plan=plan, **VECTORS)
        expect([name, "sharded (FSDP2)"], make, "refused", world)
    mesh = init_device_mesh("cpu", (1, world.size), mesh_dim_names=("replicas", "shards"))
    parts = lambda: Layers(nn.Linear(WIDTH, 4), nn.Linear(4, 2))  # noqa: E731
    half = parts()
    fully_shard(half.parts[0])
    other_half = nn.Sequential(fully_shard(nn.Linear(WIDTH, 4)), nn.Linear(4, 2))
    for model, words in {
        shard(parts(), mesh=mesh): ["mesh of shape (1, 2)"],
        shard(Layers(nn.Linear(4, 4)), shard_placement_fn=lambda parameter: Shard(parameter.dim() - 1)): ["first dimension"],
        shard(parts().bfloat16()): ["torch.bfloat16", "MixedPrecisionPolicy"],
        half: ["call fully_shard(model) last"],
        other_half: ["call fully_shard(model) last"],
    }.items():
        CASES["refused"] = Case(lambda model=model: model, **VECTORS)
        expect(words, make, "refused", world, already=True)
    model = shard(parts())
    expect(["is a shard"], privet.clipped_sum, model, square_losses, (torch.randn(3, WIDTH),), Flat(0.5))


def test_what_shards_cannot_do_is_refused_by_name(tmp_path):
    run_ranks(2, refuse, tmp_path)


def refuse_on_one_rank(world, folder):
    """Rank 1 refuses before the model is gathered, and then within its first pass over made-up examples."""
    bad = (lambda: {"physical_batch_size": 0}, lambda: {"method": "ghost", "reading": privet.Reading(spec=(torch.zeros(3),))})
    for number, options in enumerate(bad):
        CASES["refused"] = Case(options=options() if world.rank == 1 else {})
        with pytest.raises(privet.errors.PrivetError) as raised:
            make("refused", world)
        assert world.rank == 1 or "rank 1 failed" in str(raised.value), (number, raised.value)


def test_what_one_rank_refuses_all_refuse(tmp_path):
    """At once: a rank that waits for the time-out says that another one stopped answering."""
    run_ranks(2, refuse_on_one_rank, tmp_path)
