from types import SimpleNamespace

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

import torch
from accelerate import DistributedType
from tiny_trainings import Sequences, arguments, llama, make_plan, pad, trainer
from transformers import Trainer, TrainingArguments

import privet
from privet.errors import InvalidArgumentError, PrivetError
from privet.integrations.transformers import PrivateTrainer, PrivateTrainerMixin
from privet.integrations.transformers.arguments import REFUSED, check_arguments, check_processes

VOID = {
    "gradient_accumulation_steps": 2,
    "auto_find_batch_size": True,
    "max_grad_norm": 0.5,
    "label_smoothing_factor": 0.1,
    "include_num_input_tokens_seen": "all",
    "skip_memory_metrics": False,
    "debug": "underflow_overflow",
    "fp16": True,
    "train_sampling_strategy": "group_by_length",
    "dataloader_drop_last": True,
    "data_seed": 3,
    "torch_compile": True,
    "use_liger_kernel": True,
}


@pytest.mark.parametrize("name", VOID)
def test_what_would_void_the_guarantee_is_refused_by_name(tmp_path, name):
    with pytest.raises(InvalidArgumentError, match=rf"TrainingArguments\.{name} is .*; it must be ") as error:
        trainer(tmp_path / "out", **{name: VOID[name]})
    assert REFUSED[name].reason in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["data_seed", "debug", "max_grad_norm"])
def test_it_is_refused_as_well_if_it_is_set_later(tmp_path, name):
    host = trainer(tmp_path)
    given = arguments(tmp_path, **{name: VOID[name]}) if name == "debug" else None
    setattr(host.args, name, VOID[name] if given is None else given.debug)
    with pytest.raises(InvalidArgumentError, match=name):
        host.train()
    assert host.training is None


OF_OTHERS = {"n_gpu": 2, "fsdp": "full_shard", "deepspeed": {"zero": 1}, "group_by_length": True}


@pytest.mark.parametrize(("name", "value"), OF_OTHERS.items())
def test_arguments_that_this_machine_or_version_lacks_are_refused_as_well(name, value):
    with pytest.raises(InvalidArgumentError, match=name):
        check_arguments(type("Arguments", (), {name: value})())


def test_every_argument_of_the_table_is_one_of_the_hosts():
    """A renamed argument would be checked no more."""
    of_other_versions = {"group_by_length", "half_precision_backend", "tpu_num_cores"}
    assert {name for name in REFUSED if not hasattr(TrainingArguments(use_cpu=True), name)} <= of_other_versions


def test_the_hosts_own_defaults_are_accepted(tmp_path):
    host = PrivateTrainer(llama(), TrainingArguments(str(tmp_path), use_cpu=True), pad, Sequences(), plan=make_plan())
    assert (host.args.max_steps, host.args.max_grad_norm) == (6, 0.0)


def test_arguments_can_serve_another_plan_later(tmp_path):
    given = arguments(tmp_path)
    for steps in (6, 9):
        host = PrivateTrainer(llama(), given, pad, Sequences(), plan=make_plan(steps))
        assert host.args.max_steps == steps
    assert given.max_steps == -1


@pytest.mark.parametrize(("options", "agrees"), [
    ({"max_steps": 6}, True),
    ({"max_steps": 7}, False),
    ({"num_train_epochs": 1.5}, True),  # 32 examples in steps of 8
    ({"num_train_epochs": 2}, False),
    ({"num_train_epochs": 3}, False),  # the default is 3.0
    ({"num_train_epochs": 0.1}, False),
    ({"num_train_epochs": 2, "max_steps": 6}, True),  # the host leaves epochs out then
    ({"per_device_train_batch_size": 8}, True),
    ({"per_device_train_batch_size": 9}, False),
])  # fmt: skip
def test_steps_and_batch_size_agree_with_the_plan(tmp_path, options, agrees):
    if agrees:
        assert trainer(tmp_path, **options).args.max_steps == 6
        return
    (name,) = options
    with pytest.raises(InvalidArgumentError, match=rf"TrainingArguments\.{name} is {options[name]}; it must be"):
        trainer(tmp_path, **options)


