"""Recurrent layers, over padded and over packed sequences: RNN, GRU, LSTM, and one step of each.

A layer runs one step at a time in Python, so that the gradients of its gates are available: together with the inputs and the
previous hidden states, they are the factors of the two weights' gradients, as for any linear map over T positions.

A packed sequence of one example consists of that example's steps, so nothing is packed here: examples of equal length form a
group.

Axes: inputs (T, R, d) and states (R, H), for R = B·n rows; gates (T, R, ·) in the order of time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.core.batching import is_batched
from privet.gradients.core.consensus import agree
from privet.gradients.core.handlers import register_handler
from privet.gradients.core.per_example import DenseGrad
from privet.gradients.core.recorder import Recorder, UntraceableError
from privet.gradients.layers.linear import choose_grad

States = tuple[Tensor, ...]
Kept = tuple[Tensor, ...]
# Step → the previous states, and the tensors that the cell saved for its backward pass.
Trace = dict[int, tuple[States, Kept]]

# (gradient, output) → gradient of the argument.
_TANH = torch.ops.aten.tanh_backward
_SIGMOID = torch.ops.aten.sigmoid_backward


class GateGradients(NamedTuple):
    """Gradients that one step propagates."""

    inputs: Tensor  # of W_ih x + b_ih
    hidden: Tensor  # of W_hh h + b_hh
    direct: Tensor | None = None  # of the previous hidden state, without the part through `hidden`; None for zero
    others: States = ()  # of the other previous states


@dataclass(frozen=True)
class Cell:
    """The equations of one step. States are tuples that begin with the hidden state.

    Args:
        forward: (W_ih x + b_ih, which it may overwrite; W_hh h + b_hh; previous states) → states, and tensors for backward.
        backward: (gradients of the states, previous states, tensors from forward) → gradients.
    """

    forward: Callable[[Tensor, Tensor, States], tuple[States, Kept]]
    backward: Callable[[States, States, Kept], GateGradients]


def _elman(activation: Callable[[Tensor], Tensor], slope: Callable[[Tensor, Tensor], Tensor]) -> Cell:
    """Return the cell h' = φ(x + h) for an in-place φ whose backward pass is slope(gradient, output)."""

    def forward(x: Tensor, hidden: Tensor, _states: States) -> tuple[States, Kept]:
        h = activation(x.add_(hidden))
        return (h,), (h,)

    def backward(grads: States, _states: States, kept: Kept) -> GateGradients:
        grad = slope(grads[0], kept[0])
        return GateGradients(grad, grad)

    return Cell(forward, backward)


def _gru_forward(x: Tensor, hidden: Tensor, states: States) -> tuple[States, Kept]:
    """Return h' = n + z(h − n) with r, z = σ(x + hidden) and n = tanh(x + r·hidden)."""
    size = states[0].shape[1]
    r, z = x[:, : 2 * size].add_(hidden[:, : 2 * size]).sigmoid_().chunk(2, 1)
    candidate = hidden[:, 2 * size :]
    n = x[:, 2 * size :].addcmul_(r, candidate).tanh_()
    return (torch.lerp(n, states[0], z),), (r, z, n, candidate)


def _gru_backward(grads: States, states: States, kept: Kept) -> GateGradients:
    """Return the gradients; r scales the candidate's hidden part, so its gradient differs from that of the input part."""
    (grad,), (h,), (r, z, n, candidate) = grads, states, kept
    carried = grad * z
    grad_n = _TANH(grad - carried, n)
    grad_r, grad_z = _SIGMOID(grad_n * candidate, r), _SIGMOID(grad * (h - n), z)
    inputs = torch.cat([grad_r, grad_z, grad_n], 1)
    return GateGradients(inputs, torch.cat([grad_r, grad_z, grad_n * r], 1), carried)


def _lstm_forward(x: Tensor, hidden: Tensor, states: States) -> tuple[States, Kept]:
    """Return h' = o·tanh(c') and c' = f·c + i·g with i, f, o = σ(x + hidden) and g = tanh(x + hidden)."""
    i, f, g, o = x.add_(hidden).chunk(4, 1)
    for gate in (i, f, o):
        gate.sigmoid_()
    c = torch.mul(f, states[1]).addcmul_(i, g.tanh_())
    squashed = c.tanh()
    return (o * squashed, c), (i, f, g, o, squashed)


def _lstm_backward(grads: States, states: States, kept: Kept) -> GateGradients:
    """Return the gradients; that of the cell state is propagated through the forget gate."""
    (grad_h, grad_c), (_, c), (i, f, g, o, squashed) = grads, states, kept
    grad_c = grad_c + _TANH(grad_h * o, squashed)
    gates = [_SIGMOID(grad_c * g, i), _SIGMOID(grad_c * c, f), _TANH(grad_c * i, g), _SIGMOID(grad_h * squashed, o)]
    grad = torch.cat(gates, 1)
    return GateGradients(grad, grad, None, (grad_c.mul_(f),))


def _relu_slope(grad: Tensor, output: Tensor) -> Tensor:
    return torch.ops.aten.threshold_backward(grad, output, 0)  # type: ignore[no-any-return]


