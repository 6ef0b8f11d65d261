"""Public lengths: multiples of 16, none past what the model takes, and only where padding leaves the loss as it is."""

import dataclasses
from types import SimpleNamespace

import pytest

pytest.importorskip("transformers")

import torch
from tiny_trainings import VOCABULARY, arguments, bert, make_plan
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import DataCollatorWithPadding, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from privet.integrations.transformers import PrivateTrainer
from privet.integrations.transformers.padding import longest_inputs, with_public_lengths


def tokenizer(**options):
    made = Tokenizer(models.WordLevel({"[PAD]": 0, **{f"w{one}": one for one in range(1, VOCABULARY)}}, unk_token="w1"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="w1", **options)


def row(length):
    return {"input_ids": [one % (VOCABULARY - 1) + 1 for one in range(length)], "attention_mask": [1] * length}


def padded(collate, length):
    return collate([row(length)])["input_ids"].shape[1]


@pytest.mark.parametrize(
    ("limits", "lengths"),
    [
        ((), {5: 16, 16: 16, 70: 80}),
        ((77,), {5: 16, 60: 64, 65: 77, 77: 77}),
        ((20, 77), {5: 16, 17: 20, 20: 20, 21: 32, 70: 77}),
        ((77,), {90: 96}),  # too long for the model, whatever it is padded to
    ],
)
def test_no_example_is_padded_past_what_the_model_takes(limits, lengths):
    collate = with_public_lengths(DataCollatorWithPadding(tokenizer()), limits)
    assert {length: padded(collate, length) for length in lengths} == lengths


@pytest.mark.parametrize("options", [{"pad_to_multiple_of": 5}, {"padding": "max_length", "max_length": 21}])
def test_what_the_user_chose_stays(options):
    collate = DataCollatorWithPadding(tokenizer(), **options)
    assert with_public_lengths(collate, (20,)) is collate


def test_the_trainer_takes_the_lengths_of_model_and_tokenizer(tmp_path):
    def of(collate, **options):
        rows = [{**row(5), "labels": 0}] * 4
        host = PrivateTrainer(bert(), arguments(tmp_path), collate, rows, plan=make_plan(1, examples=4, batch_size=2), **options)
        return host._private_parts()[1]

    assert padded(of(DataCollatorWithPadding(tokenizer())), 32) == 32  # bert has 32 positions
    assert padded(of(DataCollatorWithPadding(tokenizer(model_max_length=25))), 20) == 25
    assert padded(of(DataCollatorWithPadding(tokenizer(), max_length=25)), 20) == 25


def test_virtual_tokens_take_positions():
    peft = pytest.importorskip("peft")
    sizes = {"n_positions": 30, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 0, "eos_token_id": 0}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **sizes))
    assert longest_inputs(model) == (30,)
    tuned = peft.get_peft_model(model, peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4))
    assert longest_inputs(tuned, SimpleNamespace(model_max_length=int(1e30)), None, 12) == (12, 26, int(1e30))


@dataclasses.dataclass(frozen=True)
class Frozen:
    pad_to_multiple_of: int | None = None

    def __call__(self, rows):
        length = -(-len(rows[0]["input_ids"]) // (self.pad_to_multiple_of or 1)) * (self.pad_to_multiple_of or 1)
        return {"input_ids": torch.tensor([rows[0]["input_ids"] + [0] * (length - len(rows[0]["input_ids"]))])}


class Fixed(Frozen):
    """A frozen one that cannot be made again with another multiple."""

    def __init__(self):
        super().__init__(None)


@pytest.mark.parametrize(("collate", "length"), [(Frozen(), 16), (Fixed(), 5)])
def test_a_frozen_collator_is_replaced_or_left(collate, length):
    assert padded(with_public_lengths(collate, (30,)), 5) == length
    assert collate.pad_to_multiple_of is None
