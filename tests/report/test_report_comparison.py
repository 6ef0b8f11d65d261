import math
from functools import partial

import pytest

import plans
from privet import report
from privet.accounting import compare
from privet.clipping import Flat
from privet.errors import InvalidArgumentError
from privet.noise import Gaussian
from privet.report.figures import accountants
from privet.sampling import FixedSize, Poisson

plan = partial(plans.plan, examples=5000, sampling=Poisson(50), steps=40, clipping=Flat(0.3), noise=Gaussian(1.7))


@pytest.mark.parametrize("made", [plan(), plan(sampling=FixedSize(50), adjacency="replace-one", steps=3)])
def test_every_finite_epsilon_has_a_labelled_line(made, tmp_path):
    drawn = report.draw_comparison(made, tmp_path / "comparison.svg").read_text(encoding="utf-8")
    for row in compare(made).rows:
        known = accountants.describe(row.accountant)
        shown = row.epsilon is not None and 0 < row.epsilon < math.inf
        assert (f">{known.name} {known.show(row.epsilon)}" in drawn) == shown
    assert "training step" in drawn
    assert "mathdefault" not in drawn


def test_infinite_epsilon_and_unwritable_files_are_refused(tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"^noise\.multiplier is"):
        report.draw_comparison(plan(noise=Gaussian(0.0, non_private=True)), tmp_path / "a.svg")
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match=r"^(Not a directory|File exists): figure is"):
        report.draw_comparison(plan(), tmp_path / "file" / "a.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
