"""Operations whose Python depends on data, that write in place, that keep a state, or that touch autograd."""

import torch
from operations import LENGTHS, MASK, SEQUENCE, VECTOR, Sizes, enter, operation, square, values
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

# -- control flow on data
enter("branch_per_example", lambda m, x: torch.stack([m.one(row) if row.sum() > 0 else m.other(row) for row in x]),
      VECTOR, to=VECTOR, one=square, other=square)  # fmt: skip
enter("scale_by_item", lambda m, x, lengths: torch.stack([row * (1 / n.item()) for row, n in zip(x, lengths, strict=True)]),
      VECTOR, LENGTHS, to=VECTOR)  # fmt: skip


@operation(VECTOR, to=VECTOR, one_at_a_time=True, one=square, other=square)
def branch_on_sum(m, x):
    if x.sum() > 0:
        return m.one(x)
    return torch.tanh(m.other(x))


@operation(VECTOR, LENGTHS, to=VECTOR, one_at_a_time=True, layer=square)
def repeat_by_number(m, x, lengths):
    for _ in range(int(lengths.max())):
        x = torch.tanh(m.layer(x)) + 0.5 * x
    return x


@operation(SEQUENCE, MASK, to=SEQUENCE, layer=square)
def skip_mask_if_full(m, x, mask):
    y = m.layer(x)
    if mask.all():
        return y
    return y * mask[:, :, None]


@operation(SEQUENCE, LENGTHS, to=SEQUENCE, layer=square)
def stop_at_the_longest(m, x, lengths):
    out = x
    for t in range(x.shape[1]):
        if not (lengths > t).any():
            break
        out = torch.where((lengths > t)[:, None, None], torch.tanh(m.layer(out)), out)
    return out


@operation(VECTOR, to=VECTOR, layer=square)
def shrink_until_small(m, x):
    rows = []
    for row in m.layer(x):
        for _ in range(4):
            if float(row.detach().abs().sum()) < 1:
                break
            row = 0.6 * row + 0.1
        rows.append(row)
    return torch.stack(rows)


