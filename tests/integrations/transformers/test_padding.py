import dataclasses
from types import SimpleNamespace

import pytest

pytest.importorskip("transformers")

import torch
from tiny_trainings import VOCABULARY, arguments, bert, make_plan, noiseless_plan
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    DataCollatorWithPadding,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from privet.errors import PrivetWarning
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


@pytest.mark.parametrize(("limits", "lengths"), [
    ((), {5: 16, 16: 16, 70: 80}),
    ((77,), {5: 16, 60: 64, 65: 77, 77: 77}),
    ((20, 77), {5: 16, 17: 20, 20: 20, 21: 32, 70: 77}),
    ((77,), {90: 96}),  # too long for the model, whatever it is padded to
])  # fmt: skip
def test_no_example_is_padded_past_what_the_model_takes(limits, lengths):
    collate = with_public_lengths(DataCollatorWithPadding(tokenizer()), limits)
    assert {length: padded(collate, length) for length in lengths} == lengths


@pytest.mark.parametrize("options", [{"pad_to_multiple_of": 5}, {"padding": "max_length", "max_length": 21}])
def test_what_the_user_chose_stays(options):
    collate = DataCollatorWithPadding(tokenizer(), **options)
    assert with_public_lengths(collate, (20,)) is collate


def test_the_trainer_takes_the_lengths_of_model_and_tokenizer(tmp_path):
    def of(collate, **options):
        rows = [{**row(5), "labels": 0} for _ in range(4)]
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


def test_a_frozen_collator_is_left():
    assert padded(with_public_lengths(Frozen(), (30,)), 5) == 5


def small_gpt2(kind, **options):
    torch.manual_seed(0)
    sizes = {"n_positions": 64, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 1, "eos_token_id": 1}
    dropout = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    return kind(GPT2Config(vocab_size=VOCABULARY, **sizes, **dropout, **options))


def words_model(side, pad=0):
    collate = DataCollatorForLanguageModeling(tokenizer(padding_side=side), mlm=False)
    return small_gpt2(GPT2LMHeadModel, pad_token_id=pad), collate, {}


def class_model(side, pad):
    return (
        small_gpt2(GPT2ForSequenceClassification, pad_token_id=pad, num_labels=2),
        DataCollatorWithPadding(tokenizer(padding_side=side)),
        {"labels": 1},
    )


def masked_model():
    return BertForMaskedLM(bert().config), DataCollatorForLanguageModeling(tokenizer(mask_token="w2")), {}


@pytest.mark.parametrize(("made", "changes"), [
    (lambda: words_model("left"), True),
    (lambda: words_model("right"), False),
    (lambda: class_model("right", None), True),
    (lambda: class_model("right", 0), False),
    (masked_model, False),  # random masks alone change nothing
], ids=["positions shift", "padded on the right", "the last token counts", "the pad token is known", "random masks"])  # fmt: skip
def test_where_padding_changes_the_gradient_examples_have_their_own_lengths(tmp_path, made, changes, recwarn):
    """The sum of gradients is that of a loop over the unpadded texts."""
    model, collate, more = made()
    rows = [{**row(length), **more} for length in (20, 20, 9, 20)]
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    model.train()
    own = None
    if not isinstance(model, BertForMaskedLM):
        for each in rows:
            model(**collate([each])).loss.backward()
        own = {name: value.grad.clone() for name, value in model.named_parameters()}
        model.zero_grad(set_to_none=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    host = PrivateTrainer(
        model, arguments(tmp_path), collate, rows, plan=noiseless_plan(4, 1e6), optimizers=(optimizer, schedule)
    )  # fmt: skip
    host.train()
    told = [each for each in recwarn if issubclass(each.category, PrivetWarning) and "padding changes" in str(each.message)]
    assert bool(told) == changes
    assert padded(host._private_parts()[1], 20) == (20 if changes else 32)
    for name, value in model.named_parameters() if own is not None else ():
        assert torch.allclose((before[name] - value.detach()) * 4, own[name], rtol=1e-3, atol=1e-5), name
