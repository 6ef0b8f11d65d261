"""Recurrent layers, over padded and over packed sequences: RNN, GRU, LSTM, and one step of each.

A layer is run one step at a time by hand, so that the gradients of its gates are at hand as well: with the inputs and the
previous hidden states they are the factors of the two weights' gradients, as for any linear map over T positions.

Everything is packed inside: the rows of all steps one after the other, those of step t for the examples that still run at t.
A padded batch is the case in which all examples run to the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from privet.gradients.linear import cheapest
from privet.gradients.recorder import Recorder
from privet.gradients.uses import DirectUse

States = tuple[Tensor, ...]
Kept = tuple[Tensor, ...]
# Step → the previous states, and what the cell kept.
Trace = dict[int, tuple[States, Kept]]

# (gradient, output) → gradient of the argument.
_TANH = torch.ops.aten.tanh_backward
_SIGMOID = torch.ops.aten.sigmoid_backward


class GateGradients(NamedTuple):
    """What one step passes back.

    Args:
        inputs: gradient of W_ih x + b_ih.
        hidden: gradient of W_hh h + b_hh.
        direct: gradient of the previous hidden state, without what flows through `hidden`; None for zero.
        others: gradients of the other previous states.
    """

    inputs: Tensor
    hidden: Tensor
    direct: Tensor | None = None
    others: States = ()


@dataclass(frozen=True)
class Cell:
    """The equations of one step. States are tuples that begin with the hidden state.

    Args:
        forward: (W_ih x + b_ih, which it may overwrite; W_hh h + b_hh; previous states) → states, and what backward needs.
        backward: (gradients of the states, previous states, what forward kept) → gradients.
    """

    forward: Callable[[Tensor, Tensor, States], tuple[States, Kept]]
    backward: Callable[[States, States, Kept], GateGradients]


def _elman(activation: Callable[[Tensor], Tensor], slope: Callable[[Tensor, Tensor], Tensor]) -> Cell:
    """Return h' = φ(x + h) for an in-place φ whose backward pass is slope(gradient, output)."""

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
    """Return the gradients; the candidate's hidden part is scaled by r, so its gradient differs from the input part's."""
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
    """Return the gradients; the cell state passes its own on through the forget gate."""
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


@dataclass(frozen=True, eq=False)
class Steps:
    """Which examples run at which step.

    Args:
        sizes: number of rows of every step, none larger than the one before.
        places: where the rows go in (B·T, d), in the order of the batch; None if all examples run to the end, in that order.
    """

    sizes: tuple[int, ...]
    places: Tensor | None = None

    @classmethod
    def packed(cls, batch_sizes: Tensor, order: Tensor) -> Steps:
        """Return the steps of a packed sequence; `order` says which example each row of the first step belongs to."""
        running = torch.arange(len(order)) < batch_sizes[:, None]
        time, row = running.to(order.device).nonzero(as_tuple=True)
        return cls(tuple(batch_sizes.tolist()), order[row] * len(batch_sizes) + time)

    def by_example(self, rows: Tensor) -> Tensor:
        """Return the rows as (B, T, d), zero where an example has ended."""
        positions, examples = len(self.sizes), self.sizes[0]
        if self.places is None:
            return rows.view(positions, examples, -1).transpose(0, 1)
        laid_out = rows.new_zeros(examples * positions, rows.shape[1]).index_copy_(0, self.places, rows)
        return laid_out.view(examples, positions, -1)


