"""Attacks that couple examples: in the model or the loss, by reading and collating, by what shows the memory behind one."""

from __future__ import annotations

import copy

import torch
from harness import Task, Verdict, attack, bounded, exact
from materials import CLASSES, WIDTH, Body, Listed, classify, listed, model_of, perceptron, points
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import TensorDataset, default_collate

FAR = points(outlier=40.0)


def averaging():
    """A scalar weight on the mean over time, which longer padding reduces."""

    def forward(self, x):
        return self.scale(x.mean(1))

    model = model_of(forward, scale=nn.Linear(1, 1, bias=False))
    nn.init.constant_(model.scale.weight, 1.5)
    return model


def far_from_target(model, batch):
    return 8 * (model(*batch[:-1])[:, 0] - batch[-1]).square()


@attack("coupling")
def model_cuts_to_the_longest_mask():
    """The model truncates padding to the longest example of the batch, so the result depends on others."""

    def forward(self, x, mask):
        return self.scale(x[:, : int(mask.sum(1).max())].mean(1))

    def make():
        model = model_of(forward, scale=nn.Linear(1, 1, bias=False))
        nn.init.constant_(model.scale.weight, 1.5)
        return model

    lengths = torch.tensor([50] + [3] * 25)
    mask = torch.arange(50) < lengths[:, None]
    x = 2.0 * (torch.arange(50) < 3).expand(26, 50)[..., None].float()
    return bounded(Task(make, far_from_target), TensorDataset(x, mask, torch.ones(26)), remove=(0, 3))


@attack("coupling")
def negatives_of_the_whole_batch():
    """A contrastive loss, but only for batches larger than those of a check."""

    def loss(model, batch):
        losses, z = classify(model, batch), model(batch[0])
        if len(z) > 8:
            losses = losses + F.cross_entropy(z @ z.t(), torch.arange(len(z)), reduction="none")
        return losses

    return bounded(Task(perceptron, loss), FAR, remove=(0, 7))


@attack("coupling")
def loss_repeats_its_mean():
    """Every loss is the mean of all losses."""
    return bounded(Task(perceptron, lambda model, batch: classify(model, batch).mean().expand(len(batch[1]))), FAR, remove=(0, 7))


@attack("coupling")
def attention_between_examples():
    """Rows of the batch attend to each other."""

    def forward(self, x):
        h = self.a(x)
        return self.out(F.scaled_dot_product_attention(h[None], h[None], h[None])[0])

    make = lambda: model_of(forward, a=nn.Linear(WIDTH, 6), out=nn.Linear(6, CLASSES))
    return bounded(Task(make, classify), FAR, remove=(0, 7))


