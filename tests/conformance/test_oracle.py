"""ORACLE: for every method, gradients, norms and clipped sums equal those of plain autograd, one example at a time."""

import cases
import pytest
import torch
from oracle import EXAMPLES, FORMULAS, norms_of, plain_clipped_sum, reference, relative_error, relative_error_per_example
from recording import cover, make_scarce

from privet.clipping import NORM_RULES, AdaptiveQuantile, Layerwise
from privet.gradients import clipped_sum
from privet.gradients.core import norms
from privet.gradients.core.recorder import UntraceableError
from privet.gradients.layers.embedding import embedding
from privet.gradients.layers.embedding import kernels as embedding_kernels

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
# For norms and weighted sums: a bound on the rounding of sums of many terms is added to each norm, the largest to those that come
# from Gram matrices.
MEASURED = {torch.float32: 2e-4, torch.float64: 1e-10}
# Every rule, with bounds that clip most gradients, some, or hardly any.
RULES = [
    ("Flat", 1e-3), ("Flat", 0.7), ("Automatic", 50.0), ("Normalize", 0.7), ("PSAC", 50.0), ("PSASC", 1e-3), ("Global", 0.7),
]  # fmt: skip


SHARING = [*cases.NETWORKS, *cases.TIED]


def check(known, method, bound=0.7, rules=()):
    """Check gradients, norms and sums, and which examples shared a pass."""
    case, model, batch, expected = known.case, known.model, known.batch, known.expected
    dtype, tolerance, examples = known.dtype, MEASURED[known.dtype], len(batch[0])
    covered = cover(model, case.loss, batch, method, rule=NORM_RULES["Flat"](bound))
    assert covered.looped == (examples if method == "loop" or case in cases.UNFOLLOWED else 0)
    assert method == "loop" or (covered.groups > 1) == (case.grouped and examples > 1)
    assert all(value.dtype == dtype for value in covered.produced.values())
    assert relative_error_per_example(covered.gradients, expected) <= TOLERANCE[dtype]
    wanted = norms_of(expected)
    assert ((covered.norms - wanted).abs() <= tolerance * wanted).all()
    assert relative_error(covered.sums, plain_clipped_sum(expected, "Flat", bound)) <= tolerance
    for kind, bound in rules:
        result = clipped_sum(model, case.loss, batch, NORM_RULES[kind](bound=bound), method=method)
        assert relative_error(result.tensors, plain_clipped_sum(expected, kind, bound)) <= tolerance
        assert result.sensitivity == pytest.approx(bound * FORMULAS[kind][1], rel=1e-15)
        assert ((result.norms - wanted).abs() <= tolerance * wanted).all()


def test_every_rule_is_checked():
    assert {kind for kind, _ in RULES} == set(NORM_RULES) == set(FORMULAS)


def test_every_family_has_a_typical_case():
    for family in (*cases.FAMILIES, cases.COINCIDENCES, cases.UNFOLLOWED):
        assert {*map(str, family)} & {*map(str, cases.TYPICAL)}


@pytest.mark.parametrize(("number", "by", "method"), [
    cases.slow_unless((number + way) % 2 == 0, number, *choice)
    for number in range(len(SHARING)) for way, choice in enumerate([("parameter", "ghost"), ("module", "loop")])
])  # fmt: skip
def test_every_rule_clips_all_parameters_together_and_groups_by_their_own_norms(number, by, method):
    """Models share the rules, and the ways in `make test`."""
    case = SHARING[number]
    known = reference(case, torch.float64)
    check(known, method, rules=RULES[number % 3 :: 3])
    if case in cases.TIED:
        return
    model, batch, expected = known.model, known.batch, known.expected
    keys = {name: name if by == "parameter" else name.rpartition(".")[0] for name in expected}
    groups = [[name for name in expected if keys[name] == key] for key in dict.fromkeys(keys.values())]
    for kind, bound in RULES[1 + number % 3 :: 3]:
        if kind == "Normalize":  # would scale the rounding error of a zero gradient to the length of the others
            continue
        rule = Layerwise(NORM_RULES[kind](bound=bound), by=by)
        plain = plain_clipped_sum(expected, kind, bound, groups)
        result = clipped_sum(model, case.loss, batch, rule, method=method)
        assert relative_error(result.tensors, plain) <= TOLERANCE[torch.float64]
        assert result.sensitivity == pytest.approx(bound * FORMULAS[kind][1], rel=1e-15)
        for row, group in zip(result.norms.reshape(len(groups), -1), groups, strict=True):
            wanted = norms_of({name: expected[name] for name in group})
            torch.testing.assert_close(row, wanted, rtol=1e-10, atol=1e-10)
    counted = clipped_sum(model, case.loss, batch, AdaptiveQuantile(rule), method=method).tensors
    thresholds = [one.threshold for one in rule.group_rules(len(groups))]
    bits = (result.norms.reshape(len(groups), -1) <= torch.tensor(thresholds).double()[:, None]).double() - 0.5
    assert counted.pop("clipping:within bound").tolist() == bits.sum(1).tolist()
    assert relative_error(counted, result.tensors) <= 1e-15


def check_all(known, method, monkeypatch):
    """Check all examples together, one alone, and all again where memory is scarce."""
    check(known, method)
    check(known.first(), "auto", 1e-3)
    make_scarce(monkeypatch)
    check(known, method, 1e-3)


@pytest.mark.parametrize("case", cases.FOLLOWED, ids=str)
def test_the_tape_agrees_with_plain_autograd(case, monkeypatch):
    check_all(reference(case, torch.float64), "ghost", monkeypatch)


@pytest.mark.parametrize("case", cases.slow_unless_typical(cases.FOLLOWED), ids=str)
def test_float32_is_off_by_rounding_alone(case, monkeypatch):
    check_all(reference(case, torch.float32), "ghost", monkeypatch)


@pytest.mark.parametrize("case", cases.UNFOLLOWED, ids=str)
def test_auto_is_right_where_ghost_is_not_supported(case, monkeypatch):
    """These are the only cases: all others take one pass, or one for each group that agrees."""
    check_all(reference(case, torch.float64), "auto", monkeypatch)
    with pytest.raises(UntraceableError):
        cover(case.model(), case.loss, case.batch(EXAMPLES), "ghost")


@pytest.mark.parametrize(("dtype", "room"), [(torch.float32, None), (torch.float64, 300)], ids=["float32", "float64, scarce"])
@pytest.mark.parametrize("case", [*cases.EMBEDDING, *cases.BAGS, *cases.by_name("tied head", "embedding, time-major")], ids=str)
def test_embeddings_agree_without_compiled_kernels(case, room, dtype, monkeypatch):
    monkeypatch.setattr(embedding, "load_kernels", lambda: embedding_kernels.IN_TORCH)
    if room:
        monkeypatch.setattr(norms, "CACHE", room)
    check(reference(case, dtype), "ghost")


@pytest.mark.parametrize("scale", [1e-4, 1e4])
@pytest.mark.parametrize("case", cases.slow_unless_typical(
    [case for case in cases.CASES if case.smooth and "embedding" not in case.name]
), ids=str)  # fmt: skip
def test_small_and_large_inputs_make_no_difference(case, scale):
    check(reference(case, torch.float32, scale), "ghost", 1e-3)
