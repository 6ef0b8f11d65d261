"""An index or a coordinate out of range is an error of its example: it neither reads nor changes what belongs to another one.

Models compute in float64: two computations of one number may be rounded otherwise.
"""

from functools import partial

import pytest
import torch
from recording import assert_same_as_the_loop
from torch import nn
from torch.nn import functional as F

from privet.clipping import Flat
from privet.federated import LocalSteps, Round, Simulation
from privet.gradients import per_example_gradients, trainable
from privet.gradients.core.examples import split_batch
from privet.gradients.engine import Clipper, Engine
from privet.gradients.layers.memory_safety import REPLACED
from rounding import assert_equal_up_to_rounding

WIDE = Flat(1e6)
EXAMPLES, PLACES = 6, 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.table = nn.Linear(4, 5).double(), nn.Embedding(5, 4).double()


def _hidden(model, batch):
    return model.layer(batch["x"]).tanh()  # (1, places, 5)


def _rows_of(look_up):
    return lambda m, b: torch.stack([look_up(h, i) for h, i in zip(_hidden(m, b), b["index"], strict=True)])


def _filled(m, b):
    return torch.stack([h.index_fill(0, i, 0.5) for h, i in zip(_hidden(m, b), b["index"], strict=True)])


def _filled_in_place(m, b):
    return torch.stack([h.clone().index_fill_(0, i, h[0, 0].detach()) for h, i in zip(_hidden(m, b), b["index"], strict=True)])


def _ctc(m, b, padding=0):
    """What pads targets, behind their length, is not looked at."""
    scores = _hidden(m, b).log_softmax(-1).transpose(0, 1).repeat(4, 1, 1)
    targets = F.pad(b["index"] + 1, (0, 2), value=padding)
    lengths = tuple if padding else torch.tensor
    return F.ctc_loss(scores, targets, lengths([4 * PLACES]), lengths([2]), reduction="none")[:, None]


def _sampled(mode, padding):
    def sample(m, b):
        image = _hidden(m, b)[:, None]
        grid = b["grid"][:, None] + m.layer.bias.sum()
        return F.grid_sample(image, grid, mode=mode, padding_mode=padding, align_corners=False)

    return sample


BY_INDEX = {
    "table per example": _rows_of(lambda h, i: F.embedding(i, h)),
    "padded table per example": _rows_of(lambda h, i: F.embedding(i, h, padding_idx=1)),
    "padding counted from the end": _rows_of(lambda h, i: F.embedding(i, h, padding_idx=-1)),
    "one index": _rows_of(lambda h, i: F.embedding(i[0], h)),
    "operator": _rows_of(lambda h, i: torch.embedding(h, i, 0)),
    "operator of a parameter": lambda m, b: torch.ops.aten.embedding(m.table.weight, b["index"]) * _hidden(m, b)[:, :1, :4],
    "index_fill": _filled,
    "index_fill_": _filled_in_place,
    "ctc_loss": _ctc,
    "one_hot": lambda m, b: F.one_hot(b["index"], PLACES) * _hidden(m, b)[:, :2, :PLACES],
    "sparse_coo_tensor": _rows_of(lambda h, i: torch.sparse_coo_tensor(i[None], h[:2], (PLACES, 5)).to_dense()),
    "window": _rows_of(lambda h, i: torch.as_strided(h, (1, 5), (5, 1), h.storage_offset() + int(i[0]) * 5)),
}
BY_PLACE = {f"grid_sample {mode} {padding}": _sampled(mode, padding)
            for mode in ("bilinear", "nearest", "bicubic") for padding in ("zeros", "reflection")}  # fmt: skip


def data():
    generator = torch.Generator().manual_seed(5)
    return {
        "x": torch.randn(EXAMPLES, PLACES, 4, generator=generator, dtype=torch.float64),
        "index": torch.randint(0, PLACES, (EXAMPLES, 2), generator=generator),
        "grid": torch.rand(EXAMPLES, 4, 2, generator=generator, dtype=torch.float64) * 8 - 4,
    }


def losses(program):
    return lambda m, b: program(m, b).square().flatten(1).sum(1)


@pytest.mark.parametrize("name", [*BY_INDEX, *BY_PLACE])
def test_what_is_in_range_is_computed_as_by_the_loop(name):
    torch.manual_seed(1)
    assert_same_as_the_loop(Net(), losses({**BY_INDEX, **BY_PLACE}[name]), data())


def test_negative_indices_that_torch_allows_count_from_the_end_and_padding_of_targets_is_not_looked_at():
    torch.manual_seed(1)
    model, batch = Net(), data()
    expected = per_example_gradients(model, losses(_ctc), batch, method="loop")
    for method in ("loop", "auto"):
        found = per_example_gradients(model, losses(partial(_ctc, padding=-100)), batch, method=method)
        assert_equal_up_to_rounding(found, expected)
    batch["index"] -= PLACES
    assert_same_as_the_loop(model, losses(_filled), batch)


