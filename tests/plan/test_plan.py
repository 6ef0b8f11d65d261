import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import privet
from plans import plan
from privet import Plan, accounting, epochs, sampling
from privet.accounting import Event
from privet.accounting.events import ADJACENCIES
from privet.accounting.queries import ACCOUNTANTS, composed_epsilon
from privet.clipping import Automatic, Flat
from privet.errors import InvalidArgumentError
from privet.noise import SOURCES, Gaussian
from privet.plan import PrivacyMechanism
from privet.plan.mechanism import Epochs
from privet.sampling import Poisson
from privet.schedules import Geometric, Linear, Piecewise, Table


def test_everything_is_derived_from_one_place():
    made = plan(steps=epochs(20))
    assert made.sampling_rate == 512 / 60_000
    assert made.divisor == 512.0
    assert isinstance(made.divisor, float)
    assert made.total_steps == 2343
    assert made.noise_multiplier == 2.3
    assert made.events() == (accounting.Event(512 / 60_000, 2.3, 2343),)
    assert made.events(7) == (accounting.Event(512 / 60_000, 2.3, 7),)
    assert made.gradient_deviations() == pytest.approx([2.3 * 0.7 / 512] * 2343, rel=1e-12)


@pytest.mark.parametrize("use", [range, lambda n: 1 - n, lambda n: 1 / n, lambda n: 1 % n, lambda n: n > 1, lambda n: n < 1])
def test_a_length_in_epochs_says_that_it_is_no_number_of_steps(use):
    with pytest.raises(InvalidArgumentError, match=r"^a length in epochs is not a number of steps: .*total_steps is one"):
        use(plan(steps=epochs(4)).steps)


@pytest.mark.parametrize(("deviation", "expected"), [("relative", (1, 1.3 * 0.8, 4.0)), ("fixed", (1, 1.3, 2.0))])
def test_the_noise_on_the_gradient_follows_both_schedules(deviation, expected):
    multiplier = Gaussian(2.3, schedule=privet.schedules.Table((1.0, 1.3, 2.0)), deviation=deviation)
    made = plan(steps=3, noise=multiplier, bound_schedule=privet.schedules.Table((1.0, 0.8, 2.0)))
    assert made.gradient_deviations() == pytest.approx([2.3 * 0.7 / 512 * factor for factor in expected], rel=1e-12)


def test_the_noise_of_an_adaptive_bound_is_not_known_in_advance():
    class Restless(Flat):
        def adapt(self, statistics, divisor):
            return self.scale_bound(0.9)

    with pytest.raises(InvalidArgumentError, match="known ahead"):
        plan(clipping=Restless(0.7)).gradient_deviations()


@pytest.mark.parametrize(("number", "batch_size", "steps"), [(20, 512, 2343), (0.5, 600, 50), (1, 60_000, 1), (60, 256, 14_062)])
def test_epochs_are_rounded_down_to_whole_steps(number, batch_size, steps):
    assert plan(steps=epochs(number), sampling=Poisson(batch_size)).total_steps == steps


def test_epsilon_is_the_accountants():
    made = plan()
    for name in ACCOUNTANTS:
        for steps in (None, 5):
            asked = accounting.epsilon(
                sampling_rate=512 / 60_000, noise_multiplier=2.3, steps=steps or 300, delta=1e-5, accountant=name
            )
            assert made.epsilon(name, steps=steps) == asked
    assert made.epsilon() == made.epsilon("pld")
    assert plan(adjacency="replace-one").epsilon("rdp") > made.epsilon("rdp")


@pytest.mark.parametrize("scheme", [Poisson(512), sampling.Shuffle(512), sampling.BallsInBins(512), sampling.FixedSize(512)])
@pytest.mark.parametrize("steps", [1, 117, 118])
def test_steps_alike_cost_what_the_scheme_says_of_each(scheme, steps):
    """An epoch of 60,000 examples at 512 ends after 117 steps or 118."""
    adjacency = "add-remove" if isinstance(scheme, Poisson | sampling.BallsInBins) else "replace-one"
    made = plan(sampling=scheme, adjacency=adjacency)
    listed = scheme.events(60_000, np.full(steps, 2.3))
    told = {"delta": 1e-5, "adjacency": adjacency}
    assert composed_epsilon(made.events(steps), **told) == composed_epsilon(listed, **told)


