"""Attacks that couple examples: in the model or the loss, by reading and collating, by what shows the memory behind one."""

import copy

import torch
from harness import Task, Verdict, attack, bounded, exact, forward_pass
from materials import CLASSES, WIDTH, Body, Listed, body_of, classify, listed, model_of, perceptron, points
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import TensorDataset, default_collate

FAR = points(outlier=40.0)


def coupled(make=perceptron, data=FAR, remove=(0, 7), **options) -> Verdict:
    """Return the verdict on a model, or by `loss` and `collate` on those, in which examples affect each other."""
    return bounded(Task(make, **{"loss": classify, **options}), data, remove=remove)


def by_loss(loss) -> Verdict:
    return coupled(loss=loss)


def by_collate(collate, make=perceptron) -> Verdict:
    return coupled(make, listed(FAR), collate=collate)


def averaging(length=lambda mask: None):
    """Return a factory of a scalar weight on the mean over time, which longer padding reduces."""

    def forward(self, x, *mask):
        return self.scale(x[:, : length(*mask or [None])].mean(1))

    def make():
        model = model_of(forward, scale=nn.Linear(1, 1, bias=False))
        nn.init.constant_(model.scale.weight, 1.5)
        return model

    return make


def padded(few):
    return pad_sequence([x for x, _ in few], batch_first=True), torch.tensor([y for _, y in few])


def far_from_target(model, batch):
    return 8 * (model(*batch[:-1])[:, 0] - batch[-1]).square()


@attack("coupling")
def model_cuts_to_the_longest_mask():
    """The model truncates padding to the longest example of the batch, so the result depends on others."""
    lengths = torch.tensor([50] + [3] * 25)
    mask = torch.arange(50) < lengths[:, None]
    x = 2.0 * (torch.arange(50) < 3).expand(26, 50)[..., None].float()
    make = averaging(lambda mask: int(mask.sum(1).max()))
    return coupled(make, TensorDataset(x, mask, torch.ones(26)), (0, 3), loss=far_from_target)


@attack("coupling", by_loss)
def negatives_of_the_whole_batch(model, batch):
    """A contrastive loss, but only for batches larger than those of a check."""
    losses, z = classify(model, batch), model(batch[0])
    if len(z) > 8:
        losses = losses + F.cross_entropy(z @ z.t(), torch.arange(len(z)), reduction="none")
    return losses


@attack("coupling", by_loss)
def loss_repeats_its_mean(model, batch):
    """Every loss is the mean of all losses."""
    return classify(model, batch).mean().expand(len(batch[1]))


@forward_pass("coupling", FAR, bounded, (0, 7), a=lambda: nn.Linear(WIDTH, 7))
def attention_between_examples(self, x):
    """Rows of the batch attend to each other."""
    h = self.a(x)
    return self.out(F.scaled_dot_product_attention(h[None], h[None], h[None])[0])


@forward_pass("coupling", FAR, bounded, (0, 7), left=lambda: nn.Linear(WIDTH, 7), right=lambda: nn.Linear(WIDTH, 7))
def router_with_places_for_few(self, x):
    """Each expert takes the first examples up to its capacity; later ones are dropped."""
    chosen = (x[:, 0] > 0).long()
    rank = F.one_hot(chosen, 2).cumsum(0).gather(1, chosen[:, None])[:, 0]
    kept = (rank <= max(1, len(x) // 4)).float()[:, None]
    both = torch.stack([self.left(x), self.right(x)], 1)
    return self.out((both[torch.arange(len(x)), chosen] * kept).tanh())


@attack("coupling", by_loss)
def load_balance_of_experts(model, batch):
    """An auxiliary loss over how many examples each expert gets is added to every loss."""
    share = model[0](batch[0]).softmax(1).mean(0)
    return classify(model, batch) + 5 * share.square().sum()


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

    return coupled(body_of(lambda self, x: self.outer(Wrong.apply(self.hidden(x)))))


@attack("coupling")
def collate_pads_to_the_longest():
    """One long sequence reduces the mean over time of all others, and flips the sign of their gradients."""
    items = [(torch.full((60, 1), 0.02), 1.0)] + [(torch.full((3, 1), 2.0), 1.0)] * 40
    return coupled(averaging(), Listed(items), (0, 1), loss=far_from_target, collate=padded)


@attack("coupling", by_collate)
def collate_standardises_over_the_batch(items):
    """Inputs are standardised by the mean and deviation of the batch."""
    x, y = default_collate(items)
    return (x - x.mean(0)) / (x.std(0, correction=0) + 1e-6), y


class Beside(Body):
    """Takes two inputs."""

    def forward(self, x, other):
        return self.outer(self.hidden(x) + self.inner(other))


@attack("coupling", lambda collate: by_collate(collate, Beside))
def collate_appends_the_others_as_context(items):
    """Every example has the mean of the batch as a second input."""
    x, y = default_collate(items)
    return x, x.mean(0, keepdim=True).expand_as(x), y


@attack("coupling")
def getitems_returns_neighbours():
    """`__getitems__` receives all indices at once, and subtracts the mean of the requested examples."""

    class Centred(Listed):
        def __getitems__(self, indices):
            chosen = [self.items[index] for index in indices]
            mean = torch.stack([x for x, _ in chosen]).mean(0)
            return [(x - mean, y) for x, y in chosen]

    return coupled(data=Centred((x, int(y)) for x, y in FAR))


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

    return coupled(data=Fresh((x, int(y)) for x, y in FAR), collate=collate, steps=2)


@attack("coupling")
def padding_grows_with_the_physical_batch():
    """The result must not depend on the physical batch size."""
    items = [(torch.randn(2 + k % 5, 1), 1.0) for k in range(12)]
    options = {"loss": far_from_target, "collate": padded, "options": {"physical_batch_size": 5}}
    return coupled(averaging(), Listed(items), (0, 4), **options)


def shown(look) -> Verdict:
    """Return the verdict on a model that scales its hidden units by what `look(x)` returns."""
    make = body_of(lambda self, x: self.outer(self.hidden(x) * (1 + look(x.detach()))))
    return exact(Task(make, classify), FAR, remove=(0, 7))


@attack("coupling", shown)
def deep_copy_of_an_example(x):
    """`copy.deepcopy` copies the memory of a tensor, where the first example is."""
    return copy.deepcopy(x).mean(1, keepdim=True)


@attack("coupling", shown)
def text_of_an_example(x):
    """The text of a tensor shows all examples."""
    return str(x).count("1") / 5


@attack("coupling", shown)
def results_written_into_one_tensor(x):
    """`out=` names a tensor that the pass makes, which all examples would share."""
    numbers, places = torch.empty(1, x.shape[1]), torch.empty(1, x.shape[1], dtype=torch.long)
    torch.sort(x, 1, out=(numbers, places))
    return numbers[:, :1].tanh()


@attack("coupling")
def observers_of_quantisation():
    """Observers of activations write to ranges that all examples would share."""

    def make():
        model = nn.Sequential(nn.Linear(WIDTH, 7), nn.ReLU(), nn.Linear(7, CLASSES))
        model.qconfig = torch.ao.quantization.get_default_qat_qconfig("fbgemm")
        return torch.ao.quantization.prepare_qat(model.train())

    return coupled(make)
