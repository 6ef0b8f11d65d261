import struct
from itertools import cycle

import numpy as np
import pytest
import torch
from test_rounds import MASKS, RULES, deltas_of, distance, round_of

from privet.clipping.adaptive import COUNTS
from privet.federated import Round
from privet.federated.messages import checked, message, sum_messages
from privet.federated.rounds import contribution, no_contributions
from privet.sparsification.drawing import Selection

EVERY = [*zip(RULES, cycle(MASKS), strict=False), *((rule, masks) for rule in ("flat", "adaptive") for masks in MASKS)]


def sent(told, seed=0, scale=1.0):
    return message(contribution(deltas_of(1, seed, scale), told))


@pytest.mark.parametrize(("rule", "masks"), EVERY)
def test_honest_messages_sum_to_what_clipping_gives(rule, masks):
    told = round_of(rule, masks)
    for scale in (1e-3, 1.0, 1e8):
        found = sum_messages([(client, sent(told, client, scale)) for client in (4, 1, 7)], told, np.array([1, 4, 7]))
        total = no_contributions(told)
        for start, client in enumerate((4, 1, 7)):
            total = total.join(contribution(deltas_of(1, client, scale), told, start=start))
        assert distance(found, total) < 1e-5 * told.rule.sensitivity
        assert (found.sensitivity, found.noise_scales) == (total.sensitivity, total.noise_scales)


@pytest.mark.parametrize(("rule", "masks"), EVERY)
def test_a_forged_update_is_no_longer_than_the_sensitivity(rule, masks):
    told = round_of(rule, masks)
    honest = np.frombuffer(sent(told, scale=1e3), "<f4").astype(np.float64)
    statistics = sum(tensor.numel() for name, tensor in no_contributions(told).tensors.items() if ":" in name)
    for size in (1e6, 3e30, 1.001):
        forged = honest * size
        if statistics:  # statistics as they must be, so that the message is not dropped
            forged[-statistics:] = honest[-statistics:]
        found = sum_messages([(2, forged.astype("<f4").tobytes())], told, np.array([2]))
        moved = distance(found, no_contributions(told))
        assert moved <= told.rule.sensitivity
        if size > 2 and rule not in ("psac", "global"):
            assert moved > 0.9 * told.rule.sensitivity
        for name, mask in (told.masks or {}).items():
            assert not found.tensors[name][~mask].any()


def test_an_update_where_there_is_least_noise_is_cut_to_the_sensitivity_there():
    told = round_of("layerwise, unequal noise")
    template = no_contributions(told)
    assert template.noise_scales["a.weight"] < 0.5
    forged = np.zeros(sum(tensor.numel() for tensor in template.tensors.values()), "<f4")
    forged[0] = 1.0  # of a.weight; the sensitivity of all groups together is 2
    found = sum_messages([(2, forged.tobytes())], told, np.array([2]))
    assert distance(found, template) == pytest.approx(told.rule.sensitivity, rel=1e-5)
    assert distance(found, template) <= told.rule.sensitivity


@pytest.mark.parametrize("rule", ["adaptive", "adaptive layerwise"])
@pytest.mark.parametrize("count", [0.0, 0.4999, 1.0, -3.0, 1e6])
def test_forged_statistics_count_as_nothing(rule, count):
    told = round_of(rule)
    data = sent(told)
    assert checked(data, no_contributions(told))[COUNTS].abs().eq(0.5).all()
    assert checked(data[:-4] + struct.pack("<f", count), no_contributions(told)) is None


@pytest.mark.parametrize(("rule", "masks"), EVERY)
def test_what_is_no_message_counts_as_nothing(rule, masks):
    told = round_of(rule, masks)
    data, template = sent(told), no_contributions(told)
    assert checked(data, template) is not None
    bad = [b"", data[:-1], data[:-4], data + b"\0", data + data, None, 7, "text", [1.0]]
    bad += [struct.pack("<f", value) + data[4:] for value in (float("nan"), float("inf"), -float("inf"))]
    assert all(checked(each, template) is None for each in bad)
    found = sum_messages(list(enumerate(bad)), told, np.arange(len(bad)))
    assert distance(found, template) == 0


