import os

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
from tiny_trainings import llama, lora, make_plan, trainer
from transformers import TrainerCallback

from privet.errors import LedgerError
from privet.integrations.transformers.trainer import STATE
from privet.training.directory import read_plan

STEPS = 8


class Interrupt(TrainerCallback):
    """Stops after a step as a user or a machine does."""

    def __init__(self, at, stop):
        self.at, self.stop = at, stop

    def on_step_end(self, args, state, control, **others):
        if state.global_step == self.at:
            self.stop()


class Follow(TrainerCallback):
    """Keeps the weights at the start and after each step."""

    def __init__(self):
        self.weights = {}

    def on_train_begin(self, args, state, control, model=None, **others):
        self.weights[state.global_step] = copied(model)

    def on_step_end(self, args, state, control, model=None, **others):
        self.weights[state.global_step] = copied(model)


def copied(model):
    return torch.cat([value.detach().flatten().clone() for value in model.parameters() if value.requires_grad])


def hosted(folder, *callbacks, model=None, ledger="ledger", save_steps=4, plan=None, **options):
    given = {"callbacks": list(callbacks), "ledger": None if ledger is None else folder / ledger}
    return trainer(
        folder, model=model, plan=make_plan(STEPS) if plan is None else plan, save_strategy="steps", save_steps=save_steps,
        lr_scheduler_type="linear", given=given, **options,
    )  # fmt: skip


def started(make, state):
    model = make()
    model.load_state_dict(state)
    return model


def interrupted(folder, at, model=None, **options):
    def stop():
        raise KeyboardInterrupt

    host = hosted(folder, Interrupt(at, stop), model=model, **options)
    with pytest.raises(KeyboardInterrupt):
        host.train()
    assert host.training.steps_spent == at
    return host


def rates(host):
    return [line["learning_rate"] for line in host.state.log_history if "learning_rate" in line]


@pytest.mark.parametrize("make", [llama, lora])
def test_a_resumed_run_ends_at_the_last_step_with_its_schedule(tmp_path, make):
    frozen = make().state_dict()  # what is frozen must be as at the start; what is trained is in the checkpoint
    interrupted(tmp_path, 6, started(make, frozen))
    follow = Follow()
    host = hosted(tmp_path, follow, model=started(make, frozen))
    host.train(resume_from_checkpoint=True)
    assert host.state.global_step == host.training.steps_spent == STEPS
    assert host.training.epsilon() == make_plan(STEPS).epsilon()
    assert rates(host) == pytest.approx([1e-2 * (STEPS - step) / STEPS for step in range(STEPS)])
    # Steps 5 and 6 were spent after the checkpoint: they are not taken again.
    assert torch.equal(follow.weights[4], follow.weights[6])
    assert not torch.equal(follow.weights[6], follow.weights[7])
    assert not torch.equal(follow.weights[7], follow.weights[8])
    assert {line["step"]: line["epsilon"] for line in host.state.log_history}[5] == make_plan().epsilon(steps=6)


def test_the_same_trainer_resumes_after_an_interruption(tmp_path):
    host = interrupted(tmp_path, 6)
    host.callback_handler.callbacks = [one for one in host.callback_handler.callbacks if not isinstance(one, Interrupt)]
    host.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert host.state.global_step == host.training.steps_spent == STEPS


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a process is killed")
def test_steps_of_a_killed_process_stay_spent(tmp_path):
    if not (child := os.fork()):
        hosted(tmp_path, Interrupt(6, lambda: os._exit(7))).train()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    host = hosted(tmp_path)
    host.train(resume_from_checkpoint=True)
    assert host.state.global_step == host.training.steps_spent == STEPS
    assert {line["step"]: line["epsilon"] for line in host.state.log_history}[5] >= make_plan().epsilon(steps=6)


def test_a_run_that_was_stopped_before_its_first_checkpoint_begins_again(tmp_path):
    interrupted(tmp_path, 2)
    follow = Follow()
    host = hosted(tmp_path, follow)
    host.train(resume_from_checkpoint=True)
    assert host.state.global_step == host.training.steps_spent == STEPS
    assert torch.equal(follow.weights[0], follow.weights[2])
    assert not torch.equal(follow.weights[2], follow.weights[3])


def test_what_does_not_fit_a_run_is_refused_and_the_run_goes_on(tmp_path):
    interrupted(tmp_path, 6)
    with pytest.raises(LedgerError, match="ledger holds a run already; continue it by train"):
        hosted(tmp_path).train()
    # Under another plan, it would have the steps of its own, and the host would count those of the other.
    host = hosted(tmp_path, plan=make_plan(STEPS + 4))
    with pytest.raises(LedgerError, match=rf"another plan.*steps is {STEPS} there, {STEPS + 4} here.*read_plan"):
        host.train(resume_from_checkpoint=True)
    interrupted(tmp_path / "another", 2, save_steps=1)
    with pytest.raises(LedgerError, match="the state is of run"):
        hosted(tmp_path).train(resume_from_checkpoint=str(tmp_path / "another" / "checkpoint-1"))
    state = tmp_path / "checkpoint-4" / STATE
    content = state.read_bytes()
    state.write_bytes(content[:100])
    with pytest.raises(LedgerError, match="is damaged"):
        hosted(tmp_path).train(resume_from_checkpoint=True)
    state.unlink()
    with pytest.raises(LedgerError, match=f"has no {STATE}"):
        hosted(tmp_path).train(resume_from_checkpoint=True)
    state.write_bytes(content)
    hosted(tmp_path, plan=read_plan(tmp_path / "ledger")).train(resume_from_checkpoint=True)


def test_without_a_directory_there_is_nothing_to_resume(tmp_path):
    interrupted(tmp_path, 6, ledger=None)
    with pytest.raises(LedgerError, match="there is no run to resume: ledger is None"):
        hosted(tmp_path, ledger=None).train(resume_from_checkpoint=True)
