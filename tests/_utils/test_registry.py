import json
from dataclasses import dataclass, field

import pytest

from privet import clipping, sampling, schedules
from privet._utils.registry import PARTS, Part, decode, encode, foreign_kinds, kinds_of, register
from privet.errors import InvalidArgumentError


@dataclass(frozen=True)
class Own(schedules.Schedule):
    """A schedule that is not Privet's."""

    values: tuple[float, ...] = (1.0,)

    def factors(self, total):
        raise NotImplementedError


def test_privets_own_kinds_are_in_the_table_that_others_join():
    assert PARTS["Flat"] is clipping.Flat
    assert kinds_of(sampling.Scheme).keys() == {
        "Poisson", "TruncatedPoisson", "FixedSize", "BallsInBins", "FullBatch", "Shuffle", "CyclicPoisson", "FixedOrder",
    }  # fmt: skip
    assert {kind.__module__.split(".")[1] for kind in PARTS.values() if not issubclass(kind, Part)} <= {"noise", "plan", "tables"}
    assert register(Own) is Own
    assert kinds_of(schedules.Schedule)["Own"] is Own
    assert "Own" not in kinds_of(sampling.Scheme)


def test_the_rules_of_the_command_line_are_derived_and_have_no_ablation():
    assert list(clipping.NORM_RULES) == ["Automatic", "Flat", "Global", "Normalize", "PSAC", "PSASC"]


def test_values_come_back_from_json():
    register(Own)
    value = (Own((1.0, 0.1 + 0.2)), 3, "text", (clipping.Layerwise(clipping.Flat(0.7)), None))
    assert decode("value", json.loads(json.dumps(encode(value)))) == value


def test_the_kinds_of_installed_packages_are_imported_when_a_plan_names_them(tmp_path, monkeypatch):
    (tmp_path / "of_others-1.0.dist-info").mkdir()
    (tmp_path / "of_others-1.0.dist-info" / "METADATA").write_text("Name: of_others\nVersion: 1.0\n")
    (tmp_path / "of_others-1.0.dist-info" / "entry_points.txt").write_text("[privet.kinds]\nSteady = of_others:Steady\n")
    (tmp_path / "of_others.py").write_text(
        "import dataclasses, privet\n\n@privet.register\n@dataclasses.dataclass(frozen=True)\n"
        "class Steady(privet.schedules.Schedule):\n    value: float\n    def factors(self, total): raise NotImplementedError\n"
    )
    monkeypatch.setattr("privet._utils.registry.PARTS", dict(PARTS))
    with pytest.raises(InvalidArgumentError, match=r"schedule\.kind is 'Steady'.*entry points 'privet\.kinds'"):
        decode("schedule", {"kind": "Steady", "value": 0.5})
    monkeypatch.syspath_prepend(tmp_path)
    assert decode("schedule", {"kind": "Steady", "value": 0.5}, schedules.Schedule).value == 0.5
    assert "Steady" not in PARTS  # of the other tests


def test_a_kind_of_another_base_or_none_is_refused_with_those_that_there_are():
    with pytest.raises(InvalidArgumentError, match=r"^rule\.kind is 'Poisson'; it must be one of .*'Flat'.*privet\.register"):
        decode("rule", encode(sampling.Poisson(3)), clipping.Rule)
    with pytest.raises(InvalidArgumentError, match=r"^rule\.kind is 'Own'.*privet\.register"):
        decode("rule", {"kind": "Own"})


def test_users_cannot_register_a_noise():
    from privet.noise import Gaussian

    @dataclass(frozen=True)
    class Quiet(Gaussian):
        """Noise that might be less than it says."""

    with pytest.raises(InvalidArgumentError, match="derived from"):
        register(Quiet)


def test_what_does_not_take_part_in_comparisons_is_no_part():
    @dataclass(frozen=True)
    class Holding(Part):
        own: object
        remark: object = field(default=None, compare=False)

    Holding.__module__ = "privet.somewhere"
    assert foreign_kinds(Holding(own=1.0, remark=Own())) == set()
    assert foreign_kinds(Holding(own=Own())) == {"Own"}
    assert foreign_kinds(Holding(own=(clipping.Flat(0.5), [Own()]))) == {"Own"}