def of_floats(numbers):
    return np.asarray(numbers, dtype="<f4").tobytes()


# What a hostile client may send instead of its honest message, (numbers of the message, random generator) → anything.
HOSTILE = [
    lambda honest, random: of_floats(np.full(len(honest), np.finfo(np.float32).max)),
    lambda honest, random: of_floats(np.full(len(honest), 1e-45)),
    lambda honest, random: of_floats(-honest),
    lambda honest, random: of_floats(np.eye(1, len(honest))[0][::-1] * 1e30),
    lambda honest, random: of_floats(np.full(len(honest), np.nan)),
    lambda honest, random: random.bytes(4 * len(honest)),
    lambda honest, random: np.asarray(honest, dtype=">f4").tobytes(),
    lambda honest, random: (1e300 * honest[: len(honest) // 2]).astype("<f8").tobytes(),
    lambda honest, random: of_floats(np.r_[honest, honest]),
    lambda honest, random: torch.from_numpy(honest),
    lambda honest, random: bytearray(of_floats(1e6 * honest)),
]


@pytest.mark.filterwarnings("error")  # a warning would tell that some client sent no numbers
@pytest.mark.parametrize(("rule", "masks"), EVERY)
def test_a_hostile_client_moves_the_sum_of_the_others_by_at_most_the_sensitivity(rule, masks):
    told = round_of(rule, masks)
    others = [(client, sent(told, client, 10.0)) for client in (1, 2)]
    honest = np.frombuffer(sent(told, 3, 10.0), "<f4").astype(np.float64)
    without = sum_messages(others, told, np.array([1, 2]))
    for hostile in HOSTILE:
        forged = hostile(honest, np.random.default_rng(7))
        # Alone, before an honest message, and with others' numbers for senders.
        for answers in ([(3, forged)], [(3, forged), (3, of_floats(honest))], [(3, forged), (4, forged), (-1, forged)]):
            found = sum_messages([*others, *answers], told, np.array([1, 2, 3]))
            assert distance(found, without) <= told.rule.sensitivity * (1 + 1e-6)
            assert (found.sensitivity, found.noise_scales) == (without.sensitivity, without.noise_scales)
            for name, mask in (told.masks or {}).items():
                assert not found.tensors[name][~mask].any()


def test_a_dense_message_does_not_pass_for_a_sparse_one():
    assert checked(sent(round_of("flat")), no_contributions(round_of("flat", "sparse"))) is None


def test_only_clients_that_were_asked_count_and_each_once():
    told = round_of("flat")
    first, second, third = (sent(told, seed) for seed in range(3))
    cohort = np.array([3, 8, 9])
    answers = [(3, first), (3, second), (5, second), (8, third), (3, first)]  # twice, not asked, and client 9 silent
    expected = sum_messages([(3, first), (8, third)], told, cohort)
    assert distance(sum_messages(answers, told, cohort), expected) == 0
    # A message that is refused is a client's only one, too.
    assert distance(sum_messages([(3, b""), (3, first)], told, cohort), no_contributions(told)) == 0


def test_a_sparse_message_has_the_kept_coordinates_alone_and_clients_build_the_mask_themselves():
    shapes = {"w": (100, 60), "b": (100,)}
    selection = Selection(seed=1, block=9, zeros=round(0.9 * 6100))
    parameters = {name: torch.zeros(shape) for name, shape in shapes.items()}
    told = Round(1, parameters, RULES["flat"], selection.masks(shapes), selection)
    deltas = {name: torch.randn(1, *shape) for name, shape in shapes.items()}
    sparse, dense = (message(contribution(deltas, each)) for each in (told, Round(1, parameters, RULES["flat"])))
    assert (len(sparse), len(dense)) == (4 * 610, 4 * 6100)
    again = Round(1, parameters, RULES["flat"], told.selection.masks(shapes))
    assert message(contribution(deltas, again)) == sparse
