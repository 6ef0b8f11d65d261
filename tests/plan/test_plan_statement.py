import json
import math
import re

import pytest
import torch

import privet
from plans import plan
from privet import clipping, sampling
from privet.accounting import events
from privet.accounting.privacy_unit import group_unit
from privet.accounting.queries import composed_epsilon
from privet.clipping import Flat, Projected
from privet.noise import SOURCES, Gaussian
from privet.plan import statement as statements
from privet.sampling import Poisson


def test_the_guarantee_says_what_the_plan_says():
    made = plan()
    statement, prose = made.guarantee(), str(made.guarantee())
    assert statement.epsilon == made.epsilon()
    assert statement.epsilon_by_accountant == {
        name: made.epsilon(name) for name in ("pld", "rdp", "moments", "strong", "basic", "gdp")
    }
    assert (statement.delta, statement.steps, statement.sensitivity, statement.noise_multiplier) == (1e-5, 300, 0.7, 2.3)
    assert (statement.sampling, statement.sampling_rate, statement.examples) == ("Poisson", 512 / 60_000, 60_000)
    for text in (", 1e-05)-differential privacy", '"add-remove"', '"pld" (upper bound)', SOURCES["secure"].claim):
        assert text in prose
    assert float(re.search(r"Guarantee: \(([\d.]+),", prose)[1]) >= statement.epsilon


def test_the_guarantee_counts_the_steps_that_were_taken():
    made = plan()
    assert made.guarantee(steps=5).steps == 5
    assert made.guarantee(steps=5).epsilon == made.epsilon(steps=5) < made.epsilon()
    nothing = made.guarantee(steps=0)
    assert (nothing.epsilon, nothing.epsilon_without_sampling, nothing.meaning.advantage) == (0.0, 0.0, 0.0)
    json.loads(nothing.to_json())
    assert made.guarantee() == made.guarantee()


@pytest.mark.parametrize(("gaussian", "reason"), [
    (Gaussian(2.3, source="fixed"), "the same on every run"),
    (Gaussian(0.0, source="fixed", non_private=True), "no noise is added"),
])  # fmt: skip
def test_without_private_noise_the_statement_says_no_privacy(gaussian, reason):
    made = plan(noise=gaussian)
    prose, data = str(made.guarantee()), json.loads(made.guarantee().to_json())
    assert made.epsilon() == made.epsilon("gdp") == math.inf
    assert "NO PRIVACY" in prose
    assert reason in prose
    assert data["epsilon"] == "inf"
    assert set(data["epsilon_by_accountant"].values()) == {"inf"}


def test_a_tiny_delta_is_answered_by_the_same_accountant():
    made = plan(delta=1e-10)
    statement = made.guarantee()
    assert (statement.accountant, statement.epsilon) == ("pld", made.epsilon())
    assert '"pld" (upper bound)' in str(statement)
    assert made.epsilon() < made.epsilon("rdp")
    assert plan(delta=1e-10, noise=Gaussian()).calibrate(epsilon=1.3).epsilon() <= 1.3
    assert plan(delta=1e-10, steps=None).calibrate(epsilon=1.3).epsilon() <= 1.3


SCHEMES = {
    "poisson": ({}, "each record joins each step independently", True),
    "full batch": ({"sampling": sampling.FullBatch(), "noise": Gaussian(90.0)}, "every record joins every step", False),
    "fixed size": ({"sampling": sampling.FixedSize(512), "adjacency": "replace-one"}, "subset of fixed size", True),
    "truncated": ({"sampling": sampling.TruncatedPoisson(512, cap=700)}, "cut to a uniform subset", True),
    "shuffled": ({"sampling": sampling.Shuffle(512), "adjacency": "zero-out"}, "one step of every epoch", False),
    "balls in bins": ({"sampling": sampling.BallsInBins(512)}, "chosen uniformly and independently", True),
    "balls in bins, replaced": (
        {"sampling": sampling.BallsInBins(512), "adjacency": "replace-one"},
        "chosen uniformly and independently",
        False,
    ),
    "estimated norms": ({"clipping": Projected(Flat(0.7), 40), "steps": 20}, "each record joins each step independently", True),
}


@pytest.mark.parametrize(("changes", "assumed", "amplified"), SCHEMES.values(), ids=SCHEMES)
def test_what_the_accountant_assumes_is_told_and_what_it_is_worth(changes, assumed, amplified):
    statement = plan(**changes).guarantee()
    assert assumed in statement.assumed
    assert statement.performed is None
    assert (statement.epsilon_without_sampling > statement.epsilon) == amplified
    assert amplified or statement.epsilon_without_sampling == statement.epsilon
    assert ("No amplification" in str(statement)) == (not amplified)
    assert 0 < statement.meaning.advantage < 1