@operation(SEQUENCE, LENGTHS, to=SEQUENCE, few=square, many=square)
def different_layers_by_length(m, x, lengths):
    short = lengths <= max(1, x.shape[1] // 2)
    out = torch.empty_like(x)
    if short.any():
        out[short] = m.few(x[short])
    if not short.all():
        out[~short] = m.many(x[~short])
    return out


# -- in-place writes
enter("activate_in_place", lambda m, x: F.elu(m.layer(x).mul_(2), inplace=True), SEQUENCE, to=SEQUENCE, layer=square)
enter("copy_into", lambda m, x: torch.empty_like(x).copy_(torch.sin(x)), SEQUENCE, to=SEQUENCE)


@operation(VECTOR, to=VECTOR, layer=square)
def add_and_multiply_in_place(m, x):
    y = m.layer(x)
    y.mul_(0.5).add_(torch.tanh(x))
    return y


@operation(SEQUENCE, to=SEQUENCE, layer=square)
def fill_positions(m, x):
    out = torch.zeros(x.shape, dtype=x.dtype)
    for t in range(x.shape[1]):
        out[:, t] = m.layer(x[:, t]) * (t + 1)
    return out


@operation(VECTOR, to=VECTOR, layer=square)
def fill_examples(m, x):
    out = torch.zeros(len(x), x.shape[1], dtype=x.dtype)
    for i in range(len(x)):
        out[i] = torch.tanh(m.layer(x[i]))
    return out


@operation(SEQUENCE, to=SEQUENCE, layer=square)
def write_slices(m, x):
    y = m.layer(x).clone()
    y[:, 0] = 0.3
    y[:, -1] += x[:, 0]
    y[..., 0] *= 2
    return y


@operation(SEQUENCE, MASK, to=SEQUENCE, filler=values("d"))
def write_by_mask(m, x, mask):
    y = 1.0 * x
    y[~mask] = m.filler
    return y.masked_fill_(~mask.flip(1)[:, :, None], 0.2)


@operation(SEQUENCE, to=SEQUENCE)
def accumulate_in_place(m, x):
    total = torch.zeros_like(x)
    total += x
    total[:, 1:] -= 0.5 * x[:, :-1]
    return total


# -- state
def _keep_output(module, inputs, output):
    module.output = output


def _halve_input(module, inputs):
    return (0.5 * inputs[0],)


def hooked(sizes: Sizes) -> nn.Linear:
    layer = square(sizes)
    layer.register_forward_hook(_keep_output)
    layer.register_forward_pre_hook(_halve_input)
    return layer


enter("read_what_a_hook_kept", lambda m, x: m.layer(x) + torch.tanh(m.layer.output), VECTOR, to=VECTOR, layer=hooked)


@operation(VECTOR, to=VECTOR, calls=lambda s: 0)
def count_calls(m, x):
    m.calls += 1
    return x * (1 + 0.5 * m.calls)


@operation(VECTOR, to=VECTOR, layer=square, kept=lambda s: None)
def keep_tensor(m, x):
    m.kept = torch.tanh(m.layer(x))
    return x + m.kept


@operation(VECTOR, to=VECTOR, layer=square, seen=lambda s: [])
def grow_list(m, x):
    m.seen.append(m.layer(x))
    return x + m.seen[0] * len(m.seen)


@operation(SEQUENCE, to=SEQUENCE, tables=lambda s: {})
def fill_cache(m, x):
    length = x.shape[1]
    if length not in m.tables:
        m.tables[length] = torch.linspace(0.5, 1.5, length, dtype=x.dtype)[:, None]
    return x * m.tables[length]


@operation(VECTOR, to=VECTOR, layer=square, mean=lambda s: torch.zeros(s.d), steps=lambda s: torch.zeros((), dtype=torch.long))
def write_statistics(m, x):
    y = m.layer(x)
    m.mean.mul_(0.9).add_(0.1 * y.detach().mean(0))
    m.steps += 1
    return y


@operation(VECTOR, to=VECTOR, one_at_a_time=True, mean=lambda s: torch.zeros(s.d))
def use_running_mean(m, x):
    m.mean = 0.5 * m.mean + 0.5 * x.detach().mean(0)
    return x - m.mean


# -- autograd
class Sine(torch.autograd.Function):
    """A user's own function, with torch's batching rule."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return torch.sin(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * torch.cos(x)


class Scaled(torch.autograd.Function):
    """A user's own function of the old form, with a parameter."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        return grad * scale, (grad * x).sum(0)


enter("teach_without_gradient", lambda m, x: (m.layer(x) - torch.tanh(m.layer(x)).detach()).square(),
      VECTOR, to=VECTOR, layer=square)  # fmt: skip
enter("checkpointed", lambda m, x: x + checkpoint(lambda y: m.down(torch.tanh(m.up(y))), x, use_reentrant=False),
      SEQUENCE, to=SEQUENCE, up=square, down=square)  # fmt: skip
enter("vmap_over_examples", lambda m, x: torch.func.vmap(lambda row: torch.tanh(m.weight @ row))(x),
      VECTOR, to=VECTOR, weight=values("d", "d"))  # fmt: skip
enter("vmap_over_positions", lambda m, x: torch.func.vmap(m.layer, in_dims=1, out_dims=1)(x), SEQUENCE, to=SEQUENCE, layer=square)
enter("own_function", lambda m, x: Sine.apply(x), SEQUENCE, to=SEQUENCE)
enter("own_function_of_old_form", lambda m, x: Scaled.apply(x, m.scale), VECTOR, to=VECTOR, scale=values("d"))
enter("functional_gradient", lambda m, x: x + torch.func.grad(lambda y: torch.tanh(m.layer(y)).sum())(x),
      VECTOR, to=VECTOR, layer=square)  # fmt: skip
enter("call_with_other_parameters", lambda m, x: torch.func.functional_call(
      m.layer, {name: 2 * value for name, value in m.layer.named_parameters()}, (x,)),
      VECTOR, to=VECTOR, layer=square)  # fmt: skip


@operation(SEQUENCE, to=SEQUENCE, layer=square)
def weigh_without_gradient(m, x):
    with torch.no_grad():
        weights = m.layer(x).softmax(-1)
    return weights * x


@operation(VECTOR, to=VECTOR, layer=square)
def straight_through(m, x):
    y = m.layer(x)
    return y + (torch.tanh(3 * y) - y).detach()


@operation(VECTOR, to=VECTOR, layer=square)
def gradient_of_energy(m, x):
    with torch.enable_grad():
        x = x if x.requires_grad else x.detach().requires_grad_()
        energy = torch.tanh(m.layer(x)).square().sum()
        (slope,) = torch.autograd.grad(energy, x, create_graph=True)
    return x - 0.5 * slope