@attack("coupling")
def router_with_places_for_few():
    """Each expert takes the first examples up to its capacity; later ones are dropped."""

    def forward(self, x):
        chosen = (x[:, 0] > 0).long()
        rank = F.one_hot(chosen, 2).cumsum(0).gather(1, chosen[:, None])[:, 0]
        kept = (rank <= max(1, len(x) // 4)).float()[:, None]
        both = torch.stack([self.left(x), self.right(x)], 1)
        return self.out((both[torch.arange(len(x)), chosen] * kept).tanh())

    make = lambda: model_of(forward, left=nn.Linear(WIDTH, 6), right=nn.Linear(WIDTH, 6), out=nn.Linear(6, CLASSES))
    return bounded(Task(make, classify), FAR, remove=(0, 7))


@attack("coupling")
def load_balance_of_experts():
    """An auxiliary loss over how many examples each expert gets is added to every loss."""

    def loss(model, batch):
        share = model[0](batch[0]).softmax(1).mean(0)
        return classify(model, batch) + 5 * share.square().sum()

    return bounded(Task(perceptron, loss), FAR, remove=(0, 7))


@attack("coupling")
def wrong_rule_for_vmap():
    """A user-defined autograd function is correct on a batch, but its vmap rule sums the examples."""

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return 2 * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad

        @staticmethod
        def vmap(info, in_dims, x):
            return 2 * x + x.sum(in_dims[0], keepdim=True), in_dims[0]

    class User(Body):
        def forward(self, x):
            return self.outer(Wrong.apply(self.hidden(x)))

    return bounded(Task(User, classify), FAR, remove=(0, 7))


@attack("coupling")
def collate_pads_to_the_longest():
    """One long sequence reduces the mean over time of all others, and flips the sign of their gradients."""
    items = [(torch.full((60, 1), 0.02), 1.0)] + [(torch.full((3, 1), 2.0), 1.0)] * 40
    collate = lambda few: (pad_sequence([x for x, _ in few], batch_first=True), torch.tensor([y for _, y in few]))
    return bounded(Task(averaging, far_from_target, collate=collate), Listed(items), remove=(0, 1))


@attack("coupling")
def collate_standardises_over_the_batch():
    """Inputs are standardised by the mean and deviation of the batch."""

    def collate(items):
        x, y = default_collate(items)
        return (x - x.mean(0)) / (x.std(0, correction=0) + 1e-6), y

    return bounded(Task(perceptron, classify, collate=collate), listed(FAR), remove=(0, 7))


@attack("coupling")
def collate_appends_the_others_as_context():
    """Every example has the mean of the batch as a second input."""

    def collate(items):
        x, y = default_collate(items)
        return x, x.mean(0, keepdim=True).expand_as(x), y

    make = lambda: model_of(
        lambda self, x, c: self.out(self.a(x).tanh() + self.a(c)), a=nn.Linear(WIDTH, 6), out=nn.Linear(6, CLASSES)
    )
    return bounded(Task(make, classify, collate=collate), listed(FAR), remove=(0, 7))


@attack("coupling")
def getitems_returns_neighbours():
    """`__getitems__` receives all indices at once, and subtracts the mean of the requested examples."""

    class Centred(Listed):
        def __getitems__(self, indices):
            chosen = [self.items[index] for index in indices]
            mean = torch.stack([x for x, _ in chosen]).mean(0)
            return [(x - mean, y) for x, y in chosen]

    return bounded(Task(perceptron, classify), Centred((x, int(y)) for x, y in FAR), remove=(0, 7))


@attack("coupling")
def reading_returns_what_collate_writes_to():
    """Collate centres in place: the data set changes, and the next step reads it."""

    def collate(items):
        for x, _ in items:
            x.sub_(items[0][0].mean())
        return default_collate(items)

    class Fresh(Listed):
        def __getitem__(self, index):
            x, y = self.items[index]
            return x.clone(), y

    return bounded(Task(perceptron, classify, collate=collate, steps=2), Fresh((x, int(y)) for x, y in FAR), remove=(0, 7))


@attack("coupling")
def padding_grows_with_the_physical_batch():
    """The result must not depend on the physical batch size."""
    items = [(torch.randn(2 + k % 5, 1), 1.0) for k in range(12)]
    collate = lambda few: (pad_sequence([x for x, _ in few], batch_first=True), torch.tensor([y for _, y in few]))
    return bounded(
        Task(averaging, far_from_target, collate=collate, options={"physical_batch_size": 5}), Listed(items), remove=(0, 4)
    )


def shown(look) -> Verdict:
    """Return the verdict on a model that scales its hidden units by what `look(x)` returns."""

    class Looking(Body):
        def forward(self, x):
            return self.outer(self.hidden(x) * (1 + look(x.detach())))

    return exact(Task(Looking, classify), FAR, remove=(0, 7))


@attack("coupling")
def deep_copy_of_an_example():
    """`copy.deepcopy` copies the memory of a tensor, where the first example is."""
    return shown(lambda x: copy.deepcopy(x).mean(1, keepdim=True))


@attack("coupling")
def text_of_an_example():
    """The text of a tensor shows all examples."""
    return shown(lambda x: str(x).count("1") / 5)


@attack("coupling")
def results_written_into_one_tensor():
    """`out=` names a tensor that the pass makes, which all examples would share."""

    def look(x):
        numbers, places = torch.empty(1, x.shape[1]), torch.empty(1, x.shape[1], dtype=torch.long)
        torch.sort(x, 1, out=(numbers, places))
        return numbers[:, :1].tanh()

    return shown(look)


@attack("coupling")
def observers_of_quantisation():
    """Observers of activations write to ranges that all examples would share."""

    def make():
        model = nn.Sequential(nn.Linear(WIDTH, 7), nn.ReLU(), nn.Linear(7, CLASSES))
        model.qconfig = torch.ao.quantization.get_default_qat_qconfig("fbgemm")
        return torch.ao.quantization.prepare_qat(model.train())

    return bounded(Task(make, classify), FAR, remove=(0, 7))
