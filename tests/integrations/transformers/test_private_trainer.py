import json
import math
import warnings

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
from recording import Seen
from tiny_trainings import Labelled, Sequences, arguments, bert, gpt2, llama, lora, make_plan, noiseless_plan, pad, trainer
from transformers import EarlyStoppingCallback, GPT2LMHeadModel, Trainer, TrainerCallback

import privet
from privet.errors import InvalidArgumentError, LedgerError, PrivetWarning
from privet.integrations.transformers import PrivateTrainer, PrivateTrainerMixin
from privet.integrations.transformers.trainer import PRIVACY

OF_THE_CLOCK = {"train_runtime", "train_samples_per_second", "train_steps_per_second"}


def weights(model):
    return {name: value.detach().clone() for name, value in model.named_parameters() if value.requires_grad}


def moved(before, model, some=False):
    changed = [not torch.equal(before[name], value) for name, value in weights(model).items()]
    return any(changed) if some else all(changed)


def test_all_steps_of_the_plan_are_taken_with_the_hosts_schedule_and_log_their_epsilon(tmp_path):
    """In a subclass of another trainer, too; what it hands to callbacks holds no example."""

    class Counting(Trainer):
        logs = 0

        def log(self, logs, start_time=None):
            self.logs += 1
            super().log(logs, start_time)

    class PrivateCounting(PrivateTrainerMixin, Counting):
        pass

    class Watch(TrainerCallback):
        batches = []

        def on_step_end(self, args, state, control, train_dataloader=None, **others):
            self.batches += train_dataloader

    model = llama()
    before = weights(model)
    host = trainer(tmp_path, model=model, kind=PrivateCounting, lr_scheduler_type="linear", given={"callbacks": [Watch()]})
    result = host.train()
    assert (host.logs, Watch.batches) == (7, [{}] * 4 * 6)
    assert result.global_step == host.training.steps_spent == 6
    assert math.isnan(result.training_loss)
    rates = [line["learning_rate"] for line in host.state.log_history if "learning_rate" in line]
    assert rates == pytest.approx([1e-2 * (6 - step) / 6 for step in range(6)])
    logged = {line["step"]: (line["epsilon"], line["delta"]) for line in host.state.log_history}
    assert logged == {step: (make_plan().epsilon(steps=step), 1e-3) for step in range(1, 7)}
    assert moved(before, model)


def test_what_the_host_logs_is_the_same_for_other_private_data(tmp_path):
    """Neither tokens, labels nor lengths of the training data show in the log, or in the state that is saved."""
    found = []
    for number, data in enumerate([Sequences(), Sequences(seed=1, shortest=11)]):
        host = trainer(tmp_path / str(number), data=data, save_strategy="steps", save_steps=3, logging_nan_inf_filter=False)
        host.train()
        state = json.loads((tmp_path / str(number) / "checkpoint-6" / "trainer_state.json").read_text())
        lines = [{name: value for name, value in line.items() if name not in OF_THE_CLOCK} for line in host.state.log_history]
        found.append((lines, state))
        names = set().union(*lines)
        assert names == {"learning_rate", "epsilon", "delta", "epoch", "step", "total_flos"}
        assert state["total_flos"] == state["num_input_tokens_seen"] == 0
    assert found[0] == found[1]


def test_an_update_is_the_mean_of_clipped_gradients_of_the_models_own_loss(tmp_path):
    """Without noise: rate · Σ clipped gradients / N, by a plain loop over single examples; nothing else scales or clips it."""
    rate, bound, data, model = 3.0, 2.2, Sequences(3), llama()
    before, sums, norms = weights(model), dict.fromkeys(weights(model), 0.0), []
    for row in data.rows:
        model.zero_grad()
        model(input_ids=torch.tensor([row["input_ids"]]), labels=torch.tensor([row["labels"]])).loss.backward()
        norms.append(torch.cat([value.grad.flatten() for value in model.parameters()]).norm().item())
        for name, value in model.named_parameters():
            sums[name] = sums[name] + value.grad * min(1.0, bound / norms[-1])
    model.zero_grad()
    assert max(norms) > bound
    assert sum(value.square().sum() for value in sums.values()).sqrt() / 3 > 1  # the host's own limit, which must not apply
    options = {"optim": "sgd", "learning_rate": rate, "lr_scheduler_type": "constant", "per_device_train_batch_size": 2}
    trainer(tmp_path, model=model, data=data, plan=noiseless_plan(3, bound), **options).train()
    for name, value in weights(model).items():
        torch.testing.assert_close(value, before[name] - rate * sums[name] / 3, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("bf16", "rounding"), [(False, 1e-4), (True, 1e-2)])