CELLS = {
    "rnn_tanh": _elman(torch.tanh_, _TANH),
    "rnn_relu": _elman(torch.relu_, _relu_slope),
    "gru": Cell(_gru_forward, _gru_backward),
    "lstm": Cell(_lstm_forward, _lstm_backward),
}


class RecurrentWeights(NamedTuple):
    """The parameters of one layer in one direction, as torch orders them."""

    ih: Tensor
    hh: Tensor
    b_ih: Tensor | None = None
    b_hh: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer in one direction, whose weights are detached."""

    cell: Cell
    weights: RecurrentWeights
    backwards: bool

    def steps_in_order(self, steps: int) -> range:
        """Return the steps in the order in which the layer runs them."""
        return range(steps)[::-1] if self.backwards else range(steps)

    def forward(self, x: Tensor, states: States) -> tuple[Tensor, States, Trace]:
        """Return the outputs (T, R, H), the final states, and the trace that backward needs."""
        inputs = F.linear(x.flatten(0, 1), self.weights.ih, self.weights.b_ih).view(*x.shape[:2], -1)
        outputs: dict[int, Tensor] = {}
        trace: Trace = {}
        for time in self.steps_in_order(len(x)):
            hidden = F.linear(states[0], self.weights.hh, self.weights.b_hh)
            after, kept = self.cell.forward(inputs[time], hidden, states)
            outputs[time], trace[time] = after[0], (states, kept)
            states = after
        return _stack_steps(outputs), states, trace

    def backward(self, grad: Tensor, grads: States, trace: Trace) -> tuple[Tensor, Tensor, States]:
        """Return the gradients of W_ih x + b_ih and of W_hh h + b_hh, both (T, R, ·), and of the initial states."""
        inputs: dict[int, Tensor] = {}
        hidden: dict[int, Tensor] = {}
        for time in reversed(self.steps_in_order(len(grad))):
            before, kept = trace[time]
            found = self.cell.backward((grad[time] + grads[0], *grads[1:]), before, kept)
            inputs[time], hidden[time] = found.inputs, found.hidden
            through = found.hidden @ self.weights.hh
            grads = (through if found.direct is None else through.add_(found.direct), *found.others)
        shared = inputs[0] is hidden[0]
        joined = _stack_steps(inputs)
        return joined, joined if shared else _stack_steps(hidden), grads


def _stack_steps(steps: dict[int, Tensor]) -> Tensor:
    return torch.stack([steps[time] for time in range(len(steps))])


class _Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, anchor: Tensor, layer: Layer, record: Any, x: Tensor, *states: Tensor) -> Any:
        ctx.layer, ctx.record = layer, record
        ctx.save_for_backward(x, *states)
        outputs, final, ctx.trace = layer.forward(x, states)
        # Copies, because the trace may hold the final states, and an output whose graph holds the trace would form a cycle.
        return outputs, *(state.clone() for state in final)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *grads: Tensor) -> Any:
        x, *_ = ctx.saved_tensors
        inputs, hidden, initial = ctx.layer.backward(grad, grads, ctx.trace)
        previous = _stack_steps({time: before[0] for time, (before, _) in ctx.trace.items()})
        ctx.record(x.detach(), previous, inputs, hidden)
        into = (inputs.flatten(0, 1) @ ctx.layer.weights.ih).view(x.shape) if ctx.needs_input_grad[3] else None
        return None, None, None, into, *initial


def _run(
    recorder: Recorder, cell: Cell, weights: RecurrentWeights, backwards: bool, x: Tensor, states: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    def by_example(rows: Tensor) -> Tensor:
        """Return (T, R, ·) by example, with all steps of its rows as positions, (B, n·T, ·)."""
        found = rows.transpose(0, 1)
        return found if len(found) == recorder.examples else found.reshape(recorder.examples, -1, rows.shape[-1])

    def record(inputs: Tensor, previous: Tensor, of_inputs: Tensor, of_hidden: Tensor) -> None:
        for_inputs = by_example(of_inputs)
        for_hidden = for_inputs if of_hidden is of_inputs else by_example(of_hidden)
        for weight, rows, grad in ((weights.ih, inputs, for_inputs), (weights.hh, previous, for_hidden)):
            if recorder.follows(weight):
                recorder.add(weight, choose_grad(recorder.promote(by_example(rows), weight), recorder.promote(grad, weight)))
        for bias, grad in ((weights.b_ih, for_inputs), (weights.b_hh, for_hidden)):
            if bias is not None and recorder.follows(bias):
                recorder.add(bias, DenseGrad(recorder.promote(grad, bias).sum(1)))

    plain = RecurrentWeights._make(weight if weight is None else weight.detach() for weight in weights)
    outputs: tuple[Tensor, ...] = recorder.apply(_Run, Layer(cell, plain, backwards), record, x, *states)
    return outputs


def _states(hx: Tensor | Sequence[Tensor]) -> States:
    """Return torch's states as a tuple: torch passes one tensor if there is only a hidden state."""
    return (hx,) if isinstance(hx, Tensor) else tuple(hx)


