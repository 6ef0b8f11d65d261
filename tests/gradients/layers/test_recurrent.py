import cases
import pytest
import torch
from recording import Seen, assert_agrees, cover, physical, record
from scipy import stats
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from privet.gradients import per_example_norms

KINDS = pytest.mark.parametrize("kind", cases.KINDS.values(), ids=cases.KINDS)
LENGTHS = torch.tensor([3, 7, 1, 7, 4])


def layer(kind, **options):
    torch.manual_seed(0)
    return kind(6, 4, **({"batch_first": True} | options)).double()


def numbers(*shape):
    torch.manual_seed(1)
    return torch.randn(*shape, dtype=torch.float64)


def within_a_pass(model, run, batch):
    """Return the results of `run` for a batch while the model's parameters are followed, (B, …)."""
    seen = Seen()

    def loss(model, batch):
        out = run(model, *batch)
        seen(physical(out).detach())
        return out.square().flatten(1).sum(1)

    record(model, loss, batch)
    return seen.items[0]


def packed_loss(model, batch):
    return cases.energy(lambda x, lengths: cases.packed(model, x, lengths), batch)


def padded_loss(model, batch):
    return cases.energy(lambda x: cases.everything(model(x)), batch[:1])


def assert_same(found, expected):
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-14)


@KINDS
@pytest.mark.parametrize(("options", "batch_first"), [
    ({}, True), (cases.DEEP, False), ({"bias": False, "num_layers": 3}, True),
], ids=str)  # fmt: skip
def test_outputs_and_states_are_those_of_the_plain_module(kind, options, batch_first):
    model, x = layer(kind, batch_first=batch_first, **options), numbers(5, 7, 6)

    def padded(m, x):
        output, states = m(x if batch_first else x.transpose(0, 1))
        return cases.everything((output if batch_first else output.transpose(0, 1), states))

    assert_same(within_a_pass(model, padded, (x,)), padded(model, x))
    for lengths, sort in ((LENGTHS, False), (LENGTHS.sort(descending=True).values, True)):

        def run(m, x, lengths, sort=sort):
            sequence = pack_padded_sequence(x if batch_first else x.transpose(0, 1), lengths, batch_first, enforce_sorted=sort)
            output, states = m(sequence)
            return cases.everything((pad_packed_sequence(output, batch_first=True, total_length=7)[0], states))

        expected = run(model, x, lengths)
        for length in lengths.unique():  # one pass for each group of equal lengths
            same = lengths == length
            assert_same(within_a_pass(model, run, (x[same], lengths[same])), expected[same])


def _by_name(m, x, **options):
    """Call the GRU as a function, with keyword arguments only."""
    named = {
        "hx": x.new_zeros(1, len(x), 4), "params": list(m.parameters()), "has_biases": True, "num_layers": 1, "dropout": 0.0,
        "train": True, "bidirectional": False,
    }  # fmt: skip
    return torch.gru(**named, **options)


def _packed_by_name(m, batch):
    sequence = pack_padded_sequence(batch[0], batch[1], batch_first=True, enforce_sorted=False)
    state = _by_name(m, batch[0], data=sequence.data, batch_sizes=sequence.batch_sizes)[1][0]
    return state.index_select(0, sequence.unsorted_indices).square().sum(1)


@pytest.mark.parametrize("loss", [
    lambda m, b: cases.everything(_by_name(m, b[0], input=b[0], batch_first=True)).square().sum(1), _packed_by_name,
], ids=["padded", "packed"])  # fmt: skip
def test_named_arguments_are_understood(loss):
    """They use the loop; modules pass no keyword arguments."""
    model, batch = layer(nn.GRU), (numbers(5, 7, 6), LENGTHS)
    assert_agrees(model, loss, batch, 1e-10, looped=5)


@pytest.mark.parametrize("length", [0, -1, 8])
def test_a_length_that_torch_refuses_is_an_error_of_its_example(length):
    model, x, lengths = layer(nn.GRU), numbers(5, 7, 6), LENGTHS.clone()
    lengths[3] = length

    def last_state(m, batch):  # which no length of the output contradicts
        packed = pack_padded_sequence(*batch, batch_first=True, enforce_sorted=False)
        return m(packed)[1].square().sum((0, 2))

    for method in ("auto", "loop"):
        covered = cover(model, last_state, (x, lengths), method, skip_errors=True)
        assert covered.norms.bool().tolist() == [True, True, True, False, True]
        with pytest.raises(RuntimeError, match="ength"):
            cover(model, last_state, (x, lengths), method)


