import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, global_mean_pool

import privet
from privet import Reading
from privet.errors import PrivetError

JOIN = Batch.from_data_list
N, BOUND, SIGMA = 8, 10.0, 1e-3  # no gradient is as long as the bound, and the noise is small


def graph(index):
    generator, n = torch.Generator().manual_seed(index), 3 + index % 2
    edges = torch.randint(n, (2, 2 * n), generator=generator)
    return Data(x=torch.randn(n, 5, generator=generator), edge_index=edges, y=torch.tensor([index % 3]))


class Net(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(8, 3)

    def forward(self, graphs):
        return self.head(global_mean_pool(F.relu(self.layer(graphs.x, graphs.edge_index)), graphs.batch))


def loss(model, graphs):
    return F.cross_entropy(model(graphs), graphs.y, reduction="none")


LAYERS = {
    "convolution": lambda: GCNConv(5, 8),
    "isomorphism": lambda: GINConv(nn.Linear(5, 8)),
    "attention": lambda: GATConv(5, 8),
}


def make(layer, reading):
    torch.manual_seed(0)
    plan = privet.Plan(
        examples=N, sampling=privet.sampling.FullBatch(), steps=1, clipping=privet.clipping.Flat(bound=BOUND),
        noise=privet.noise.Gaussian(multiplier=SIGMA), delta=1e-5,
    )  # fmt: skip
    model = Net(layer())
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    return privet.Training(plan, model, loss, optimizer, [graph(i) for i in range(N)], collate=JOIN, reading=reading)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(
    "reading", [lambda: Reading(spec=graph(0)), lambda: Reading(probe_batch=JOIN([graph(0)]))], ids=["spec", "batch"]
)
@pytest.mark.filterwarnings("ignore:a step computes its examples in several passes")
def test_a_step_is_that_of_plain_autograd_on_the_joined_graphs(layer, reading):
    training = make(LAYERS[layer], reading())
    model = training.model
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    gradients = torch.autograd.grad(loss(model, JOIN([graph(i) for i in range(N)])).mean(), list(model.parameters()))
    training.run()
    for (name, p), gradient in zip(model.named_parameters(), gradients, strict=True):
        torch.testing.assert_close(p.detach(), before[name] - gradient, atol=10 * SIGMA * BOUND / N, rtol=0)


def test_the_refusals_say_what_is_missing():
    with pytest.raises(PrivetError, match=r"object of type .*Reading\(spec=…\).*Reading\(probe_batch=…\)"):
        make(LAYERS["convolution"], Reading())
    with pytest.raises(PrivetError, match=r"batch of one example, collate\(\[item\]\)"):
        make(LAYERS["convolution"], Reading(probe_batch=JOIN([graph(0), graph(1)])))
