import math

import numpy as np
import pytest

from privet.errors import InvalidArgumentError
from privet.evaluation import BinTable, class_wise, equal_mass, equal_width, tabulate, top_label

RNG = np.random.default_rng(7)
# Bins → results of netcal 1.4.0 for `predictions(11)`: ECE, MCE, and the ECE of class 1 alone.
RECORDED = {
    1: (0.12819172760694553, 0.12819172760694553, 0.0026297249743111317),
    10: (0.12819172760694483, 0.1918068409126118, 0.0518681208831042),
    15: (0.12870479110496807, 0.25653174901164966, 0.05208965989990996),
    20: (0.12845733401201062, 0.26560640506597377, 0.05279050907108572),
}


def predictions(seed=5, examples=4000, classes=5):
    """Overconfident predictions, some of them with a confidence of exactly 1, and labels."""
    generator = np.random.default_rng(seed)
    logits = 3 * generator.normal(size=(examples, classes))
    probabilities = np.exp(logits - logits.max(1, keepdims=True))
    probabilities /= probabilities.sum(1, keepdims=True)
    softened = np.cumsum(probabilities**0.6 / (probabilities**0.6).sum(1, keepdims=True), axis=1)
    labels = (generator.random((examples, 1)) > softened).sum(1).clip(max=classes - 1)
    probabilities[:50] = np.eye(classes)[labels[:50]]
    return labels, probabilities


def test_errors_match_hand_calculation():
    # Bins of width ½: {0.2, 0.4} with one hit, so a gap of 0.3 − 0.5; {0.5, 0.9, 1.0} with two hits, 0.8 − 2/3.
    table = tabulate([0.2, 0.4, 0.5, 0.9, 1.0], [True, False, True, True, False], equal_width(2))
    assert table.counts == (2, 3)
    assert table.hits == (1, 2)
    assert table.gaps == pytest.approx([-0.2, 0.8 - 2 / 3])
    assert table.expected_error == pytest.approx((2 * 0.2 + 3 * (0.8 - 2 / 3)) / 5)
    assert table.maximum_error == pytest.approx(0.2)
    assert table.root_mean_square_error == pytest.approx(math.sqrt((2 * 0.04 + 3 * (0.8 - 2 / 3) ** 2) / 5))


@pytest.mark.parametrize("bins", [1, 10, 15])
def test_full_confidence_is_in_the_last_bin_and_an_edge_in_the_upper_one(bins):
    assert tabulate([1.0, 1.0, 0.0], [1, 0, 0], equal_width(bins)).counts[-1] == (2 if bins > 1 else 3)
    assert tabulate([0.5], [1], equal_width(2)).counts == (0, 1)
    assert tabulate([np.float32(1.0000001)], [1]).counts[-1] == 1  # rounding of single precision


def errors(table, of_class_one):
    return table.expected_error, table.maximum_error, of_class_one.expected_error


@pytest.mark.parametrize("bins", RECORDED)
def test_errors_match_recorded_results_of_netcal(bins):
    labels, probabilities = predictions(11)
    edges = equal_width(bins)
    found = errors(top_label(labels, probabilities, edges), tabulate(probabilities[:, 1], labels == 1, edges))
    assert found == pytest.approx(RECORDED[bins], abs=1e-12)


@pytest.mark.parametrize("cuts", [[1], [100, 101, 3000], range(0, 4000, 37)])
def test_parts_add_up_to_the_whole(cuts):
    labels, probabilities = predictions()
    edges = equal_mass(probabilities.max(1))
    pieces = zip(np.split(labels, cuts), np.split(probabilities, cuts), strict=True)
    first, *rest = (top_label(*piece, edges) for piece in pieces)
    total, whole = sum(rest, first), top_label(labels, probabilities, edges)
    assert (total.counts, total.hits) == (whole.counts, whole.hits)
    assert total.confidence == pytest.approx(whole.confidence, rel=1e-12)
    assert total.expected_error == pytest.approx(whole.expected_error, rel=1e-12)


def test_bins_of_equal_mass_have_equal_counts_and_keep_ties_together():
    confidence = RNG.random(3000)
    counts = tabulate(confidence, confidence > 0.5, equal_mass(confidence, 10)).counts
    assert len(counts) == 10
    assert max(counts) - min(counts) <= 1
    edges = equal_mass([0.9] * 98 + [0.2, 1.0], 15)
    assert tabulate([0.9] * 98 + [0.2, 1.0], [True] * 100, edges).counts == (1, 99)


def test_calibrated_predictions_have_a_small_error_and_overconfident_ones_a_gap():
    confidence = RNG.uniform(0.5, 1, 200_000)
    calibrated = tabulate(confidence, RNG.random(200_000) < confidence)
    assert calibrated.expected_error < 0.01
    assert tabulate(confidence, RNG.random(200_000) < confidence - 0.2).expected_error == pytest.approx(0.2, abs=0.01)


def test_each_class_wise_table_has_every_example_once():
    labels, probabilities = predictions()
    tables = class_wise(labels, probabilities)
    assert [table.examples for table in tables] == [4000] * 5
    assert [sum(table.hits) for table in tables] == np.bincount(labels, minlength=5).tolist()
    assert sum(sum(table.confidence) for table in tables) == pytest.approx(4000)


def test_errors_are_nan_without_examples_and_for_a_diverged_model():
    for table in (tabulate([], []), tabulate([math.nan, 0.3], [0, 1])):
        assert math.isnan(table.expected_error)
        assert math.isnan(table.maximum_error)
        assert math.isnan(table.root_mean_square_error)
    assert equal_mass([math.nan]) == (0.0, 1.0)


@pytest.mark.parametrize(("wrong", "words"), [
    (lambda: tabulate([0.3], [1], equal_width(3)) + tabulate([0.3], [1], equal_width(4)), "edges"),
    (lambda: tabulate([1.1], [1]), "confidence"),
    (lambda: tabulate([-0.1], [1]), "confidence"),
    (lambda: tabulate([0.5, 0.5], [1]), "hits"),
    (lambda: tabulate([[0.5]], [[1]]), "one dimension"),
    (lambda: tabulate([0.5], [1], [0, 0.5, 0.5, 1]), "edges"),
    (lambda: tabulate([0.5], [1], [0.1, 1]), "edges"),
    (lambda: top_label([0, 1], [0.5, 0.5]), "probabilities"),
    (lambda: equal_width(0), "bins"),
    (lambda: BinTable((0.0, 1.0), (1, 1), (1,), (0.5,)), "one entry per bin"),
    (lambda: BinTable((0.0, 1.0), (1,), (2,), (0.5,)), "from 0 to the number of examples"),
    (lambda: BinTable((0.0, 1.0), (1,), (-(10**400),), (0.5,)), "from 0 to the number of examples"),
    (lambda: BinTable((0.0, 1.0), (10**400,), (10**400,), (0.5,)), "from 0 to the number of examples"),
])  # fmt: skip
def test_invalid_arguments_are_refused_by_name(wrong, words):
    with pytest.raises(InvalidArgumentError, match=words):
        wrong()
