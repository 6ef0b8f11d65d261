"""Operations that reshape, transpose, split and join, and loops over examples and positions."""

import torch
from operations import IMAGE, LENGTHS, MASK, SEQUENCE, VECTOR, enter, operation, square, values
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

enter("flatten_and_unflatten", lambda m, x: m.layer(x.flatten(0, 1)).unflatten(0, x.shape[:2]),
      SEQUENCE, to=SEQUENCE, layer=square)  # fmt: skip
enter("rows_of_all_examples", lambda m, x: torch.tanh(m.layer(x.reshape(-1, x.shape[-1]))).view(x.shape),
      SEQUENCE, to=SEQUENCE, layer=square)  # fmt: skip
enter("time_major", lambda m, x: m.layer(x.transpose(0, 1)).transpose(0, 1), SEQUENCE, to=SEQUENCE, layer=square)
enter("features_first", lambda m, x: (x.permute(2, 0, 1) @ m.weight).permute(1, 2, 0),
      SEQUENCE, to=SEQUENCE, weight=values("T", "T"))  # fmt: skip
enter("join_features", lambda m, x, y: m.layer(torch.cat([x, y], 1)),
      VECTOR, VECTOR, to=VECTOR, layer=lambda s: nn.Linear(2 * s.d, s.d))  # fmt: skip
enter("add_sequences", lambda m, x, y: x + 0.5 * y, SEQUENCE, SEQUENCE, to=SEQUENCE)
enter("multiply_images", lambda m, x, y: x * torch.sigmoid(y), IMAGE, IMAGE, to=IMAGE)
enter("mean_over_positions", lambda m, x: x.mean(1), SEQUENCE, to=VECTOR)
enter("largest_over_positions", lambda m, x: x.amax(1), SEQUENCE, to=VECTOR)
enter("broadcast_vector", lambda m, x, y: x[:, None].expand_as(y) * torch.tanh(y), VECTOR, SEQUENCE, to=SEQUENCE)
enter("repeat_vector", lambda m, x, y: x.unsqueeze(1).repeat(1, y.shape[1], 1) + y, VECTOR, SEQUENCE, to=SEQUENCE)
enter("product_of_positions", lambda m, x: torch.bmm(torch.tanh(torch.bmm(x, x.transpose(1, 2))), x), SEQUENCE, to=SEQUENCE)
enter("lower_triangle", lambda m, x: torch.ones(x.shape[1], x.shape[1], dtype=x.dtype).tril() @ x / x.shape[1],
      SEQUENCE, to=SEQUENCE)  # fmt: skip
enter("windows", lambda m, x: F.pad(x, (0, 0, 1, 0)).unfold(1, 2, 1).prod(-1).tanh() + x, SEQUENCE, to=SEQUENCE)
enter("loop_over_examples", lambda m, x: torch.stack([torch.tanh(m.layer(x[i])) for i in range(len(x))]),
      VECTOR, to=VECTOR, layer=square)  # fmt: skip
enter("loop_over_slices_of_examples", lambda m, x: torch.cat([m.layer(x[i : i + 1]) for i in range(x.shape[0])], 0),
      SEQUENCE, to=SEQUENCE, layer=square)  # fmt: skip
enter("diagonal_of_outer_product", lambda m, x: torch.diagonal(
      torch.tanh(x[:, :, None]) * x[:, None] + x[:, None], dim1=1, dim2=2), VECTOR, to=VECTOR)  # fmt: skip
enter("iterate_over_examples", lambda m, x, y: torch.vstack(
      [m.layer(one) * torch.tanh(other) for one, other in zip(x, y, strict=True)]),
      VECTOR, VECTOR, to=VECTOR, layer=square)  # fmt: skip
enter("loop_over_examples_of_own_length", lambda m, x, lengths: torch.stack(
      [m.layer(x[i, : lengths[i]]).mean(0) for i in range(len(x))]), SEQUENCE, LENGTHS, to=VECTOR, layer=square)  # fmt: skip


@operation(SEQUENCE, to=SEQUENCE, layer=square)
def time_major_and_flattened(m, x):
    length, examples = x.shape[1], len(x)
    return m.layer(x.transpose(0, 1).reshape(length * examples, -1)).view(length, examples, -1).permute(1, 0, 2)


@operation(SEQUENCE, to=SEQUENCE)
def unbind_and_stack(m, x):
    steps = x.unbind(1)
    return torch.stack([steps[0], *(a - torch.tanh(b) for a, b in zip(steps[1:], steps, strict=False))], 1)


@operation(SEQUENCE, to=SEQUENCE, layer=lambda s: nn.Linear(s.d, 2 * s.d))
def chunk_and_gate(m, x):
    one, gate = m.layer(x).chunk(2, -1)
    return one * torch.sigmoid(gate)


@operation(SEQUENCE, to=SEQUENCE, layer=square)
def split_positions(m, x):
    one, other = x.split([1, x.shape[1] - 1], 1)
    return torch.cat([other, m.layer(one)], 1)


@operation(VECTOR, SEQUENCE, to=VECTOR)
def einsum_without_parameters(m, x, y):
    weights = torch.einsum("bd,btd->bt", torch.tanh(x), y).softmax(1)
    return torch.einsum("bt,btd->bd", weights, y)


@operation(IMAGE, to=IMAGE)
def swap_sides_of_image(m, x):
    return x + x.movedim(1, 3).flatten(1).flip(1).view(len(x), x.shape[2], x.shape[3], x.shape[1]).movedim(3, 1)


@operation(SEQUENCE, LENGTHS, to=SEQUENCE, layer=square)
def pad_slices(m, x, lengths):
    slices = [m.layer(row[:n]) for row, n in zip(x, lengths.tolist(), strict=True)]
    padded = pad_sequence(slices, batch_first=True, padding_value=0.5)
    return F.pad(padded, (0, 0, 0, x.shape[1] - padded.shape[1]), value=0.5)


@operation(SEQUENCE, LENGTHS, to=VECTOR, layer=square)
def split_joined_slices(m, x, lengths):
    counts = lengths.tolist()
    joined = m.layer(torch.cat([x[i, :n] for i, n in enumerate(counts)]))
    return torch.stack([part.cumsum(0)[-1] for part in joined.split(counts)])


@operation(SEQUENCE, to=SEQUENCE, weight=values("d", "d"))
def loop_over_positions(m, x):
    state, out = torch.zeros_like(x[:, 0]), []
    for t in range(x.shape[1]):
        state = torch.tanh(x[:, t] + state @ m.weight)
        out.append(state)
    return torch.stack(out, dim=1)


@operation(SEQUENCE, MASK, to=SEQUENCE, layer=square)
def compact_by_mask(m, x, mask):
    out = torch.zeros_like(x)
    for i, chosen in enumerate(mask):
        kept = m.layer(x[i][chosen])
        out[i, : len(kept)] = kept
    return out
