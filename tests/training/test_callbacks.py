import gc
import json
import math
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch.utils.data import TensorDataset

import privet
from one_layer import BOUND, D, N, Probe, linear_loss, plan, resume, setup
from privet.clipping import AdaptiveQuantile, Flat
from privet.errors import InvalidArgumentError, PrivetWarning
from privet.ledger import read_history
from privet.training import Step

DATA = torch.randn(N, D)


class Diary(privet.Callback):
    def __init__(self):
        self.steps, self.events = [], []

    def on_step(self, step):
        self.steps.append(step)
        self.events.append(("step", step.number))

    def on_metrics(self, step, metrics):
        self.events.append(("metrics", step.number, metrics))

    def on_checkpoint(self, step, path):
        assert path.exists()
        self.events.append(("checkpoint", step.number))

    def on_end(self, step):
        self.events.append(("end", step and step.number))


def started(directory=None, every=100, steps=6, **options):
    return setup(plan(steps=steps, **options), DATA, privet.Storage(directory, checkpoint_every=every))


def metrics(directory):
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def test_everything_is_told_in_order(tmp_path):
    training, diary, after = started(tmp_path, every=2, steps=3), Diary(), Diary()
    training.run(callbacks=[diary])
    assert diary.events == [
        ("step", 1), ("step", 2), ("checkpoint", 2), ("step", 3), ("checkpoint", 3), ("end", 3),
    ]  # fmt: skip
    with pytest.warns(PrivetWarning, match="all 3 steps of the plan are taken, so nothing is left to do"):
        training.run(callbacks=[after])
    assert after.events == [("end", None)]


def test_a_loop_that_is_left_ends_with_a_checkpoint(tmp_path):
    diary = Diary()
    for step in started(tmp_path).releases(callbacks=[diary]):
        if step.number == 2:
            break
    gc.collect()
    assert diary.events == [("step", 1), ("step", 2), ("checkpoint", 2), ("end", 2)]


def test_a_step_tells_public_and_released_values_only():
    """On unlike data, with the same sampling and noise, the described steps are equal except in what was released."""
    found = []
    for scale in (0.0, 100.0):
        diary = Diary()
        setup(plan(steps=4, source="secure"), scale * DATA).run(callbacks=[diary])
        found.append([{**step.measures(), "seconds": None} for step in diary.steps])
    assert found[0] == found[1]
    assert {field.name.lstrip("_") for field in fields(Step)} == {
        "number", "total", "learning_rate", "sensitivity", "seconds", "released", "epsilon_after",
    }  # fmt: skip


def test_a_step_tells_the_rate_and_bound_that_it_was_taken_with():
    model, diary = Probe(), Diary()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    the_plan = plan(steps=3, bound_schedule=privet.schedules.Piecewise((1.0, 0.5), (0.5,)))
    privet.Training(the_plan, model, linear_loss, optimizer, TensorDataset(DATA), scheduler=scheduler).run(callbacks=[diary])
    assert [step.learning_rate for step in diary.steps] == [0.5, 0.25, 0.125]
    assert [step.sensitivity / BOUND for step in diary.steps] == pytest.approx(the_plan.bound_factors().tolist())
    assert diary.steps[1].epsilon == the_plan.epsilon(steps=2)


def test_the_statistics_of_a_step_are_those_that_it_released():
    """With a share for the counts so large that their noise can be told from the count."""
    diary, rule = Diary(), AdaptiveQuantile(Flat(BOUND), share=0.5)
    training = started(steps=3, clipping=rule)
    training.run(callbacks=[diary])
    for step, after in zip(diary.steps, diary.steps[1:], strict=False):
        (value,) = step.released.values()
        moved = math.exp(-rule.learning_rate * (value + 0.5 - rule.quantile))
        assert after.sensitivity == pytest.approx(step.sensitivity * moved, rel=1e-6)


@pytest.mark.parametrize("event", ["on_step", "on_checkpoint", "on_end"])
def test_an_exception_ends_the_loop_and_loses_nothing(event, tmp_path):
    def fail(*_):
        raise RuntimeError("of a callback")

    failing = privet.Callback()
    setattr(failing, event, fail)
    training, diary = started(tmp_path, every=3), Diary()
    with pytest.raises(RuntimeError, match="of a callback"):
        training.run(callbacks=[failing, diary])
    assert diary.events[-1][0] == "end"
    taken, before = diary.events[-1][1], training.model.w.detach().clone()
    assert read_history(tmp_path / "ledger")[0].spent == taken
    training.close()
    again = resume(tmp_path, DATA)
    assert torch.equal(again.model.w.detach(), before)
    again.run()
    assert again.steps_spent == 6