def _network(
    recorder: Recorder, cell: Cell, x: Tensor, initial: States, params: Sequence[Tensor], has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    directions, count = 1 + bidirectional, 4 if has_biases else 2
    final = []
    for layer in range(num_layers):
        if layer and train and dropout:
            x = recorder.dropout(x.transpose(0, 1), dropout).transpose(0, 1)
        outputs = []
        for run in range(layer * directions, (layer + 1) * directions):
            weights, states = RecurrentWeights(*params[run * count : (run + 1) * count]), [state[run] for state in initial]
            output, *last = _run(recorder, cell, weights, run % directions == 1, x, states)
            outputs.append(output)
            final.append(last)
        x = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 2)
    return x, *map(torch.stack, zip(*final, strict=True))


def _follow_network(name: str) -> Callable[..., Any]:
    cell, function = CELLS[name], getattr(torch, name)

    def handler(recorder: Recorder, *args: Any, **options: Any) -> Any:
        """Follow both torch functions of this name: for packed sequences if batch sizes come second, else for padded ones."""
        if options or len(args) != 9:
            raise UntraceableError("a recurrent network is called with keyword arguments")
        packed = isinstance(args[1], Tensor) and args[1].dim() == 1 and not isinstance(args[3], bool)
        if packed:
            # The packed sequence of one example consists of its steps, (B, T, d).
            data, _, hx, params, *settings = args
            x = recorder.to_batched(data).unsqueeze(2)
        else:
            input, hx, params, *settings, batch_first = args
            x = recorder.to_batched(input)
            x = x.transpose(1, 2) if batch_first else x
        has_biases, num_layers, dropout, train, bidirectional = settings
        directions, count = 1 + bidirectional, 4 if has_biases else 2
        known = len(params) == num_layers * directions * count and recorder.is_shared(*params)
        if not known or x.dim() != 4 or x.shape[1] == 0:
            raise UntraceableError("no rule supports a recurrent network of this kind")
        lead = (x.shape[0], x.shape[2])
        rows = x.permute(1, 0, 2, 3).flatten(1, 2)
        initial = tuple(recorder.to_batched(state).transpose(0, 1).flatten(1, 2) for state in _states(hx))
        if any(map(recorder.follows, params)) or (dropout and train):
            found = _network(recorder, cell, rows, initial, params, *settings)
        else:
            found = function(rows, initial if len(initial) > 1 else initial[0], params, *settings, False)
        output, *final = found
        output = output.unflatten(1, lead).transpose(0, 1)
        if packed:
            output = output.squeeze(2)
        elif batch_first:
            output = output.transpose(1, 2)
        return output, *(state.unflatten(1, lead).transpose(0, 1) for state in final)

    return handler


def _follow_cell(name: str) -> Callable[..., Any]:
    cell, function = CELLS[name], getattr(torch, f"{name}_cell")

    def handler(
        recorder: Recorder,
        input: Tensor,
        hx: Any,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Any:
        weights = RecurrentWeights(w_ih, w_hh, b_ih, b_hh)
        if not recorder.is_shared(*weights):
            raise UntraceableError("a recurrent cell has per-example weights")
        x, states = recorder.to_batched(input), [recorder.to_batched(state) for state in _states(hx)]
        lead = x.shape[:-1]
        x, states = x.reshape(-1, x.shape[-1]), [state.reshape(-1, state.shape[-1]) for state in states]
        if any(map(recorder.follows, weights)):
            _, *after = _run(recorder, cell, weights, False, x[None], states)
        else:
            after = list(_states(function(x, tuple(states) if len(states) > 1 else states[0], *weights)))
        found = tuple(state.reshape(*lead, -1) for state in after)
        return found[0] if isinstance(hx, Tensor) else found

    return handler


for _name in CELLS:
    register_handler(getattr(torch, _name), always=True)(_follow_network(_name))
    register_handler(getattr(torch, f"{_name}_cell"), always=True)(_follow_cell(_name))


@register_handler(torch._pack_padded_sequence, always=True, direct=True)
def pack(recorder: Recorder, input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """Pack one example's single sequence: its first steps, with one row each. Examples of different lengths form groups."""
    if input.shape[0 if batch_first else 1] != 1:
        raise UntraceableError("an example packs several sequences")
    length = int(agree(recorder.token, lengths) if is_batched(lengths) else lengths)
    steps = input[0] if batch_first else input[:, 0]
    if not 0 < length <= len(steps):
        raise UntraceableError("a sequence is packed that is empty or longer than its steps")
    return steps[:length], torch.ones(length, dtype=torch.int64, device="cpu")


@register_handler(torch._pad_packed_sequence, always=True, direct=True)
def unpack(
    _recorder: Recorder, data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int
) -> tuple[Tensor, Tensor] | None:
    """Pad one example's steps; None for several sequences."""
    if len(data) != len(batch_sizes):
        return None
    padded = F.pad(data, (0, 0) * (data.dim() - 1) + (0, max(0, total_length - len(data))), value=float(padding_value))
    return (padded[None] if batch_first else padded[:, None]), torch.tensor([len(data)], device="cpu")