def test_neighbours_move_the_model_apart_by_no_more_than_the_bound(tmp_path, bf16, rounding):
    """Without noise, one example more changes the update by rate · C / N at most, however large its gradient is."""
    rate, bound, found, data = 2.0, 0.3, [], Sequences(6, seed=4)
    start = llama().state_dict()
    for number, rows in enumerate([data.rows, [*data.rows[:5], {"input_ids": [3], "labels": [-100]}]]):
        data.rows, model = rows, llama()
        model.load_state_dict(start)
        options = {"optim": "sgd", "learning_rate": rate, "lr_scheduler_type": "constant", "bf16": bf16}
        trainer(tmp_path / str(number), model=model, data=data, plan=noiseless_plan(6, bound), **options).train()
        found.append(torch.cat([value.flatten() for value in weights(model).values()]))
    apart = (found[0] - found[1]).norm().item()
    assert 0.5 * rate * bound / 6 < apart <= rate * bound / 6 * (1 + rounding)


def test_evaluation_and_early_stopping_on_public_data(tmp_path):
    """Early stopping ends the run, and steps that were not taken are not spent."""

    def flat(outputs):
        return {"score": 1.0}

    stop = EarlyStoppingCallback(early_stopping_patience=2)
    host = trainer(
        tmp_path, model=bert(), data=Labelled(), eval_strategy="steps", eval_steps=1, save_strategy="steps", save_steps=1,
        load_best_model_at_end=True, metric_for_best_model="score", greater_is_better=True,
        given={"eval_dataset": Labelled(16, seed=1), "callbacks": [stop], "compute_metrics": flat, "ledger": tmp_path / "ledger"},
    )  # fmt: skip
    host.train()
    assert host.state.global_step == host.training.steps_spent == 3
    assert host.state.best_global_step == 1
    assert [line["step"] for line in host.state.log_history if "eval_score" in line] == [1, 2, 3]
    assert host.evaluate()["eval_score"] == 1.0


def test_what_is_saved_can_be_loaded_and_states_its_privacy(tmp_path):
    model = gpt2()
    host = trainer(tmp_path, model=model, save_strategy="steps", save_steps=3)
    host.train()
    host.save_model(tmp_path / "final")
    loaded = GPT2LMHeadModel.from_pretrained(tmp_path / "final")
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in loaded.state_dict().items())
    for folder, steps in (("checkpoint-3", 3), ("checkpoint-6", 6), ("final", 6)):
        stated = json.loads((tmp_path / folder / PRIVACY).read_text(encoding="utf-8"))
        assert stated["epsilon"] == make_plan().epsilon(steps=steps)
        assert (stated["delta"], stated["steps"]) == (1e-3, steps)
        assert privet.Plan.from_dict(stated["plan"]) == make_plan()
        assert "differential privacy for one example" in stated["statement"]


def test_epochs_are_those_of_the_plan_and_the_model_card_has_epsilon_beside_every_evaluation(tmp_path):
    options = {"eval_strategy": "epoch", "eval_on_start": True, "plan": make_plan(steps=8)}
    host = trainer(tmp_path, **options, given={"eval_dataset": Sequences(8, seed=1)})
    host.train()
    evaluated = [(line["epoch"], line["step"]) for line in host.state.log_history if "eval_loss" in line]
    assert evaluated == [(0, 0), (1, 4), (2, 8)]
    logged = [dict(line) for line in host.state.log_history]
    host.create_model_card()
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    (names,) = [line for line in card.splitlines() if line.startswith("| Training Loss")]
    assert [name.strip() for name in names.strip("|").split("|")][-3:] == ["Validation Loss", "Epsilon", "Delta"]
    assert f"| {make_plan().epsilon(steps=4):.4f}  | 0.001  |" in card
    assert host.state.log_history == logged


@pytest.mark.parametrize(("reentrant", "adapted"), [(False, True), (True, False)])
def test_activation_checkpointing_of_both_kinds(tmp_path, reentrant, adapted):
    model = lora() if adapted else llama()
    before = weights(model)
    host = trainer(
        tmp_path, model=model, plan=make_plan(steps=2), probe=True, activation_checkpointing=True,
        activation_checkpointing_kwargs={"use_reentrant": reentrant},
    )  # fmt: skip
    host.train()
    assert moved(before, model, some=True)
    assert host.training.method == ("loop" if reentrant else "ghost")


def test_bf16_autocast_is_used_in_the_private_passes(tmp_path):
    model, seen = llama(), Seen()
    host = trainer(tmp_path, model=model, plan=make_plan(steps=2), bf16=True)
    model.model.layers[0].mlp.register_forward_hook(lambda module, inputs, output: seen(output.dtype))
    before = weights(model)
    host.train()
    assert torch.bfloat16 in seen.items
    assert moved(before, model)
    assert all(value.dtype == torch.float32 for value in weights(model).values())


