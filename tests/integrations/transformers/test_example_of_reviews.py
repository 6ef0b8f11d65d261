"""The example of adapters for the sentiment of reviews, with a tiny encoder of random weights in place of MiniLM."""

import argparse
import gzip
import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")
pytest.importorskip("peft")

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel

import privet
from privet.integrations.transformers.label_loss import label_loss

EXAMPLE = Path(__file__).parents[3] / "examples" / "sst2_lora.py"
WIDTH = 16
WORDS = ["[PAD]", "[UNK]", "good", "bad", "a", "film", "that", "one", "may", "see", "on", "any", "day"]


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location(EXAMPLE.stem, EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tiny(example, monkeypatch):
    """Replace tokenizer and network, and return the encoder."""
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 6, "num_attention_heads": 2}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    encoder = BertModel(BertConfig(vocab_size=len(WORDS), **sizes, **dropout), add_pooling_layer=False)
    monkeypatch.setattr(example, "tokenizer", lambda: words)
    monkeypatch.setattr(example, "pretrained", lambda: argparse.Namespace(encoder=encoder))
    monkeypatch.setattr(example, "WIDTH", WIDTH)
    return encoder


def reviews(number):
    return "".join(
        f"{place % 2}\ta {('bad', 'good')[place % 2]} film {'that one may see ' * (place % 3)}\n" for place in range(number)
    )


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / "private.tsv.gz", tmp_path / "public.tsv.gz"]
    for path, number in zip(paths, (60, 40), strict=True):
        path.write_bytes(gzip.compress(f"label\tsentence\n{reviews(number)}".encode()))
    return paths


def test_it_trains_from_files_and_says_what_it_promises(example, tiny, files, tmp_path, monkeypatch, capsys):
    sizes = ["--epsilon", "50", "--delta", "1e-3", "--batch-size", "20", "--epochs", "1"]
    monkeypatch.setattr("sys.argv", ["", *map(str, files), *sizes, "--out", str(tmp_path / "out"), "--cpu"])
    example.main()
    printed = capsys.readouterr().out
    assert "differential privacy for one example" in printed
    assert "ε = 50.00: accuracy" in printed
    assert "on 40 public texts" in printed


@pytest.mark.filterwarnings("ignore::privet.errors.PrivetWarning")
def test_only_adapters_of_the_last_layers_and_the_head_are_trained(example, tiny, files, tmp_path):
    rows = example.read(files[0])
    options = {"epsilon": 50.0, "delta": 1e-3, "batch_size": 20.0, "epochs": 1.0, "out": str(tmp_path), "cpu": True, "bf16": True}
    trainer, found = example.train(tiny, WIDTH, rows, rows[:20], argparse.Namespace(**options))
    trained = {name for name, parameter in trainer.model.named_parameters() if parameter.requires_grad}
    assert {name.split("layer.")[1][0] for name in trained if "lora" in name} == {*"345"}
    assert {name for name in trained if "lora" not in name} == {
        f"base_model.model.head.modules_to_save.default.{part}" for part in ("weight", "bias")
    }
    assert all(parameter.abs().sum() > 0 for name, parameter in trainer.model.named_parameters() if "lora_B" in name)
    assert 0 <= found <= 1


def test_the_head_starts_at_one_for_the_mean_of_praise_and_minus_one_for_blame(example, tiny):
    classifier = example.Classifier(tiny, WIDTH).eval()
    blame, praise = (example.collate(example.encode([f"a {word} film"], [label])) for label, word in enumerate(("bad", "good")))
    classifier.start(blame, praise)
    for batch, value in ((blame, -1.0), (praise, 1.0)):
        torch.testing.assert_close(classifier(**batch).logits, torch.tensor([[-value, value]]), atol=1e-4, rtol=1e-4)


def test_a_text_moves_the_sum_by_at_most_the_bound(example, tiny):
    bound = 0.05
    rows = example.encode(["good film", "bad film", "a bad film", "bad bad bad"], [1, 0, 0, 1])
    classifier, rule = example.Classifier(tiny, WIDTH), privet.clipping.Flat(bound)
    batches = [example.collate(rows[first:]) for first in (0, 1)]
    sums = [privet.clipped_sum(classifier, label_loss(False), batch, rule).tensors for batch in batches]
    moved = sum((sums[0][name] - sums[1][name]).double().square().sum() for name in sums[0]).sqrt()
    assert 0.5 * bound < moved <= bound * 1.0001
