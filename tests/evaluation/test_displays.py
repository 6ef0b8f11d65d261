import io

import numpy as np
import pytest
from matplotlib.figure import Figure

from privet.evaluation import BinTable, ConfidenceDisplay, ReliabilityDisplay, TrueClassDisplay, equal_width

LABELS = np.array([0, 1, 2, 0, 1, 2, 0, 1])
PROBABILITIES = np.random.default_rng(3).dirichlet((0.6, 0.6, 0.6), 8)
KINDS = [ReliabilityDisplay, ConfidenceDisplay, TrueClassDisplay]


def svg(display):
    stream = io.StringIO()
    display.figure_.savefig(stream, format="svg", metadata={"Date": None})
    return stream.getvalue()


@pytest.mark.parametrize("kind", KINDS)
def test_it_draws_on_given_axes_or_on_a_new_figure(kind):
    axes = Figure().add_subplot()
    display = kind.from_predictions(LABELS, PROBABILITIES, ax=axes)
    assert display.ax_ is axes
    assert display.figure_ is axes.figure
    assert kind.from_predictions(LABELS, PROBABILITIES).figure_ is not axes.figure
    assert kind(display.table).figure_ is None


@pytest.mark.parametrize("kind", KINDS)
def test_kept_data_draw_the_same_figure(kind, monkeypatch):
    monkeypatch.setitem(__import__("matplotlib").rcParams, "svg.hashsalt", "fixed")
    display = kind.from_predictions(LABELS, PROBABILITIES, edges=equal_width(7))
    assert svg(kind(BinTable.from_dict(display.table.to_dict())).plot()) == svg(display)


def test_histogram_heights_are_fractions():
    display = ConfidenceDisplay.from_predictions(LABELS, PROBABILITIES, edges=equal_width(5))
    heights = np.array([bar.get_height() for bar in display.ax_.patches])
    assert heights.sum() == pytest.approx(1)
    assert heights[:5] == pytest.approx(np.array(display.table.hits) / 8)


def test_true_class_histogram_bins_the_probability_of_the_label():
    table = TrueClassDisplay.from_predictions([0, 1], [[0.95, 0.05], [0.95, 0.05]], edges=equal_width(10)).table
    assert table.counts == (1, *[0] * 8, 1)
    assert table.hits == (0, *[0] * 8, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_diverged_models_and_no_examples_can_be_drawn(kind):
    kind.from_predictions(LABELS, np.full((8, 3), np.nan))
    kind(BinTable((0.0, 0.5, 1.0), (0, 0), (0, 0), (0.0, 0.0))).plot()
    for right in (0, 360):
        kind(BinTable((0.0, 1.0), (360,), (right,), (250.0,))).plot()
