"""The check of a large model costs little beside the steps that follow it: bytes are counted, no clock is read."""

import weakref
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import privet

N, BATCH = 256, 64
LOOKUPS = (torch.ops.aten.embedding.default, torch.ops.aten.index_select.default)


class Bytes(TorchDispatchMode):
    """Counts the bytes of new tensors that live at the same time, and those that operators read and write."""

    def __init__(self):
        super().__init__()
        self.live = self.peak = self.moved = 0
        self.known = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **kwargs or {})
        tensors = [[x for x in pytree.tree_leaves(part) if type(x) in (torch.Tensor, nn.Parameter)] for part in (args, found)]
        if not any(each.alias_info and not each.alias_info.is_write for each in function._schema.returns):
            self.moved += sum(x.nbytes for x in tensors[1] + ([] if function in LOOKUPS else tensors[0]))
        for storage in (x.untyped_storage() for x in tensors[1]):
            if storage._cdata not in self.known:
                self.known.add(storage._cdata)
                self.live += storage.nbytes()
                self.peak = max(self.peak, self.live)
                weakref.finalize(storage, self.free, storage._cdata, storage.nbytes())
        return found

    def free(self, key, size):
        self.known.discard(key)
        self.live -= size


def count(call):
    with Bytes() as counted:
        call()
    return SimpleNamespace(peak=counted.peak, moved=counted.moved)


MODELS = {
    "mlp": lambda: nn.Sequential(nn.Linear(300, 900), nn.ReLU(), nn.Linear(900, 900), nn.ReLU(), nn.Linear(900, 10)),
    "embedding": lambda: nn.Sequential(nn.Embedding(20_000, 100), nn.Flatten(), nn.Linear(500, 10)),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_check_takes_the_memory_of_one_step_and_a_half_and_the_traffic_of_five(name):
    """Gradients of its examples are compared by sketches: it holds no more at once for three examples than for one."""
    model = MODELS[name]()
    inputs = torch.randn(N, 300) if name == "mlp" else torch.randint(20_000, (N, 5))
    data = torch.utils.data.TensorDataset(inputs, torch.randint(10, (N,)))
    plan = privet.Plan(
        examples=N, sampling=privet.sampling.Poisson(batch_size=BATCH), steps=3, clipping=privet.clipping.Flat(bound=1.0),
        noise=privet.noise.Gaussian(multiplier=1.0, source="fixed"), delta=1e-5,
    )  # fmt: skip
    made = []

    def make():
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = lambda model, batch: F.cross_entropy(model(batch[0]), batch[1], reduction="none")  # noqa: E731
        made.append(privet.Training(plan, model, loss, optimizer, data))

    check = count(make)
    assert made[0].method == "ghost"
    steps = iter(made[0])
    next(steps)
    step = count(lambda: next(steps))
    assert check.peak <= 1.5 * step.peak
    assert check.moved <= 5 * step.moved, (check, step)
