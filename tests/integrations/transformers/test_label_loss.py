import pytest

from rounding import assert_equal_up_to_rounding

pytest.importorskip("transformers")

import torch
from tiny_trainings import VOCABULARY, Labelled, Sequences, bert, gpt2, llama, lora, pad
from transformers import (
    BartConfig,
    BartForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    M2M100Config,
    M2M100ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    XLMConfig,
    XLMWithLMHeadModel,
)

from privet.errors import InvalidArgumentError
from privet.integrations.transformers.label_loss import label_loss, predicts_next_token


def t5():
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    return T5ForConditionalGeneration(T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, pad_token_id=0, **sizes))


def bart_classes():
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    special = {"vocab_size": EOS + 1, "pad_token_id": 0, "eos_token_id": EOS}
    return BartForSequenceClassification(BartConfig(**special, **sizes, **heads, num_labels=2))


def m2m():
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    special = {"vocab_size": VOCABULARY, "pad_token_id": 0, "decoder_start_token_id": 1}
    return M2M100ForConditionalGeneration(M2M100Config(**special, **sizes, **heads))


def xlm():
    return XLMWithLMHeadModel(XLMConfig(vocab_size=VOCABULARY, emb_dim=16, n_layers=1, n_heads=2, pad_index=0))


def masked_bert():
    return BertForMaskedLM(bert().config)


def tagging_bert():
    return BertForTokenClassification(bert().config)


EOS = VOCABULARY
TEXT, TAGS = (
    Sequences(5).rows,
    [{**row, "labels": [-100, *(token % 2 for token in row["input_ids"][1:])]} for row in Sequences(5).rows],
)
CLASSES = [Labelled(5)[index] for index in range(5)]
MODELS = {
    "causal": (llama, TEXT), "causal, tied": (gpt2, TEXT), "adapter": (lora, TEXT), "classes": (bert, CLASSES),
    "encoder and decoder": (t5, TEXT), "masked": (masked_bert, TEXT), "tags": (tagging_bert, TAGS),
    "encoder and decoder, shifted by the model alone": (m2m, TEXT), "not shifted though it generates": (xlm, TEXT),
    "classes, with a decoder": (bart_classes, [{**row, "input_ids": [*row["input_ids"], EOS]} for row in CLASSES]),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_each_loss_is_that_of_the_model_for_the_example_alone(name):
    make, rows = MODELS[name]
    model = make().eval()
    loss = label_loss(predicts_next_token(model))
    together = loss(model, pad(rows))
    alone = torch.stack([model(**pad([row], multiple=1)).loss for row in rows])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


def test_other_examples_do_not_change_a_loss():
    model = llama().eval()
    loss = label_loss(True)
    batch = pad(TEXT)
    changed = {name: torch.cat([value[:1], value[1:].flip(0) * 0]) for name, value in batch.items()}
    changed["attention_mask"] = batch["attention_mask"]
    assert_equal_up_to_rounding(loss(model, batch)[0], loss(model, changed)[0])


def test_an_example_without_labels_has_a_loss_and_a_gradient_of_zero():
    model = llama()
    batch = pad(TEXT[:1])
    found = label_loss(True)(model, {**batch, "labels": torch.full_like(batch["labels"], -100)})
    assert found.tolist() == [0.0]
    found.sum().backward()
    assert all(not value.grad.any() for value in model.parameters())


@pytest.mark.parametrize("masked", [2, 0])
def test_the_loss_of_prompt_tuning_leaves_out_the_virtual_tokens(masked):
    """The last virtual token predicts the first token of the text."""
    peft = pytest.importorskip("peft")
    rows = [{**row, "labels": [-100] * masked + row["input_ids"][masked:]} for row in TEXT]
    model = peft.get_peft_model(llama(), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)).eval()
    found = label_loss(predicts_next_token(model))(model, pad(rows))
    alone = torch.stack([model(**pad([row], multiple=1)).loss for row in rows])
    torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("labels", [None, torch.tensor([0.5])])
def test_other_tasks_need_a_loss(labels):
    batch = {"input_ids": torch.tensor([[1, 2]])} | ({} if labels is None else {"labels": labels})
    with pytest.raises(InvalidArgumentError, match="loss_fn is 'left out for labels of type"):
        label_loss(False)(bert(), batch)


@pytest.mark.parametrize("labels", [[0], [[0, 1]]], ids=["one output", "several labels at once"])
def test_labels_that_do_not_fit_the_outputs_need_a_loss(labels):
    """Cross entropy of one output would be zero whatever it says."""
    model = BertForSequenceClassification(
        BertConfig(**{**bert().config.to_dict(), "num_labels": len(torch.tensor(labels).flatten())})
    )
    with pytest.raises(InvalidArgumentError, match=r"labels of shape .* and logits of shape .* regression.*loss per example"):
        label_loss(False)(model, {"input_ids": torch.tensor([[1, 2]]), "labels": torch.tensor(labels)})


class Returning(torch.nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.inner = how, torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.how(self.inner(x))


def test_a_model_of_the_users_own_may_return_a_dict():
    batch = {"x": torch.ones(2, 3), "labels": torch.tensor([0, 1])}
    model = Returning(lambda logits: {"logits": logits})
    expected = torch.nn.functional.cross_entropy(model.inner(batch["x"]), batch["labels"], reduction="none")
    assert_equal_up_to_rounding(label_loss(False)(model, batch), expected)
    with pytest.raises(InvalidArgumentError, match="a model that returns a tuple without logits"):
        label_loss(False)(Returning(lambda logits: (logits,)), batch)