def sum_of(program, batch, method):
    """The clipped sum of a training: public functions raise the error of an example, which contributes zero there."""
    torch.manual_seed(1)
    model = Net()
    engine = Engine(model, losses(program), trainable(model), method, skip_errors=True)
    return engine.clipped_sum(split_batch(batch), Clipper.of(engine.parameters, WIDE)).sums


def assert_contributes_zero(program, batch, method, examples=(2,)):
    """Some examples contribute zero, and the others as without them."""
    rest = {name: each[[i for i in range(EXAMPLES) if i not in examples]] for name, each in batch.items()}
    found, expected = (sum_of(program, each, method) for each in (batch, rest))
    assert any(each.any() for each in expected.values())
    assert_equal_up_to_rounding(found, expected)


@pytest.mark.product
@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("index", [-PLACES - 1, PLACES])
@pytest.mark.parametrize("name", BY_INDEX)
def test_an_index_out_of_range_is_an_error_of_its_example(name, index, method):
    size = 5 if name in ("operator of a parameter", "ctc_loss") else PLACES
    batch = data()
    batch["index"][2, 0] = index + (size - PLACES if index > 0 else PLACES - size)
    assert_contributes_zero(BY_INDEX[name], batch, method)


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("name", BY_PLACE)
def test_a_coordinate_that_is_no_number_is_an_error_of_its_example(name, method):
    batch = data()
    batch["grid"][2] = 0.1  # which is in the image
    batch["grid"][2, 1, 0] = torch.nan
    assert_contributes_zero(BY_PLACE[name], batch, method)


def _unfilled(new):
    def loss(m, b):
        h = _hidden(m, b).repeat(1, 1, 100)  # small memory is not used again at once
        used = [torch.full_like(h, 7.0) for _ in range(99)]
        del used  # what is allocated next lies in its memory
        hold = new(h)
        hold[:, :1] = h[:, :1]
        return (hold + h).square().flatten(1).sum(1)

    return loss


NEW = {
    "empty": lambda h: torch.empty(h.shape, dtype=h.dtype),
    "empty_like": torch.empty_like,
    "new_empty": lambda h: h.new_empty(h.shape),
    "empty_strided": lambda h: torch.empty_strided(h.shape, h.stride(), dtype=h.dtype),
    "new": lambda h: h.new(*h.shape),
    "resize_": lambda h: torch.ones(0, dtype=h.dtype).resize_(h.shape),
    "operator": lambda h: torch.ops.aten.empty_like(h),
    "empty_permuted": lambda h: torch.empty_permuted(h.shape, (0, 1, 2), dtype=h.dtype),
}


@pytest.mark.parametrize("method", ["auto", "loop"])
@pytest.mark.parametrize("name", NEW)
def test_memory_that_nobody_wrote_is_zero(name, method):
    torch.manual_seed(1)
    model, batch = Net(), data()
    expected = per_example_gradients(model, _unfilled(torch.zeros_like), batch, method=method)
    assert_equal_up_to_rounding(per_example_gradients(model, _unfilled(NEW[name]), batch, method=method), expected)


def test_windows_that_begin_behind_their_example_show_no_other():
    batch = data()
    batch["index"][1:4, 0] = PLACES
    assert_contributes_zero(BY_INDEX["window"], batch, "auto", (1, 2, 3))


@pytest.mark.parametrize("far", [1e9, -1e38, torch.inf])
@pytest.mark.parametrize("padding", ["zeros", "border"])
def test_coordinates_far_outside_an_image_are_padding(padding, far):
    image, near = torch.randn(1, 1, 4, 4, dtype=torch.float64), torch.full((1, 2, 2, 2), 50.0, dtype=torch.float64)
    sample = REPLACED[F.grid_sample]
    expected = F.grid_sample(image, near if far > 0 else -near, "bilinear", padding, align_corners=False)
    assert_equal_up_to_rounding(sample(image, near * far, "bilinear", padding, align_corners=False), expected)


@pytest.mark.parametrize("index", [-1, 5, 9])
def test_a_client_s_index_out_of_range_reads_no_other_client(index):
    def loss(model, batch):
        return model(batch).square().sum((1, 2))

    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 1)).double()
    clients = list(torch.randint(0, 5, (5, 4, 2)))
    clients[2][3, 1] = index
    simulation = Simulation(model, loss, clients, LocalSteps(learning_rate=0.1, steps=2, batch_size=2))
    told = Round(1, {name: each.detach().clone() for name, each in model.named_parameters()}, WIDE)
    found, expected = (
        simulation.gather(told, torch.tensor(cohort).numpy()).tensors for cohort in ([0, 1, 2, 3, 4], [0, 1, 3, 4])
    )
    assert simulation.vectorised
    assert_equal_up_to_rounding(found, expected)