class Weights(NamedTuple):
    """The parameters of one layer in one direction, as torch orders them."""

    ih: Tensor
    hh: Tensor
    b_ih: Tensor | None = None
    b_hh: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer in one direction.

    Args:
        cell: its equations.
        weights: its parameters, out of the graph.
        steps: which examples run when.
        backwards: whether it runs from the last step to the first.
    """

    cell: Cell
    weights: Weights
    steps: Steps
    backwards: bool

    @property
    def times(self) -> range:
        """The steps in the order in which the layer takes them."""
        steps = range(len(self.steps.sizes))
        return steps[::-1] if self.backwards else steps

    def forward(self, x: Tensor, states: States) -> tuple[Tensor, States, Trace]:
        """Return the outputs (N, H), the final states, and what backward needs of every step."""
        inputs = torch.split(F.linear(x, self.weights.ih, self.weights.b_ih), list(self.steps.sizes))
        outputs: dict[int, Tensor] = {}
        trace: Trace = {}
        for time in self.times:
            before = tuple(state[: self.steps.sizes[time]] for state in states)
            hidden = F.linear(before[0], self.weights.hh, self.weights.b_hh)
            after, kept = self.cell.forward(inputs[time], hidden, before)
            outputs[time], trace[time] = after[0], (before, kept)
            states = _advance(states, after)
        return _joined(outputs), states, trace

    def backward(self, grad: Tensor, grads: States, trace: Trace) -> tuple[Tensor, Tensor, States]:
        """Return the gradients of W_ih x + b_ih and of W_hh h + b_hh, both (N, ·), and of the initial states."""
        outputs = torch.split(grad, list(self.steps.sizes))
        inputs: dict[int, Tensor] = {}
        hidden: dict[int, Tensor] = {}
        for time in reversed(self.times):
            before, kept = trace[time]
            of_states = tuple(state[: self.steps.sizes[time]] for state in grads)
            found = self.cell.backward((outputs[time] + of_states[0], *of_states[1:]), before, kept)
            inputs[time], hidden[time] = found.inputs, found.hidden
            through = found.hidden @ self.weights.hh
            of_h = through if found.direct is None else through.add_(found.direct)
            grads = _advance(grads, (of_h, *found.others))
        shared = inputs[0] is hidden[0]
        joined = _joined(inputs)
        return joined, joined if shared else _joined(hidden), grads


def _advance(states: States, after: States) -> States:
    """Return the states with the first rows replaced: those of examples that do not run stay."""
    return tuple(
        new if len(new) == len(state) else torch.cat([new, state[len(new) :]]) for state, new in zip(states, after, strict=True)
    )


def _joined(rows: dict[int, Tensor]) -> Tensor:
    """Return the rows of all steps, in the order of time."""
    return torch.cat([rows[time] for time in range(len(rows))])


class _Run(torch.autograd.Function):
    """A layer whose backward passes on the gradients of the input and of the initial states, and records the rest."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, layer: Layer, record: Any, x: Tensor, *states: Tensor) -> Any:
        ctx.layer, ctx.record = layer, record
        ctx.save_for_backward(x, *states)
        outputs, final, ctx.trace = layer.forward(x, states)
        # Copies, because the trace may hold the final states: what it holds must not hold the trace in turn.
        return outputs, *(state.clone() for state in final)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *grads: Tensor) -> Any:
        x, *_ = ctx.saved_tensors
        inputs, hidden, initial = ctx.layer.backward(grad, grads, ctx.trace)
        previous = _joined({time: before[0] for time, (before, _) in ctx.trace.items()})
        ctx.record(x.detach(), previous, inputs, hidden)
        return None, None, None, inputs @ ctx.layer.weights.ih if ctx.needs_input_grad[3] else None, *initial


def _run(
    recorder: Recorder, cell: Cell, weights: Weights, steps: Steps, backwards: bool, x: Tensor, states: Sequence[Tensor]
) -> tuple[Tensor, ...]:
    """Return the outputs (N, H) of one layer in one direction, and its final states."""

    def record(inputs: Tensor, previous: Tensor, of_inputs: Tensor, of_hidden: Tensor) -> None:
        for_inputs = steps.by_example(of_inputs)
        for_hidden = for_inputs if of_hidden is of_inputs else steps.by_example(of_hidden)
        for weight, rows, grad in ((weights.ih, inputs, for_inputs), (weights.hh, previous, for_hidden)):
            if recorder.follows(weight):
                recorder.add(weight, cheapest(steps.by_example(rows), grad))
        for bias, grad in ((weights.b_ih, for_inputs), (weights.b_hh, for_hidden)):
            if recorder.follows(bias):
                recorder.add(bias, DirectUse(grad.sum(1)))

    plain = Weights._make(weight if weight is None else weight.detach() for weight in weights)
    layer = Layer(cell, plain, steps, backwards)
    return _Run.apply(recorder.anchor, layer, record, x, *states)  # type: ignore[no-any-return,no-untyped-call]


def _can_follow(recorder: Recorder, weights: Sequence[Tensor], states: Sequence[Tensor]) -> bool:
    """Return whether all weights that ask for a gradient are followed, and every example has initial states of its own."""
    known = all(recorder.follows(weight) or not weight.requires_grad for weight in weights)
    own = all(state.shape[-2:-1] == (recorder.examples,) and not recorder.follows(state) for state in states)
    return known and own


def _states(hx: Tensor | Sequence[Tensor]) -> States:
    """Return torch's states, which are one tensor where there is only a hidden state, as a tuple."""
    return (hx,) if isinstance(hx, Tensor) else tuple(hx)