def test_a_question_about_very_many_steps_needs_no_list_of_them():
    made = plan(steps=2**31 - 1, noise=Gaussian(1e4))
    assert [event.count for event in made.events()] == [2**31 - 1]
    assert 0 < made.epsilon() < math.inf


def test_open_ends_are_named_when_they_are_asked_for():
    with pytest.raises(InvalidArgumentError, match=r"^steps is None.*calibrate"):
        _ = plan(steps=None).total_steps
    with pytest.raises(InvalidArgumentError, match=r"^noise\.multiplier is None.*calibrate"):
        plan(noise=Gaussian()).epsilon()


BAD = [
    *(("examples", value) for value in (0, 1, -5, 6e4, math.nan, True, "60000", None, 2**31)),
    *(("sampling", value) for value in (512, None, "Poisson", Poisson)),
    *(("steps", value) for value in (0, -1, 2.5, math.nan, True, "10", 2**31, epochs(1e-9), epochs(1e300), epochs(1e8))),
    *(("clipping", value) for value in (0.7, None, "flat", Flat)),
    *(("bound_schedule", value) for value in (0.5, Flat(1.0))),
    *(("delta", value) for value in (0, 1, -1e-5, 2, math.nan, math.inf, True, "1e-5", None, 1 / 60_000, 0.5)),
    *(("adjacency", value) for value in ("substitution", None, 1, True, "")),
    *(("noise", value) for value in (2.3, None, "gaussian", Gaussian)),
    *(("accept_large_delta", value) for value in (1, None, "yes")),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=[f"{name}={value!r}"[:50] for name, value in BAD])
def test_a_bad_argument_is_refused_by_name(name, value):
    with pytest.raises(InvalidArgumentError, match=rf"^{name} is .*; it must be ") as caught:
        plan(**{name: value})
    assert caught.value.name == name


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "20", None])
def test_a_bad_number_of_epochs_is_refused_by_name(value):
    with pytest.raises(InvalidArgumentError, match=r"^steps\.epochs is"):
        epochs(value)


def test_a_large_delta_has_to_be_accepted_in_words():
    with pytest.raises(InvalidArgumentError, match="say accept_large_delta=True"):
        plan(delta=1 / 60_000)
    accepted = plan(delta=1 / 60_000, accept_large_delta=True)
    assert "at least 1/examples: a weak guarantee" in str(accepted.guarantee(accountant="rdp"))
    assert "weak" not in str(plan().guarantee(accountant="rdp"))


@pytest.mark.parametrize("word", ["PLD", None, 1, "abadi"])
def test_unknown_accountants_are_refused_with_or_without_privacy(word):
    for made in (plan(), plan(noise=Gaussian(2.3, source="fixed"))):
        with pytest.raises(InvalidArgumentError, match=r"^accountant is"):
            made.epsilon(word)


def test_a_plan_is_frozen():
    made = plan()
    for field in dataclasses.fields(Plan):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, field.name, getattr(made, field.name))
    assert hash(made) == hash(plan())


@pytest.mark.parametrize(
    ("accountant", "adjacency"), [(None, "add-remove"), ("pld", "replace-one"), ("rdp", "add-remove"), ("basic", "replace-one")]
)
def test_calibrate_solves_for_the_noise_and_nothing_else(accountant, adjacency):
    asked = plan(noise=Gaussian(deviation="fixed"), adjacency=adjacency)
    found = asked.calibrate(epsilon=1.3, accountant=accountant)
    assert dataclasses.replace(found, noise=Gaussian(deviation="fixed")) == asked
    by = accountant or "pld"
    less = dataclasses.replace(found, noise=Gaussian(found.noise_multiplier * (1 - 1e-4)))
    assert found.epsilon(by) <= 1.3 < less.epsilon(by)


def test_calibrate_solves_for_the_steps_and_nothing_else():
    asked = plan(steps=None)
    found = asked.calibrate(epsilon=0.6)
    assert dataclasses.replace(found, steps=None) == asked
    assert found.epsilon() <= 0.6 < found.epsilon(steps=found.total_steps + 1)