def adapters():
    from peft import PromptTuningConfig, get_peft_model

    yield "lora", lambda: lora(lora_dropout=0.1)
    yield "dora", lambda: lora(use_dora=True)
    yield "prompt", lambda: get_peft_model(llama(), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3))


@pytest.mark.parametrize("kind", ["lora", pytest.param("dora", marks=pytest.mark.slow), "prompt"])
def test_adapters_of_peft_are_trained_saved_and_loaded(tmp_path, kind):
    pytest.importorskip("peft")
    from peft import PeftModel

    torch.manual_seed(0)
    model = dict(adapters())[kind]()
    before = weights(model)
    host = trainer(tmp_path, model=model, plan=make_plan(steps=3), probe=True, given={"eval_dataset": Sequences(8, seed=1)})
    host.train()
    assert moved(before, model, some=True)
    assert host.training.method == "ghost"
    assert math.isfinite(host.evaluate()["eval_loss"])
    host.save_model(tmp_path / "adapter")
    torch.manual_seed(0)
    again = PeftModel.from_pretrained(dict(adapters())[kind]().get_base_model(), tmp_path / "adapter")
    inputs = {name: value for name, value in pad(Sequences(4, seed=2).rows).items() if name != "labels"}
    with torch.no_grad():
        assert torch.equal(again.eval()(**inputs).logits, model.eval()(**inputs).logits)


def test_an_optimizer_and_a_schedule_of_the_users_own(tmp_path):
    """Momentum stays in the host's optimizer; a schedule that follows a public metric is stepped by evaluations."""
    model = llama()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.5, patience=0)
    host = trainer(
        tmp_path, model=model, eval_strategy="steps", eval_steps=1, metric_for_best_model="score", greater_is_better=True,
        lr_scheduler_type="reduce_lr_on_plateau",
        given={
            "optimizers": (optimizer, scheduler), "eval_dataset": Sequences(4, seed=1),
            "compute_metrics": lambda outputs: {"score": 1.0},
        },
    )  # fmt: skip
    host.train()
    assert optimizer.param_groups[0]["lr"] == 0.1 * 0.5**5
    assert all("momentum_buffer" in optimizer.state[value] for value in model.parameters())


@pytest.mark.parametrize("made", ["given", "when training starts"])
def test_a_compiled_model_is_trained_and_saved_as_the_module_within_it(tmp_path, made):
    """Otherwise the host would drop every column of the data, and save names that `from_pretrained` skips."""
    model = llama()
    initial = model.state_dict()["model.layers.0.mlp.up_proj.weight"].clone()
    given = {"model": torch.compile(model)} if made == "given" else {"model_init": lambda: torch.compile(model)}
    args = arguments(tmp_path, save_strategy="steps", save_steps=6)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        host = PrivateTrainer(args=args, train_dataset=Sequences(), data_collator=pad, plan=make_plan(), **given)
        host.train()
    assert host.training.steps_spent == 6
    told = [str(each.message) for each in said if issubclass(each.category, PrivetWarning)]
    assert set(told) == {
        "the model is compiled; it is trained, evaluated and saved uncompiled, because a compiled graph hides where parameters "
        "are used. Pass the module that you compiled"
    }
    if made == "given":
        assert len(told) == 1
    loaded = type(model).from_pretrained(tmp_path / "checkpoint-6").state_dict()
    assert all(torch.equal(value, loaded[name]) for name, value in model.state_dict().items())
    assert not torch.equal(loaded["model.layers.0.mlp.up_proj.weight"], initial)


def test_a_model_can_be_made_when_training_starts_and_is_trained_once(tmp_path):
    host = PrivateTrainer(
        args=arguments(tmp_path, neftune_noise_alpha=5), train_dataset=Sequences(), data_collator=pad, plan=make_plan(2),
        model_init=llama,
    )  # fmt: skip
    host.train()
    assert host.training.steps_spent == 2
    assert host.training.model is host.model
    with pytest.raises(LedgerError, match="this trainer holds a run already"):
        host.train()


def test_data_of_another_size_and_a_model_that_cannot_be_trained_are_refused_before_anything_is_spent(tmp_path):
    with pytest.raises(InvalidArgumentError, match="exactly the plan's size, 32"):
        trainer(tmp_path, data=Sequences(31))
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
    data = torch.utils.data.StackDataset(inputs=torch.randn(32, 4), labels=torch.randint(2, (32,)))

    def loss_fn(model, batch):
        return torch.nn.functional.cross_entropy(model(batch["inputs"]), batch["labels"], reduction="none")

    host = PrivateTrainer(model, arguments(tmp_path), train_dataset=data, plan=make_plan(), loss_fn=loss_fn)
    with pytest.raises(privet.errors.UnsupportedModelError, match="BatchNorm"):
        host.train()
    assert host.training is None
