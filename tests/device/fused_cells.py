"""The cells of recurrent layers that torch fuses on a GPU and has no kernel for on a CPU, as formulas."""

import torch
from torch import library


def _lstm(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
    gates = _add(input_gates, hidden_gates, input_bias, hidden_bias)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


def _lstm_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias):
    i, f, g, o = workspace.chunk(4, 1)
    state = cy.tanh()
    grad_hy = torch.zeros_like(cy) if grad_hy is None else grad_hy
    grad_c = grad_hy * o * (1 - state * state)
    if grad_cy is not None:
        grad_c = grad_c + grad_cy
    parts = [
        grad_c * g * i * (1 - i), grad_c * cx * f * (1 - f), grad_c * i * (1 - g * g), grad_hy * state * o * (1 - o),
    ]  # fmt: skip
    gates = torch.cat(parts, 1)
    return gates, grad_c * f, gates.sum(0) if has_bias else gates.new_empty(0)


def _gru(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
    inner, hidden = _add(input_gates, input_bias).chunk(3, 1), _add(hidden_gates, hidden_bias).chunk(3, 1)
    r, z = (inner[0] + hidden[0]).sigmoid(), (inner[1] + hidden[1]).sigmoid()
    n = (inner[2] + r * hidden[2]).tanh()
    return (hx - n) * z + n, torch.cat([r, z, n, hx, hidden[2]], 1)


def _gru_backward(grad_hy, workspace, has_bias):
    r, z, n, hx, hidden = workspace.chunk(5, 1)
    grad_n = grad_hy * (1 - z) * (1 - n * n)
    grad_z, grad_r = grad_hy * (hx - n) * z * (1 - z), grad_n * hidden * r * (1 - r)
    input_gates, hidden_gates = torch.cat([grad_r, grad_z, grad_n], 1), torch.cat([grad_r, grad_z, grad_n * r], 1)
    biases = [each.sum(0) if has_bias else each.new_empty(0) for each in (input_gates, hidden_gates)]
    return input_gates, hidden_gates, grad_hy * z, *biases


def _add(first, *others):
    for other in others:
        first = first if other is None else first + other
    return first


KERNELS = {
    "_thnn_fused_lstm_cell": _lstm, "_thnn_fused_lstm_cell_backward_impl": _lstm_backward, "_thnn_fused_gru_cell": _gru,
    "_thnn_fused_gru_cell_backward": _gru_backward,
}  # fmt: skip


def register():
    """Make them the kernels of the device; the registration ends with what is returned."""
    operators = library.Library("aten", "IMPL")
    for name, kernel in KERNELS.items():
        operators.impl(name, kernel, "CUDA")
    return operators
