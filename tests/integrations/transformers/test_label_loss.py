"""The default loss: per example, and equal to the loss that a model of transformers computes for it alone."""

import pytest

pytest.importorskip("transformers")

import torch
from tiny_trainings import VOCABULARY, Labelled, Sequences, bert, gpt2, llama, lora, pad
from transformers import BertForMaskedLM, BertForTokenClassification, T5Config, T5ForConditionalGeneration

from privet.errors import InvalidArgumentError
from privet.integrations.transformers.label_loss import label_loss, predicts_next_token


def t5():
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    return T5ForConditionalGeneration(T5Config(vocab_size=VOCABULARY, decoder_start_token_id=0, pad_token_id=0, **sizes))


def masked_bert():
    return BertForMaskedLM(bert().config)


def tagging_bert():
    return BertForTokenClassification(bert().config)


TEXT, TAGS = (
    Sequences(5).rows,
    [{**row, "labels": [-100, *(token % 2 for token in row["input_ids"][1:])]} for row in Sequences(5).rows],
)
CLASSES = [Labelled(5)[index] for index in range(5)]
MODELS = {
    "causal": (llama, TEXT), "causal, tied": (gpt2, TEXT), "adapter": (lora, TEXT), "classes": (bert, CLASSES),
    "encoder and decoder": (t5, TEXT), "masked": (masked_bert, TEXT), "tags": (tagging_bert, TAGS),
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
    assert torch.allclose(loss(model, batch)[0], loss(model, changed)[0])


def test_an_example_without_labels_has_a_loss_and_a_gradient_of_zero():
    model = llama()
    batch = pad(TEXT[:1])
    found = label_loss(True)(model, {**batch, "labels": torch.full_like(batch["labels"], -100)})
    assert found.tolist() == [0.0]
    found.sum().backward()
    assert all(not value.grad.any() for value in model.parameters())


def test_the_loss_of_prompt_tuning_leaves_out_the_virtual_tokens():
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(llama(), peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)).eval()
    found = label_loss(predicts_next_token(model))(model, pad(TEXT))
    alone = torch.stack([model(**pad([row], multiple=1)).loss for row in TEXT])
    torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("labels", [None, torch.tensor([0.5])])
def test_other_tasks_need_a_loss(labels):
    batch = {"input_ids": torch.tensor([[1, 2]])} | ({} if labels is None else {"labels": labels})
    with pytest.raises(InvalidArgumentError, match="loss_fn is 'left out for labels of type"):
        label_loss(False)(bert(), batch)