def _turned_round(m, b):
    """Pack in an order chosen by the user, and restore it."""
    x, lengths = b
    order = torch.arange(len(x)).flip(0)
    sequence = pack_padded_sequence(x.index_select(0, order), lengths[order], batch_first=True, enforce_sorted=False)
    return m(sequence)[1][0].index_select(0, order.argsort()).square().sum(1)


def _packed_elsewhere(m, b):
    sequence = pack_padded_sequence(b[0], b[1], batch_first=True, enforce_sorted=False)
    sequence = nn.utils.rnn.PackedSequence(sequence.data, sequence.batch_sizes.clone(), *sequence[2:])
    return m(sequence)[1].square().sum((0, 2))


class FromTrained(nn.Module):
    """Starts from a trainable initial state."""

    def __init__(self):
        super().__init__()
        self.gru, self.first = layer(nn.GRU), nn.Parameter(numbers(1, 1, 4))

    def forward(self, x):
        return self.gru(x, self.first.expand(-1, len(x), -1).contiguous())[0]


@pytest.mark.parametrize(("model", "loss"), [
    (lambda: layer(nn.GRU), _turned_round),
    (lambda: layer(nn.GRU), _packed_elsewhere),
    (lambda: layer(nn.GRU), lambda m, b: m(b[0].transpose(0, 1))[0].square().sum((0, 2)).sum()[None]),
    (FromTrained, lambda m, b: m(b[0]).square().sum((1, 2))),
    (lambda: nn.RNNCell(6, 4).double(), lambda m, b: torch.stack([m(one) for one in b[0]]).square().sum((1, 2))),
    (lambda: layer(nn.LSTM), lambda m, b: torch.stack([m(one)[0].square().sum() for one in b[0]])),
], ids=[
    "order chosen by hand", "packed elsewhere", "time and batch swapped", "trained initial state", "one by one", "unbatched",
])  # fmt: skip
def test_examples_are_their_own_however_a_layer_is_called(model, loss):
    model, batch = model(), (numbers(7, 7, 6), torch.tensor([3, 7, 1, 7, 4, 7, 3]))
    assert_agrees(model, loss, batch, 1e-10)


@KINDS
def test_what_lies_beyond_the_end_of_an_example_has_no_part(kind):
    model, x = layer(kind, **cases.DEEP), numbers(5, 7, 6)
    norms = per_example_norms(model, packed_loss, (x, LENGTHS), method="ghost")
    for row, length in zip(x, LENGTHS, strict=True):
        row[length:] = torch.nan
    assert torch.equal(per_example_norms(model, packed_loss, (x, LENGTHS), method="ghost"), norms)
    assert all(value.isfinite().all() for value in cover(model, packed_loss, (x, LENGTHS)).gradients.values())


def copies(p):
    """Two layers that return their input, with dropout between them."""
    model = nn.RNN(4, 4, num_layers=2, dropout=p, batch_first=True, nonlinearity="relu").double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.weight_ih_l0.copy_(torch.eye(4))
        model.weight_ih_l1.copy_(torch.eye(4))
    return model


def test_dropout_between_layers_is_torchs(holds_twice):
    """Elements are dropped with the same probability and scaled alike, independently for each example."""
    model, x = copies(0.3), torch.ones(400, 5, 4, dtype=torch.float64)

    def run(m, x):
        return m(x)[0]

    def experiment():
        found = within_a_pass(model, run, (x,)).flatten(1)
        assert {round(value, 9) for value in found.unique().tolist()} == {0.0, round(1 / 0.7, 9)}
        kept = (found > 0).double()
        agree = int((kept[:200] == kept[200:]).sum())
        return {
            "chance": stats.binomtest(int(kept.sum()), kept.numel(), 0.7).pvalue,
            "independent examples": stats.binomtest(agree, kept[:200].numel(), 0.7**2 + 0.3**2).pvalue,
        }

    holds_twice(experiment)
    assert (within_a_pass(model.eval(), run, (x,)) == 1).all()
    assert not within_a_pass(copies(1.0), run, (x[:5],)).any()


@KINDS
@pytest.mark.parametrize("loss", [padded_loss, packed_loss], ids=["padded", "packed"])
def test_equal_examples_have_different_numbers_dropped(kind, loss):
    model, batch = layer(kind, dropout=0.5, **cases.DEEP), (numbers(1, 7, 6).expand(6, 7, 6), torch.full((6,), 4))
    covered = cover(model, loss, batch)
    assert covered.looped == 0
    assert len(covered.norms.unique()) == 6
    model.eval()
    assert_agrees(model, loss, batch, 1e-10)
