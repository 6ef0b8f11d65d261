import copy

import oracle
import pytest
import torch
from recording import Seen, physical, record, underlying
from torch import nn

from privet.gradients import per_example_gradients
from privet.gradients.core import norms

LAYERS = {
    "layer": lambda: nn.LayerNorm((3, 2)),
    "rms": lambda: nn.RMSNorm((3, 2), eps=1e-6),
    "group": lambda: nn.GroupNorm(2, 6),
    "instance": lambda: nn.InstanceNorm2d(6, affine=True),
    "tracked instance": lambda: nn.InstanceNorm2d(6, affine=True, track_running_stats=True).eval(),
    "batch": lambda: nn.BatchNorm2d(6).eval(),
}


def energy(model, x):
    out = model(x)
    return (out.float().square() * torch.linspace(0.5, 1.5, out[0].numel()).view(out.shape[1:])).flatten(1).sum(1)


def randomised(model):
    torch.manual_seed(0)
    with torch.no_grad():
        for tensor in (*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())):
            tensor.add_(0.3 * torch.rand_like(tensor))
    return model


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_outputs_and_input_gradients_are_torchs_own(kind, memory_format):
    model, seen = nn.Sequential(nn.Conv2d(6, 6, 1), randomised(LAYERS[kind]())).double(), Seen()
    x = torch.randn(4, 6, 3, 2, dtype=torch.float64)

    def loss(m, x):
        inputs = m[0](x).contiguous(memory_format=memory_format)
        with torch._C.DisableTorchFunction():  # a hook in the model would be refused
            underlying(inputs).register_hook(lambda grad: seen(grad.reshape(4, 6, 3, 2)))
        out = m[1](inputs)
        seen(physical(out))
        return out.square().sum((1, 2, 3))

    record(model, loss, x)
    loss(model, x).sum().backward()
    assert len(seen.items) == 4
    for found, expected in zip(seen.items[:2], seen.items[2:], strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("cache", [1, 1 << 18])
def test_inputs_and_output_gradients_may_come_in_any_memory_layout(kind, memory_format, cache, monkeypatch):
    monkeypatch.setattr(norms, "CACHE", cache)
    model, x = randomised(LAYERS[kind]()), torch.randn(4, 6, 3, 2).contiguous(memory_format=memory_format)

    def loss(m, x):
        out = m(x)
        energy = out.permute(0, 2, 3, 1).contiguous().square().sum((1, 2, 3)) + out[:, :1].expand(-1, 6, -1, -1).sum((1, 2, 3))
        return energy.mul(0.02).tanh()

    found = per_example_gradients(model, loss, x, method="ghost")
    # Channels first: torch 2.13's group norm ends the process where channels are last and the input needs no gradient.
    expected = oracle.plain_gradients(model, loss, x.contiguous())
    assert all(value.abs().max() > 1e-3 for value in expected.values())
    assert oracle.relative_error_per_example(found, expected) <= 1e-5


@pytest.mark.parametrize("affine", [True, False])
def test_group_norm_of_volumes_keeps_their_layout(affine):
    model = nn.Sequential(nn.Conv3d(2, 6, 1), randomised(nn.GroupNorm(3, 6, affine=affine)), nn.Flatten(), nn.Linear(48, 1))
    x, layouts = torch.randn(4, 2, 2, 2, 2), Seen()

    def loss(m, x):
        normal = m[1](m[0](x).contiguous(memory_format=torch.channels_last_3d))
        layouts(physical(normal).is_contiguous(memory_format=torch.channels_last_3d))
        return m[2:](normal).square().flatten()

    found = per_example_gradients(model, loss, x, method="ghost")
    assert layouts.items == [True] or not affine  # without parameters it is torch's own rule under vmap
    assert oracle.relative_error_per_example(found, oracle.plain_gradients(model, loss, x)) <= 1e-5


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("before", [nn.Identity, lambda: nn.Conv2d(6, 6, 1)], ids=["float32 input", "bfloat16 input"])
def test_under_autocast_gradients_are_those_of_the_parameters_precision(kind, before):
    torch.manual_seed(1)
    model = nn.Sequential(before(), randomised(LAYERS[kind]()), nn.Conv2d(6, 4, 1))
    x = torch.randn(4, 6, 3, 2)

    def loss(m, x):
        with torch.autocast("cpu", torch.bfloat16):
            return energy(m, x)

    found = per_example_gradients(model, loss, x, method="ghost")
    assert all(value.dtype == torch.float32 for value in found.values())
    assert oracle.relative_error_per_example(found, oracle.plain_gradients(model, energy, x)) <= 2e-2


@pytest.mark.parametrize("tracked", [True, False])
@pytest.mark.parametrize(("layer", "shape"), [(nn.BatchNorm1d, (4, 6, 2)), (nn.BatchNorm2d, (4, 6, 3, 2))])
def test_batch_statistics_are_not_followed(layer, shape, tracked):
    """In training mode a layer normalises over one example, never over several; the probe refuses it by name."""
    model, x = randomised(layer(6, track_running_stats=tracked)), torch.randn(shape)

    def loss(m, x):
        return (m(x) * torch.linspace(0.5, 1.5, x[0].numel()).view(x.shape[1:])).flatten(1).sum(1)

    before = copy.deepcopy(model.state_dict())
    found = per_example_gradients(model, loss, x)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    expected = oracle.plain_gradients(model, loss, x)
    assert oracle.relative_error_per_example(found, expected) <= 1e-5
    alone = per_example_gradients(model, loss, x[:1])
    assert oracle.relative_error({name: value[:1] for name, value in found.items()}, alone) <= 1e-5