def test_batch_size_per_device_and_workers_say_how_examples_are_read(tmp_path, monkeypatch):
    given = {}

    class Watched(privet.Training):
        def __init__(self, *args, **options):
            given.update(options)
            super().__init__(*args, **options)

    monkeypatch.setattr("privet.integrations.transformers.trainer.Training", Watched)
    options = {"per_device_train_batch_size": 5, "dataloader_num_workers": 1}
    trainer(tmp_path, plan=make_plan(1), given={"reading": None}, **options).train()
    assert given["physical_batch_size"] == 5
    assert given["reading"].workers == 1
    reading = privet.Reading(probe=False)
    trainer(tmp_path, plan=make_plan(1), given={"reading": reading}).train()
    assert given["reading"] is reading


@pytest.mark.parametrize(("name", "below"), [
    ("compute_loss", True), ("training_step", False), ("get_train_dataloader", True), ("_get_train_sampler", False),
    ("get_batch_samples", True),
])  # fmt: skip
def test_overrides_that_training_would_leave_out_are_refused(tmp_path, name, below):
    override = {name: lambda self, *args, **kwargs: None}
    if below:
        kind = type("Mine", (PrivateTrainer,), override)
    else:
        kind = type("Mine", (PrivateTrainerMixin, type("Theirs", (Trainer,), override)), {})
    with pytest.raises(InvalidArgumentError, match=rf"{name} is 'an override'"):
        trainer(tmp_path, kind=kind)


def test_losses_of_whole_batches_are_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"compute_loss_func.*num_items_in_batch"):
        trainer(tmp_path, given={"compute_loss_func": lambda outputs, labels, num_items_in_batch: 0})


def test_loaders_streams_and_frames_are_refused(tmp_path):
    pandas = pytest.importorskip("pandas")
    loader = torch.utils.data.DataLoader(Sequences(), collate_fn=pad)

    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(Sequences().rows)

    for data in (loader, Stream(), pandas.DataFrame({"input_ids": [1, 2]})):
        with pytest.raises(InvalidArgumentError, match=r"dataset is .*; it must be"):
            trainer(tmp_path, data=data)


def test_training_data_are_neither_evaluated_on_nor_predicted(tmp_path):
    data = Sequences()
    for given in (data, {"train": data}):
        with pytest.raises(InvalidArgumentError, match="eval_dataset is 'the training set'"):
            trainer(tmp_path, data=data, given={"eval_dataset": given})
    host = trainer(tmp_path, data=data)
    with pytest.raises(InvalidArgumentError, match="eval_dataset is 'the training set'"):
        host.evaluate(data)
    host.eval_dataset = data
    with pytest.raises(InvalidArgumentError, match="eval_dataset is 'the training set'"):
        host.evaluate()
    assert host.predict(Sequences(4, seed=1)).predictions.shape[0] == 4
    with pytest.raises(InvalidArgumentError, match="test_dataset is 'the training set'"):
        host.predict(host.train_dataset)


def test_float16_from_the_environment_of_accelerate_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp16")
    with pytest.raises(InvalidArgumentError, match=r"mixed_precision of accelerate is 'fp16'.*bf16.*ACCELERATE_MIXED_PRECISION"):
        trainer(tmp_path)


@pytest.mark.parametrize("kind", ["FSDP", "DEEPSPEED", "MEGATRON_LM", "XLA"])
def test_divided_models_from_the_configuration_of_accelerate_are_refused(kind):
    told = SimpleNamespace(distributed_type=DistributedType[kind])
    with pytest.raises(InvalidArgumentError, match=rf"distributed_type of accelerate is '{kind}'.*torchrun"):
        check_processes(told)


def test_searches_and_trainers_without_a_plan_are_refused(tmp_path):
    with pytest.raises(PrivetError, match=r"privet\.tuning\.search"):
        trainer(tmp_path).hyperparameter_search()
    with pytest.raises(InvalidArgumentError, match="plan is 'dict'"):
        trainer(tmp_path, plan={"epsilon": 3})