@pytest.mark.parametrize("changes", [{"noise": Gaussian()}, {"steps": None}])
def test_a_test_source_is_calibrated_as_if_it_were_private_and_promises_nothing(changes):
    source = dataclasses.replace(changes.get("noise", Gaussian(2.3)), source="fixed")
    secret, known = plan(**changes), plan(**{**changes, "noise": source})
    found = known.calibrate(epsilon=1.3, accountant="rdp")
    expected = secret.calibrate(epsilon=1.3, accountant="rdp")
    assert (found.noise_multiplier, found.total_steps) == (expected.noise_multiplier, expected.total_steps)
    assert found.epsilon() == math.inf


def test_exactly_one_of_noise_and_steps_is_solved_for():
    with pytest.raises(InvalidArgumentError, match="exactly one is solved for"):
        plan().calibrate(epsilon=3)
    with pytest.raises(InvalidArgumentError, match="not both"):
        plan(noise=Gaussian(), steps=None).calibrate(epsilon=3)


def test_an_approximation_is_no_target():
    for name in ("gdp", "edgeworth"):
        with pytest.raises(InvalidArgumentError, match=rf"^accountant is '{name}'.*Only an upper bound"):
            plan(noise=Gaussian()).calibrate(epsilon=3, accountant=name)


def test_targets_out_of_reach_are_refused():
    with pytest.raises(InvalidArgumentError, match=r"^epsilon is 0\.001; it must be at least .*cost of one step"):
        plan(steps=None, sampling=Poisson(60_000)).calibrate(epsilon=0.001)
    with pytest.raises(InvalidArgumentError, match=r"^epsilon is 1000000000\.0; it must be at most .*smallest noise multiplier"):
        plan(noise=Gaussian(), steps=10).calibrate(epsilon=1e9)
    with pytest.raises(InvalidArgumentError, match=r"^epsilon is .*Take fewer steps"):
        plan(noise=Gaussian(), sampling=sampling.FullBatch(), steps=10**6).calibrate(epsilon=1e-7)
    with pytest.raises(InvalidArgumentError, match=r"^noise\.multiplier is 0"):
        plan(steps=None, noise=Gaussian(0, non_private=True)).calibrate(epsilon=3)


scales = st.floats(1e-12, 1e12) | st.sampled_from([0.1, 1 / 3, 1e-12, 1e12, 0.7, math.nextafter(1.0, 2)]) | st.integers(1, 1000)
rules = st.builds(Flat, bound=scales) | st.builds(Automatic, bound=scales, stability=scales)
gaussians = st.builds(Gaussian, multiplier=st.none() | st.floats(1e-3, 1e6), source=st.sampled_from(sorted(SOURCES))) | st.just(
    Gaussian(0.0, non_private=True)
)
plans = st.builds(
    Plan,
    examples=st.integers(1000, 2**31 - 1),
    sampling=st.builds(Poisson, batch_size=st.floats(1e-300, 1000) | st.integers(1, 1000)),
    steps=st.none() | st.integers(1, 2**31 - 1),
    clipping=rules,
    delta=st.floats(0, 1, exclude_min=True, exclude_max=True),
    adjacency=st.sampled_from(sorted(ADJACENCIES)),
    noise=gaussians,
    accept_large_delta=st.just(True),
) | st.builds(plan, steps=st.builds(Epochs, st.floats(0.01, 1000)), delta=st.floats(5e-324, 1.6e-5), noise=gaussians)


@given(plans)
def test_json_gives_an_equal_plan_back(made):
    for text in (made.to_json(), made.to_json(indent=2)):
        again = Plan.from_json(text)
        assert again == made
        assert again.to_json() == made.to_json()


def test_no_field_is_missing_from_the_record():
    data = plan(steps=epochs(3)).to_dict()
    assert set(data) == {"format", *(field.name for field in dataclasses.fields(Plan))}
    assert data["format"] == 1
    for name, kind in {"sampling": Poisson, "clipping": Flat, "noise": Gaussian, "steps": Epochs}.items():
        assert set(data[name]) == {"kind", *(field.name for field in dataclasses.fields(kind))}
        assert data[name]["kind"] == kind.__name__