def _network(
    recorder: Recorder,
    cell: Cell,
    rows: Tensor,
    steps: Steps,
    hx: Tensor | Sequence[Tensor],
    params: Sequence[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, ...] | None:
    """Return the outputs (N, directions·H) of all layers, and the final states; None for projections."""
    directions, count, initial = 1 + bidirectional, 4 if has_biases else 2, _states(hx)
    if len(params) != num_layers * directions * count or not _can_follow(recorder, params, initial):
        return None
    final = []
    for layer in range(num_layers):
        if layer and train and dropout:
            rows = F.dropout(rows, dropout)
        outputs = []
        for run in range(layer * directions, (layer + 1) * directions):
            weights, states = Weights(*params[run * count : (run + 1) * count]), [state[run] for state in initial]
            output, *last = _run(recorder, cell, weights, steps, run % directions == 1, rows, states)
            outputs.append(output)
            final.append(last)
        rows = torch.cat(outputs, 1)
    return rows, *map(torch.stack, zip(*final, strict=True))


def _padded(
    recorder: Recorder, cell: Cell, input: Tensor, hx: Any, params: Any, has_biases: bool, num_layers: int,
    dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...] | None:  # fmt: skip
    """Follow a network over (T, B, d), or (B, T, d); None if B is not the batch."""
    x = input.transpose(0, 1) if batch_first else input
    if x.dim() != 3 or x.shape[1] != recorder.examples or len(x) == 0:
        return None
    steps = Steps((recorder.examples,) * len(x))
    found = _network(
        recorder, cell, x.flatten(0, 1), steps, hx, params, has_biases, num_layers, dropout, train, bidirectional
    )  # fmt: skip
    if found is None:
        return None
    output = found[0].view(*x.shape[:2], -1)
    return output.transpose(0, 1) if batch_first else output, *found[1:]


def _packed(
    recorder: Recorder, cell: Cell, data: Tensor, batch_sizes: Tensor, hx: Any, params: Any, *options: Any, **named: Any
) -> tuple[Tensor, ...] | None:
    """Follow a network over packed sequences; None if it was not seen how they were packed."""
    order = recorder.order(batch_sizes, 0)
    if order is None:
        return None
    return _network(recorder, cell, data, Steps.packed(batch_sizes, order), hx, params, *options, **named)


def _follow_network(cell: Cell) -> Callable[..., Any]:
    def handler(recorder: Recorder, *args: Any, **options: Any) -> Any:
        """Follow torch's two functions of one name: over packed sequences if batch sizes come second, else over padded ones."""
        packed = "batch_sizes" in options or any(isinstance(second, Tensor) and second.dim() == 1 for second in args[1:2])
        return (_packed if packed else _padded)(recorder, cell, *args, **options)

    return handler


def _follow_cell(cell: Cell) -> Callable[..., Any]:
    def handler(
        recorder: Recorder,
        input: Tensor,
        hx: Any,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Any:
        """Follow one step; None if the first dimension of the input is not the batch."""
        weights, states = Weights(w_ih, w_hh, b_ih, b_hh), _states(hx)
        given = [weight for weight in weights if weight is not None]
        if input.dim() != 2 or len(input) != recorder.examples or not _can_follow(recorder, given, states):
            return None
        _, *after = _run(recorder, cell, weights, Steps((len(input),)), False, input, states)
        return after[0] if isinstance(hx, Tensor) else tuple(after)

    return handler


def _note_selection(recorder: Recorder, result: Tensor, input: Tensor, dim: int, index: Tensor, **_: Any) -> None:
    """Note that examples were put in another order: `pack_padded_sequence` sorts them by length."""
    if result.dim() and input.shape[dim] == index.numel() == recorder.examples:
        before = recorder.order(input, dim)
        recorder.note_order(result, dim, index.reshape(-1) if before is None else before[index.reshape(-1)])


def _note_packing(recorder: Recorder, result: tuple[Tensor, Tensor], input: Tensor, lengths: Tensor, batch_first: bool) -> None:
    """Note with the batch sizes, which stay with a packed sequence whatever is done to its data, the order of its examples."""
    dimension = 0 if batch_first else 1
    if input.shape[dimension] == recorder.examples:
        order = recorder.order(input, dimension)
        same = torch.arange(recorder.examples, device=input.device)
        recorder.note_order(result[1], 0, same if order is None else order)


HANDLERS: dict[Any, Callable[..., Any]] = {
    **{getattr(torch, name): _follow_network(cell) for name, cell in CELLS.items()},
    **{getattr(torch, f"{name}_cell"): _follow_cell(cell) for name, cell in CELLS.items()},
}

# Called with the recorder and the result after a function has run.
OBSERVERS: dict[Any, Callable[..., None]] = {
    torch.index_select: _note_selection,
    Tensor.index_select: _note_selection,
    torch._pack_padded_sequence: _note_packing,
}
