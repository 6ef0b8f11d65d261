"""Tiny models with random weights, token data of several lengths, and trainers over them that run in a second."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    TrainingArguments,
)

import privet
from privet.integrations.transformers import PrivateTrainer

VOCABULARY = 40
EXAMPLES = 32
LONGEST = 12


class Sequences(Dataset):
    """Sequences of several lengths; the labels leave out a prompt of two tokens."""

    def __init__(self, number=EXAMPLES, seed=0, shortest=4):
        generator = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(number):
            length = int(torch.randint(shortest, LONGEST + 1, (), generator=generator))
            tokens = torch.randint(1, VOCABULARY, (length,), generator=generator).tolist()
            self.rows.append({"input_ids": tokens, "labels": [-100] * 2 + tokens[2:]})

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class Labelled(Sequences):
    """Sequences with one of two classes each."""

    def __getitem__(self, index):
        row = self.rows[index]
        return {"input_ids": row["input_ids"], "labels": row["input_ids"][0] % 2}


def pad(rows, multiple=16):
    """Pad a batch to a multiple of 16, so that all examples share a pass."""
    length = -(-max(len(row["input_ids"]) for row in rows) // multiple) * multiple

    def filled(name, value):
        return torch.tensor([row[name] + [value] * (length - len(row[name])) for row in rows])

    ids, lengths = filled("input_ids", 0), torch.tensor([[len(row["input_ids"])] for row in rows])
    whole = isinstance(rows[0]["labels"], int)
    labels = torch.tensor([row["labels"] for row in rows]) if whole else filled("labels", -100)
    return {"input_ids": ids, "attention_mask": (torch.arange(length) < lengths).long(), "labels": labels}


def llama():
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=VOCABULARY, num_hidden_layers=1, max_position_embeddings=32, pad_token_id=0, **sizes)
    )


def gpt2():
    sizes = {"n_positions": 32, "n_embd": 16, "n_layer": 1, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0, **sizes))


def bert():
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return BertForSequenceClassification(
        BertConfig(vocab_size=VOCABULARY, max_position_embeddings=32, num_labels=2, pad_token_id=0, **sizes)
    )


def lora(model=None, **options):
    from peft import LoraConfig, get_peft_model

    options = {"r": 2, "target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM", **options}
    return get_peft_model(llama() if model is None else model, LoraConfig(**options))


def make_plan(steps=6, examples=EXAMPLES, batch_size=8, bound=0.7, multiplier=1.3, **options):
    return privet.Plan(
        examples=examples,
        sampling=privet.sampling.Poisson(batch_size=batch_size),
        steps=steps,
        clipping=privet.clipping.Flat(bound=bound),
        delta=1e-3,
        noise=privet.noise.Gaussian(multiplier=multiplier),
        **options,
    )


def noiseless_plan(examples, bound):
    return privet.Plan(
        examples=examples,
        sampling=privet.sampling.FullBatch(),
        steps=1,
        clipping=privet.clipping.Flat(bound=bound),
        delta=1e-3,
        noise=privet.noise.Gaussian(multiplier=0.0, non_private=True),
    )


def arguments(folder, **options):
    options = {"logging_steps": 1, "save_strategy": "no", "learning_rate": 1e-2, "report_to": [], **options}
    return TrainingArguments(output_dir=str(folder), use_cpu=True, disable_tqdm=True, **options)


def trainer(folder, *, model=None, data=None, kind=PrivateTrainer, given=None, plan=None, probe=False, **options):
    """Return a private trainer; `given` are arguments of the trainer, the others are TrainingArguments.

    The check before the first step, which takes longer than the steps, is made by tests that are about it.
    """
    return kind(
        model=llama() if model is None else model,
        args=arguments(folder, **options),
        train_dataset=Sequences() if data is None else data,
        data_collator=pad,
        plan=make_plan() if plan is None else plan,
        **({"reading": privet.Reading(probe=probe)} | (given or {})),
    )
