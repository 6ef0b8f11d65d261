"""Faults in recurrent layers: equations, directions, order of packed examples."""

from mutant import Mutant, among, tape

DROPOUT = "test_dropout_between_layers_is_torchs"
PLAIN = "test_outputs_and_states_are_those_of_the_plain_module"
BY_HAND = "test_an_order_that_was_chosen_by_hand_is_recorded_as_well"

MUTANTS = [
    Mutant("RNN: the slope of the activation is missing", "_elman.backward",
           "slope(grads[0], kept[0])", "grads[0]", tape("rnn", "relu rnn")),
    Mutant("GRU: the reset gate is missing from the candidate's hidden part", "_gru_backward",
           "grad_z, grad_n * r", "grad_z, grad_n", tape("gru")),
    Mutant("GRU: the update gate's gradient has the wrong sign", "_gru_backward",
           "_SIGMOID(grad * (h - n), z)", "_SIGMOID(grad * (n - h), z)", tape("gru")),
    Mutant("LSTM: the cell state forgets later steps", "_lstm_backward",
           "grad_c = grad_c + _TANH", "grad_c = _TANH", tape("lstm")),
    Mutant("LSTM: the forget gate is skipped", "_lstm_backward", "(grad_c.mul_(f),)", "(grad_c,)", tape("lstm")),
    Mutant("LSTM: input and candidate gates change places", "_lstm_backward",
           "_SIGMOID(grad_c * g, i), _SIGMOID(grad_c * c, f), _TANH(grad_c * i, g)",
           "_TANH(grad_c * i, g), _SIGMOID(grad_c * c, f), _SIGMOID(grad_c * g, i)", tape("lstm")),
    Mutant("both biases are measured by the gates' input part", "_run.record",
           "b_hh, for_hidden", "b_hh, for_inputs", tape("gru")),
    Mutant("biases are averaged over the positions", "_run.record",
           "promote(grad, bias).sum(1)", "promote(grad, bias).mean(1)", tape("rnn")),
    Mutant("the hidden weight is measured by the gates' input part", "_run.record",
           "(weights.hh, previous, for_hidden)", "(weights.hh, previous, for_inputs)", tape("gru")),
    Mutant("every second layer runs backwards", "_network",
           "run % directions == 1", "run % 2 == 1", among("test_recurrent", PLAIN)),
    Mutant("gradients of both parts of the gates are one", "Layer.backward",
           "inputs[0] is hidden[0]", "True", tape("gru", "gru, packed")),
    Mutant("the gradient of the input misses what flows through the hidden weight", "Layer.backward",
           "found.hidden @ self", "0 * found.hidden @ self", tape("rnn")),
    Mutant("dropout in evaluation mode", "_network", "train and dropout", "dropout", among("test_recurrent", DROPOUT)),
]  # fmt: skip
