from collections import UserDict

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import privet
from privet.collate import Tokens
from privet.reading.batches import check_dataset

VOCABULARY, LONGEST, BOUND = 30, 11, 0.05
LENGTHS = [1, 3, 3, 7, LONGEST, 7, 2, 3, 5, LONGEST, 4, 6]


def row(length, kind=dict, seed=0):
    ids = torch.randint(1, VOCABULARY, (length,), generator=torch.Generator().manual_seed(length + seed)).tolist()
    return kind({"input_ids": ids, "labels": [-100] * (length // 3) + ids[length // 3 :]})


class Tagger(nn.Module):
    """Predicts every token from the mean of all that are not padding."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.words, self.output = nn.Embedding(VOCABULARY, 6), nn.Linear(6, VOCABULARY)

    def forward(self, input_ids, attention_mask=None):
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        embedded = self.words(input_ids) * mask[..., None]
        return self.output(torch.tanh(embedded + embedded.sum(1, keepdim=True) / mask.sum(1)[:, None, None].clamp(min=1)))


def loss_fn(model, batch):
    """Cross entropy of the example's own label tokens, mean over them."""
    logits, labels = model(batch["input_ids"], batch.get("attention_mask")), batch["labels"]
    losses = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none", ignore_index=-100)
    return losses.sum(1) / (labels != -100).sum(1).clamp(min=1)


def weights(collate=None, kind=dict, physical_batch_size=256):
    plan = privet.Plan(
        examples=len(LENGTHS), sampling=privet.sampling.FullBatch(), steps=3, delta=1e-5,
        clipping=privet.clipping.Flat(BOUND), noise=privet.noise.Gaussian(0.0, non_private=True),
    )  # fmt: skip
    model = Tagger()
    data = [row(length, kind) for length in LENGTHS]
    training = privet.Training(
        plan, model, loss_fn, torch.optim.SGD(model.parameters(), lr=2.0), data, collate=collate,
        physical_batch_size=physical_batch_size,
    )  # fmt: skip
    training.run()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


@pytest.mark.parametrize(
    ("collate", "kind"), [(Tokens(multiple=4), dict), (Tokens(lengths=(5, LONGEST)), UserDict), (None, dict)]
)
def test_padding_and_passes_of_one_length_give_the_same_updates(collate, kind):
    expected = weights(physical_batch_size=1)
    assert not torch.equal(expected, torch.cat([parameter.detach().flatten() for parameter in Tagger().parameters()]))
    torch.testing.assert_close(weights(collate, kind), expected, rtol=1e-4, atol=1e-6)


def test_rows_of_transformers_and_datasets_are_rows_of_tokens():
    transformers, datasets = pytest.importorskip("transformers"), pytest.importorskip("datasets")
    assert torch.equal(weights(kind=transformers.BatchEncoding), weights())
    listed = datasets.Dataset.from_list([row(length) for length in LENGTHS])
    check_dataset(listed, len(LENGTHS))
    assert Tokens(multiple=4)([listed[1]])["input_ids"].shape == (1, 4)


def test_functions_over_batches_take_any_mapping():
    """Such as the `BatchEncoding` that a tokenizer returns for several texts of one length."""
    batch = {"input_ids": torch.tensor([[3, 4], [5, 6], [7, 8]]), "labels": torch.tensor([[3, 4], [5, 6], [7, 8]])}
    found = privet.per_example_gradients(Tagger(), loss_fn, UserDict(batch))
    expected = privet.per_example_gradients(Tagger(), loss_fn, batch)
    assert all(torch.equal(gradient, expected[name]) for name, gradient in found.items())
    assert torch.equal(
        privet.per_example_norms(Tagger(), loss_fn, UserDict(batch)), privet.per_example_norms(Tagger(), loss_fn, batch)
    )