def changed(**changes):
    data = plan().to_dict()
    for path, value in changes.items():
        *outer, last = path.split("__")
        inner = data
        for name in outer:
            inner = inner[name]
        if value is ...:
            del inner[last]
        else:
            inner[last] = value
    return json.dumps(data)


@pytest.mark.parametrize(("text", "message"), [
    ("", "does not parse.*: plan is ''"),
    ("{", "does not parse"),
    ("[]", r"plan\.format is \[\]"),
    ("3", r"plan\.format is 3"),
    ("null", r"plan\.format is None"),
    ("{}", r"plan\.format is None; it must be 1.*another version"),
    (changed(format=2), r"plan\.format is 2; it must be 1"),
    (changed(format=...), r"plan\.format is None"),
    (changed(surprise=1), r"plan is \['surprise'\]; it must be made of the fields accept_large_delta, adjacency"),
    (changed(noise__seed=1), r"plan\.noise is \['seed'\]; it must be made of the fields deviation, multiplier"),
    (changed(delta=...), "'delta'"),
    (changed(clipping__bound=...), r"'bound': plan\.clipping is"),
    (changed(clipping__kind="Rule"), r"plan\.clipping\.kind is 'Rule'; it must be one of"),
    (changed(clipping__kind=...), r"plan\.clipping\.kind is None"),
    (changed(clipping__kind=["Flat"]), r"plan\.clipping\.kind is"),
    (changed(clipping={"kind": "Poisson", "batch_size": 3}), r"^plan\.clipping\.kind is 'Poisson'"),
    (changed(sampling={"kind": "Flat", "bound": 0.7}), r"^plan\.sampling\.kind is 'Flat'"),
    (changed(steps={"kind": "Gaussian"}), "^steps is"),
    (changed(examples=[60_000]), "^examples is"),
    (changed(delta=math.nan), "^delta is nan"),
    (changed(clipping__bound=math.inf), r"^clipping\.bound is inf"),
    (changed(noise__multiplier="2.3"), r"^noise\.multiplier is '2\.3'"),
    (changed(noise__multiplier=True), r"^noise\.multiplier is True"),
])  # fmt: skip
def test_a_text_that_is_no_plan_is_refused(text, message):
    with pytest.raises(InvalidArgumentError, match=message):
        Plan.from_json(text)


def test_noise_follows_a_scheduled_bound_so_the_multiplier_stays():
    made = plan(bound_schedule=Geometric(rate=0.01))
    assert (made.multipliers() == 2.3).all()
    assert made.events() == plan().events()
    assert made.bound_factors()[0] == 1.0
    assert made.bound_factors()[-1] == 0.5


def test_a_fixed_deviation_makes_the_multiplier_grow_as_the_bound_shrinks():
    made = plan(steps=20, bound_schedule=Linear(over=10), noise=Gaussian(2.3, deviation="fixed"))
    deviations = made.multipliers() * 0.7 * made.bound_factors()
    assert np.allclose(deviations, 2.3 * 0.7, rtol=1e-14)
    assert made.epsilon() < plan(steps=20).epsilon()
    rates = [event.noise_multiplier for event in made.events() for _ in range(event.count)]
    assert np.allclose(sorted(rates), sorted(2.3 * (1 + np.minimum(np.arange(20) / 10, 1))), rtol=1e-12)


def test_a_noise_schedule_is_what_the_accountant_is_told():
    made = plan(noise=Gaussian(2.3, schedule=Piecewise((1.0, 2.0), (0.5,))))
    assert made.events() == (Event(512 / 60_000, 2.3, 150), Event(512 / 60_000, 4.6, 150))
    assert made.events(200) == (Event(512 / 60_000, 2.3, 150), Event(512 / 60_000, 4.6, 50))
    assert made.epsilon(steps=150) == plan().epsilon(steps=150)