def test_a_callback_may_save_and_take_steps_of_its_own(tmp_path):
    class Busy(Diary):
        def on_step(self, step):
            super().on_step(step)
            training.save()
            if step.number == 1:
                next(iter(training))

    training, busy = started(tmp_path, steps=4), Busy()
    training.run(callbacks=[busy])
    assert [step.number for step in busy.steps] == [1, 3, 4]
    assert training.steps_spent == 4


@pytest.mark.parametrize("wrong", [[print], [Diary], Diary(), [object()]])
def test_what_is_no_callback_is_refused_before_a_step(wrong):
    training = started()
    with pytest.raises(InvalidArgumentError, match=r"privet\.Callback"):
        training.run(callbacks=wrong)
    assert training.steps_spent == 0


def test_every_run_with_a_directory_has_a_metrics_file(tmp_path):
    training = started(tmp_path, steps=42)
    training.run()
    lines = metrics(tmp_path)
    assert [line["step"] for line in lines] == [*range(2, 43, 2)]
    assert all(set(line) == {"step", "epsilon", "learning_rate", "sensitivity", "seconds"} for line in lines)
    assert lines[-1]["epsilon"] == training.epsilon()
    assert [line["seconds"] for line in lines] == sorted(line["seconds"] for line in lines)


def test_a_resumed_run_continues_its_file_and_its_time_after_a_torn_line(tmp_path):
    with started(tmp_path) as training:
        next(iter(training))
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1, "seconds": 1000}\n{"step": 9, "seco')
    diary = Diary()
    resume(tmp_path, DATA).run(callbacks=[diary])
    assert diary.steps[0].seconds >= 1000
    assert [line["step"] for line in metrics(tmp_path)] == [1, 1, 2, 3, 4, 5, 6]


def test_numbers_of_ones_own_are_logged_to_the_file_and_all_callbacks(tmp_path):
    class Logs(privet.Callback):
        def on_step(self, step):
            training.log({"test_accuracy": torch.tensor(0.25 * step.number), "other": float("nan")})

    diary, training = Diary(), started(tmp_path, steps=2)
    training.run(callbacks=[diary, Logs()])
    training.log({"after": 3})
    assert ("metrics", 2, {"test_accuracy": 0.5, "other": None}) in diary.events
    lines = metrics(tmp_path)
    assert {"step": 1, "test_accuracy": 0.25, "other": None} in lines
    assert lines[-1] == {"step": 2, "after": 3.0}


@pytest.mark.parametrize(
    "wrong", [{"step": 1}, {"epsilon": 1.0}, {"": 1}, {"a:b": 1}, {3: 1.0}, {"text": "no number"}, {"pair": [1, 2]}]
)
def test_what_is_no_named_number_is_not_logged(wrong, tmp_path):
    training = started(tmp_path, steps=1)
    with pytest.raises(InvalidArgumentError, match="logged after a step"):
        training.log({"accuracy": 0.5})
    training.run()
    before = metrics(tmp_path)
    with pytest.raises(InvalidArgumentError, match="metrics"):
        training.log(wrong)
    assert metrics(tmp_path) == before


def test_a_file_that_cannot_be_written_warns_once_and_training_continues(tmp_path):
    (tmp_path / "metrics.jsonl").mkdir()
    training = started(tmp_path, steps=3)
    with pytest.warns(PrivetWarning, match=r"metrics\.jsonl cannot be written") as caught:
        training.run()
    assert (training.steps_spent, len(caught)) == (3, 1)


def test_the_points_of_a_run():
    assert [number for number in range(1, 101) if Step(number, 100).is_one_of(4)] == [25, 50, 75, 100]
    assert [number for number in range(1, 4) if Step(number, 3).is_one_of(20)] == [1, 2, 3]
    assert [number for number in range(1, 11) if Step(number, 10).is_one_of(3)] == [3, 6, 9, 10]
    assert isinstance(hash(Step(1, 2)), int)
    assert math.isnan(Step(1, 2).epsilon)
    assert Path("metrics.jsonl").name in privet.training.directory.OWN_FILES
