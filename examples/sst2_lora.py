"""Sentiment of film reviews at ε = 2: low-rank adapters of a pretrained sentence encoder, trained by `PrivateTrainer`.

MiniLM was pretrained on public sentences. The private texts train adapters of its last layers and a linear classifier on the
mean of its outputs. The classifier starts at the difference between made-up praise and made-up blame. The files have a header
and a line "label<tab>text" for each text, plain or gzipped; label 1 is praise:

    python examples/sst2_lora.py train.tsv.gz dev.tsv.gz --epsilon 2 --bf16

No setting was tuned on the private texts: rank, layers and learning rates are usual for adapters. Three epochs of large batches
take about 25 minutes on one core.
"""

import argparse
import gzip
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional as F
from transformers import TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput

import privet
from privet.integrations.transformers import PrivateTrainer
from privet.models.pretrained.minilm import WIDTH, pretrained, tokenizer

ADAPTED = r".*layer\.[345]\.attention\.self\.(query|value)"
RATES = {"head": 1e-2, "adapters": 3e-3}
# Public: made up for this example.
BLAME = ["terrible", "boring", "a bad film", "dull and stupid", "a mess that fails", "the worst movie of the year", "it is awful"]
PRAISE = [
    "wonderful", "fun", "a good film", "moving and clever", "a work that succeeds", "the best movie of the year", "it is great",
]  # fmt: skip


class Classifier(torch.nn.Module):
    """A linear layer on the mean of an encoder's outputs over a text's tokens."""

    def __init__(self, encoder, width):
        super().__init__()
        self.encoder, self.head = encoder, torch.nn.Linear(width, 2)

    def embed(self, input_ids, attention_mask):
        """Return the mean of the outputs over the tokens of each text, (B, width)."""
        found = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(found)
        return (found * mask).sum(1) / mask.sum(1).clamp(min=1.0)

    @torch.no_grad()
    def start(self, blame, praise):
        """Set the head so that the mean of either batch of public texts has logits ±1."""
        bad, good = (self.embed(batch["input_ids"], batch["attention_mask"]).mean(0) for batch in (blame, praise))
        direction = (good - bad) * 2 / (good - bad).square().sum()
        self.head.weight.copy_(torch.stack([-direction, direction]))
        self.head.bias.copy_(self.head.weight @ (-(good + bad) / 2))

    def forward(self, input_ids, attention_mask, labels=None):
        """Return the logits of each text, and the loss on public texts for the host's log."""
        logits = self.head(self.embed(input_ids, attention_mask))
        return SequenceClassifierOutput(loss=None if labels is None else F.cross_entropy(logits, labels), logits=logits)


def read(path):
    """Return a row of tokens and a label for each text."""
    content = Path(path).read_bytes()
    lines = (gzip.decompress(content) if str(path).endswith(".gz") else content).decode().split("\n")[1:]
    labels, texts = zip(*(line.split("\t", 1) for line in lines if line), strict=True)
    return encode(texts, labels)


def encode(texts, labels):
    """Return a row of tokens and a label for each text."""
    encoder = tokenizer()
    encoder.no_padding()
    rows = encoder.encode_batch(list(texts))
    return [{"input_ids": row.ids, "labels": int(label)} for row, label in zip(rows, labels, strict=True)]


def collate(rows, multiple=4):
    """Return rows as a batch, padded to a multiple of tokens; a row's length depends on this row alone."""
    length = max(-(-len(row["input_ids"]) // multiple) * multiple for row in rows)
    tokens = torch.zeros(len(rows), length, dtype=torch.long)
    mask = torch.zeros(len(rows), length, dtype=torch.long)
    for place, row in enumerate(rows):
        tokens[place, : len(row["input_ids"])] = torch.tensor(row["input_ids"])
        mask[place, : len(row["input_ids"])] = 1
    return {"input_ids": tokens, "attention_mask": mask, "labels": torch.tensor([row["labels"] for row in rows])}


def accuracy(found):
    """Return the accuracy of the predictions."""
    return {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())}


def train(encoder, width, private, public, options):
    """Train adapters and classifier on private rows, and return the trainer and the accuracy on public ones."""
    classifier = Classifier(encoder, width)
    classifier.start(*(collate(encode(texts, [0] * len(texts))) for texts in (BLAME, PRAISE)))
    model = get_peft_model(classifier, LoraConfig(r=8, lora_alpha=16, target_modules=ADAPTED, modules_to_save=["head"]))
    plan = privet.Plan(
        examples=len(private),
        sampling=privet.sampling.Poisson(batch_size=options.batch_size),
        steps=privet.epochs(options.epochs),
        clipping=privet.clipping.Flat(bound=0.1),
        delta=options.delta,
    ).calibrate(epsilon=options.epsilon)
    arguments = TrainingArguments(
        options.out, lr_scheduler_type="linear", per_device_train_batch_size=min(512, int(options.batch_size)),
        per_device_eval_batch_size=32, logging_steps=5, save_strategy="no", report_to="none", use_cpu=options.cpu,
        bf16=options.bf16, remove_unused_columns=False, label_names=["labels"],
    )  # fmt: skip
    parts = {part: [] for part in RATES}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parts["head" if "head" in name else "adapters"].append(parameter)
    optimizer = torch.optim.Adam([{"params": parts[part], "lr": rate} for part, rate in RATES.items()])
    trainer = PrivateTrainer(
        model=model, args=arguments, train_dataset=private, eval_dataset=public, data_collator=collate,
        compute_metrics=accuracy, plan=plan, optimizers=(optimizer, None),
    )  # fmt: skip
    trainer.train()
    return trainer, trainer.evaluate()["eval_accuracy"]


def main():
    """Train on private texts, and evaluate on public ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("private")
    parser.add_argument("public")
    parser.add_argument("--epsilon", type=float, default=2.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--batch-size", type=float, default=2048)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--out", default="runs/sst2-lora")
    parser.add_argument("--cpu", action="store_true", help="do not use a GPU")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16")
    options = parser.parse_args()

    public = sorted(read(options.public), key=lambda row: len(row["input_ids"]))
    trainer, found = train(pretrained().encoder, WIDTH, read(options.private), public, options)
    print(trainer.training.guarantee())
    print(f"ε = {trainer.training.epsilon():.2f}: accuracy {found:.1%} on {len(public)} public texts")


if __name__ == "__main__":
    main()