@pytest.mark.parametrize(("bound", "schedule", "steps", "factor"), [
    (1e-11, Geometric(rate=0.5, final=0.01), 10, "0.01"),
    (1e11, Piecewise((1.0, 200.0), (0.75,)), 4, r"200\.0"),
    (1e-11, Table((1.0, 0.001, 1.0)), privet.epochs(1), "0.001"),
])  # fmt: skip
def test_a_schedule_by_which_the_bound_leaves_its_range_is_refused(bound, schedule, steps, factor):
    """The step at which it does would be spent before it fails."""
    with pytest.raises(InvalidArgumentError, match=rf"bound_schedule is {factor}; .*clipping\.bound is .*1e-12"):
        plan(clipping=Flat(bound), bound_schedule=schedule, steps=steps)
    undecided = plan(clipping=Flat(bound), bound_schedule=schedule, steps=None)
    with pytest.raises(InvalidArgumentError, match="bound_schedule is"):
        dataclasses.replace(undecided, steps=10)


def test_the_statement_tells_of_schedules_and_only_of_them():
    made = plan(steps=4, bound_schedule=Table((1.0, 0.5)), noise=Gaussian(2.3, deviation="fixed"))
    prose = str(made.guarantee())
    assert "multiplies the bound by 0.5 to 1" in prose
    assert "between 2.3 and 4.6" in prose
    assert "multiplies the bound" not in str(made.guarantee(steps=1))
    assert plan(steps=4).guarantee().notes == ()


def test_a_mechanism_costs_what_a_plan_with_it_costs():
    options = {"examples": 60_000, "sampling": Poisson(512), "steps": epochs(3), "delta": 1e-5}
    asked = PrivacyMechanism(**options, noise=Gaussian(2.3))
    made = plan(steps=epochs(3))
    assert asked.epsilon() == made.epsilon()
    assert asked.epsilon("rdp", steps=7) == made.epsilon("rdp", steps=7)
    assert asked.events() == made.events()
    solved = PrivacyMechanism(**options).calibrate(1.3, accountant="rdp")
    assert type(solved) is PrivacyMechanism
    assert solved.noise_multiplier == plan(steps=epochs(3), noise=Gaussian()).calibrate(1.3, accountant="rdp").noise_multiplier


@pytest.mark.parametrize(("scheme", "adjacency", "words"), [
    (sampling.Shuffle(512), "add-remove", "Removing one example changes the batches"),
    (sampling.FixedSize(512), "add-remove", "inclusion probability depends"),
    (sampling.TruncatedPoisson(512, 700), "zero-out", "adjacency is 'zero-out'"),
])  # fmt: skip
def test_neighbours_that_do_not_suit_are_refused_before_an_accountant_runs(scheme, adjacency, words, monkeypatch):
    with monkeypatch.context() as patched:
        for accountant in (accounting.pld, accounting.rdp):
            patched.setattr(accountant, "epsilon", lambda *_: pytest.fail("an accountant runs"))
        with pytest.raises(InvalidArgumentError, match=rf"^adjacency is '{adjacency}'.*{type(scheme).__name__} sampling"):
            plan(sampling=scheme, adjacency=adjacency)
        asked = PrivacyMechanism(
            examples=60_000, sampling=scheme, steps=300, delta=1e-5, adjacency=adjacency, noise=Gaussian(2.3)
        )
        with pytest.raises(InvalidArgumentError, match=rf"^adjacency is '{adjacency}'"):
            dataclasses.replace(asked, noise=Gaussian()).calibrate(1.0)
    with pytest.raises(InvalidArgumentError, match=words):
        asked.epsilon()


def test_a_scheme_that_refuses_neighbours_is_heard_though_its_events_suit_them():
    @dataclasses.dataclass(frozen=True)
    class Shy(Poisson):
        refused = {"replace-one": "Nobody has analysed it."}

    with pytest.raises(InvalidArgumentError, match="Nobody has analysed it"):
        plan(sampling=Shy(512), adjacency="replace-one")
    asked = PrivacyMechanism(
        examples=60_000, sampling=Shy(512), steps=3, delta=1e-5, adjacency="replace-one", noise=Gaussian(2.3)
    )  # fmt: skip
    with pytest.raises(InvalidArgumentError, match="Nobody has analysed it"):
        asked.epsilon("rdp")
