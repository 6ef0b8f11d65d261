"""Attacks that couple examples within the model or the loss."""

from __future__ import annotations

import torch
from harness import Task, attack, bounded
from materials import CLASSES, WIDTH, Body, classify, model_of, perceptron, points
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

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
