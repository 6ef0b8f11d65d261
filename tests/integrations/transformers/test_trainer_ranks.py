"""A private trainer in two processes is that of one: parameters, checkpoints, and ε, which rank 0 alone writes."""

import copy
import json
import time
import warnings
from dataclasses import replace

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
from test_trainer_resume import STEPS, Interrupt, hosted
from tiny_trainings import Sequences, arguments, llama, make_plan, pad

from distributed.processes import announce, run_ranks
from privet import noise
from privet.distributed.world import ALONE
from privet.integrations.transformers.trainer import STATE, PrivateTrainer

ROUNDING = 1e-6  # float32 sums in another order
SHARED = Sequences()


def fixed_plan():
    return replace(make_plan(STEPS), noise=noise.Gaussian(1.3, source="fixed"))


def host(world, folder, *callbacks, plan=None):
    warnings.simplefilter("ignore")
    announce(world)
    torch.manual_seed(0)
    options = {"ddp_backend": "gloo"} if world.size > 1 else {}
    return hosted(folder, *callbacks, plan=plan or fixed_plan(), learning_rate=1e-3, **options)


def train(world, folder):
    mine = host(world, folder / str(world.size))
    mine.train()
    assert type(mine.model_wrapped) is type(mine.model)
    keep(world, mine, folder)


def keep(world, mine, folder):
    own = torch.cat([value.detach().flatten() for value in mine.model.parameters()])
    assert all(torch.equal(own, other) for other in world.gather(own))
    assert mine.training.steps_spent == STEPS
    if world.first:
        torch.save(own, folder / f"{world.size}.pt")


def interrupt(world, folder):
    def stop():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        host(world, folder, Interrupt(6, stop), plan=make_plan(STEPS)).train()


def resume(world, folder):
    mine = host(world, folder, plan=make_plan(STEPS))
    mine.train(resume_from_checkpoint=True)
    keep(world, mine, folder)


@pytest.mark.slow  # each rank imports transformers
def test_two_processes_train_as_one_and_rank_0_writes(tmp_path):
    run_ranks(2, train, tmp_path)
    train(ALONE, tmp_path)
    difference = float((torch.load(tmp_path / "2.pt") - torch.load(tmp_path / "1.pt")).abs().max())
    assert difference <= ROUNDING
    lines = (tmp_path / "2" / "ledger" / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == STEPS
    saved = tmp_path / "2" / f"checkpoint-{STEPS}"
    history = json.loads((saved / "trainer_state.json").read_text())["log_history"]
    assert [line["step"] for line in history if "epsilon" in line] == list(range(1, STEPS + 1))
    assert json.loads((saved / "privacy.json").read_text())["steps"] == STEPS


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2])
def test_a_checkpoint_of_two_processes_is_resumed_by_any_number(tmp_path, size):
    run_ranks(2, interrupt, tmp_path)
    assert (tmp_path / "checkpoint-4" / STATE).exists()
    if size == 1:
        resume(ALONE, tmp_path)
    else:
        run_ranks(2, resume, tmp_path)
    found = json.loads((tmp_path / f"checkpoint-{STEPS}" / "privacy.json").read_text())
    assert (found["epsilon"], found["steps"]) == (make_plan(STEPS).epsilon(), STEPS)


def refuse_padding(mine):
    def raises():
        raise ValueError("of this rank")

    mine._check_padding = raises


# What rank 1 does differently: arguments of the host, those of TrainingArguments, a change before it trains → its error.
REFUSALS = {
    "data": ({"train_dataset": Sequences(31)}, {}, None, "dataset is"),
    "plan": ({"plan": None}, {}, None, "plan is 'NoneType'"),
    "arguments": ({}, {"gradient_accumulation_steps": 2}, None, "TrainingArguments.gradient_accumulation_steps is 2"),
    "evaluation data": ({"eval_dataset": SHARED}, {}, None, "eval_dataset is 'the training set'"),
    "a used ledger": ({"ledger": "used"}, {}, None, "used holds a run already"),
    "padding": ({}, {}, refuse_padding, "of this rank"),
}


def disagree(world, folder):
    """Let rank 1 refuse what the others accept, and pass a host that takes itself for the only process."""
    warnings.simplefilter("ignore")
    announce(world)
    (folder / "used").mkdir(exist_ok=True)
    (folder / "used" / "ledger").write_text("a record\n")
    found, seconds = {}, []
    for name in ("host", *REFUSALS):
        given, options, change, _ = REFUSALS.get(name, ({}, {}, None, "")) if world.rank == 1 else ({}, {}, None, "")
        args = arguments(folder, ddp_backend="gloo", **options)
        if name == "host":
            args.distributed_state = copy.copy(args.distributed_state)
            args.distributed_state.num_processes = 1
        given = {"train_dataset": SHARED, "plan": fixed_plan(), **given}
        if "ledger" in given:
            given["ledger"] = folder / given["ledger"]
        world.gather(name)  # all begin at once
        begun = time.monotonic()
        try:
            mine = PrivateTrainer(model=llama(), args=args, data_collator=pad, **given)
            if change is not None:
                change(mine)
            mine.train()
        except Exception as error:
            found[name] = str(error)
        seconds.append(time.monotonic() - begun)
    host(world, folder).train()  # a rank that refused is not lost
    (folder / f"{world.rank}.json").write_text(json.dumps(found))
    print("seconds until all had raised:", dict(zip(("host", *REFUSALS), seconds, strict=True)))


@pytest.mark.slow
def test_what_one_rank_refuses_ends_the_trainers_of_all_and_a_host_that_counts_one_process_is_refused(tmp_path):
    run_ranks(2, disagree, tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    for name, (*_, text) in REFUSALS.items():
        assert text in second[name], name
        assert first[name].startswith("rank 1 failed: "), name
        assert name == "padding" or text in first[name], name
    for found in (first, second):
        assert "TrainingArguments.world_size is 1; it must be the number of processes, 2" in found["host"]
        assert "use_cpu=True" in found["host"]