def test_every_kind_of_release_has_words_for_what_is_assumed():
    assert set(statements._ASSUMED) == set(events.Release.__args__)


@pytest.mark.parametrize("accountant", ["pld", "rdp", "gdp"])
def test_without_amplification_every_example_joins_every_step(accountant):
    statement = plan().guarantee(accountant=accountant)
    everybody = [privet.accounting.Event(1.0, 2.3, 300)]
    assert statement.epsilon_without_sampling == composed_epsilon(everybody, delta=1e-5, accountant=accountant)
    assert set(statement.discretisation) == {"pld": {"grid_width"}, "gdp": set()}.get(accountant, set(statement.discretisation))


@pytest.mark.parametrize(("unit", "adjacency", "words"), [
    ("one example", "add-remove", "a person with several entries is protected less"),
    (group_unit(3), "replace-one", "60,000 groups"),
])  # fmt: skip
def test_what_cannot_be_checked_is_said(unit, adjacency, words):
    assert words in str(plan(unit=unit, adjacency=adjacency, delta=1e-6).guarantee())
    assert "a person with several entries" not in str(plan(unit="one user").guarantee())
    assert "no user has data under two ids" in str(plan(unit="one user").guarantee())


@pytest.mark.parametrize("unit", ["one example", "one user", group_unit(3)])
def test_the_promise_has_four_assumptions_on_the_program(unit):
    """They can be checked in a program's own code, so none names a number of objects."""
    statement = plan(unit=unit, adjacency="replace-one", delta=1e-6).guarantee()
    words = ("remember nothing of one", "reading entry i depends on i", "from its own row", "no two entries hold")
    assert len(statement.assumptions) == len(words)
    assert all(word in assumption for word, assumption in zip(words, statement.assumptions, strict=True))
    assert not re.search(r"\d", " ".join(statement.assumptions))


def test_a_training_from_the_weights_of_another_is_told_to_add_its_epsilon():
    statement = plan().guarantee()
    assert "or only by another training, whose ε adds to this one" in " ".join(statement.public)
    assert "other trainings on the same people's data" in str(statement).partition("Not covered:\n")[2]
    assert "other trainings" in statement.summary


def test_the_prose_gives_the_threat_model_in_order():
    prose = str(plan().guarantee())
    headings = (
        "Data and programs: the data may have any values", "Bounded by construction:", "Refused by a check on public input",
        "Assumed; check it in your own code:", "Taken as public:", "Also released", "Not covered:\n- programs that are written",
        "Versions: statement 3, privet",
    )  # fmt: skip
    places = [prose.index(heading) for heading in headings]
    assert places == sorted(places)
    assert json.loads(plan().guarantee().to_json())["format"] == 3


def test_without_privacy_an_attacker_is_left_everything():
    statement = plan(clipping=clipping.Unclipped(bound=0.7, non_private=True)).guarantee()
    assert (statement.meaning.advantage, statement.meaning.bayes_risk) == (1.0, 0.0)
    assert statement.epsilon_without_sampling == math.inf
    assert json.loads(statement.to_json())["epsilon_without_sampling"] == "inf"


def test_only_a_training_says_that_it_sampled():
    made = plan(examples=40, sampling=Poisson(8), steps=3, delta=1e-3)
    model = torch.nn.Linear(2, 1)
    training = privet.Training(
        made, model, lambda model, batch: model(batch[0])[:, 0].square(), torch.optim.SGD(model.parameters(), lr=0.1),
        torch.utils.data.TensorDataset(torch.randn(40, 2)),
    )  # fmt: skip
    training.run()
    assert "Performed: Poisson sampling by privet.Training itself" in str(training.guarantee())
    assert "Performed: nothing yet" in str(made.guarantee())


@pytest.mark.parametrize(("rule", "assumed"), [
    (Flat(0.7), False),
    (clipping.Global(0.7), True),
    (clipping.AdaptiveQuantile(Flat(0.7)), True),
    (clipping.AdaptiveQuantile(clipping.Global(0.7)), True),
    (clipping.Layerwise(clipping.Global(0.7)), True),
    (clipping.Layerwise({"0.*": Flat(0.7), ".*": clipping.Global(0.7)}), True),
    (Projected(clipping.Global(0.7), projections=30), True),
    (Projected(Flat(0.7), projections=30), False),
    (clipping.GEP(Flat(0.7), clipping.Global(0.7), dimensions=2, anchors=9, public="made up"), True),
], ids=str)  # fmt: skip
def test_rules_with_a_jump_assume_once_that_no_norm_lies_on_it(rule, assumed):
    assert sum("equals a threshold" in clause for clause in rule.assumptions) == assumed
