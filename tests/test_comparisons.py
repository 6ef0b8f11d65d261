"""Tests compare two computations with a tolerance that is written out or derived from rounding, on every processor."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from rounding import assert_equal_up_to_rounding, tolerance

ROOT = Path(__file__).parents[1]
FOLDERS = ("tests", "experiments/tests")
COMPARISONS = {"assert_close", "allclose", "assert_allclose", "assert_almost_equal", "assert_array_almost_equal"}


def default_tolerances(source: str) -> Iterator[str]:
    """Every comparison in `source` whose tolerance is the default of its library, or that is passed on without one."""
    nodes = list(ast.walk(ast.parse(source))) if any(name in source for name in COMPARISONS) else []
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    stated = [call.func for call in calls if {"rtol", "atol"} & {word.arg for word in call.keywords}]
    for node in nodes:
        name = getattr(node, {ast.Attribute: "attr", ast.Name: "id", ast.alias: "name"}.get(type(node), ""), None)
        if name in COMPARISONS and node not in stated:
            yield f"{node.lineno}: {ast.unparse(node)}"


def test_comparisons_state_a_tolerance():
    """`assert_close` and the like have `rtol` or `atol`; others are `rounding.assert_equal_up_to_rounding`."""
    sources = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    found = [f"{path.relative_to(ROOT)}:{use}" for path in sources for use in default_tolerances(path.read_text())]
    assert not found


@pytest.mark.parametrize(
    ("source", "refused"),
    [
        ("torch.testing.assert_close(a, b)", True),
        ("a.allclose(b)", True),
        ("np.testing.assert_allclose(a, b, verbose=True)", True),
        ("all(map(torch.allclose, a, b))", True),
        ("from torch.testing import assert_close", True),
        ("torch.testing.assert_close(a, b, rtol=0, atol=1e-9)", False),
        ("np.testing.assert_allclose(a, b, rtol=1e-9)", False),
        ("assert_equal_up_to_rounding(a, b)", False),
    ],
)
def test_what_is_found(source, refused):
    assert bool(list(default_tolerances(source))) == refused


def test_orders_of_summation_are_equal_and_a_lost_term_is_not():
    """Where two orders of one sum differ in the last digits, a sum without one of its terms is still told apart."""
    terms = torch.randn(200, 50)
    total = terms.sum(0)
    assert_equal_up_to_rounding(terms.flip(0).cumsum(0)[-1], total)
    with pytest.raises(AssertionError):
        assert_equal_up_to_rounding(terms[1:].sum(0), total)


def test_tolerances_follow_the_precision_and_the_magnitude():
    ones = torch.ones(3)
    assert tolerance(ones, terms=10) == 10 * torch.finfo(torch.float32).eps
    assert tolerance(4 * ones.double(), terms=10) == 40 * torch.finfo(torch.float64).eps
    assert tolerance(torch.tensor([torch.nan, torch.inf, 2.0]), terms=1) == 2 * torch.finfo(torch.float32).eps
    assert tolerance(torch.tensor([3]), torch.tensor([3])) == tolerance(torch.empty(0)) == 0
    assert_equal_up_to_rounding({"a": [ones, ones]}, {"a": [ones, ones]})
    with pytest.raises(AssertionError, match="a"):
        assert_equal_up_to_rounding({"a": ones}, {"a": 2 * ones})
