import math
from collections import Counter

import pytest
import torch
from scipy import stats
from torch import nn
from torch.utils.data import TensorDataset

import plans
import privet
from privet.accounting import Event
from privet.accounting.rounding import format_up
from privet.errors import InvalidArgumentError
from privet.tuning import (
    PaidScore,
    PoissonTrials,
    PublicScore,
    calibrate_search,
    geometric,
    logarithmic,
    search,
    state_search,
    trials,
)

N = 12
DATA = TensorDataset(torch.zeros(N, 2))


def plan(multiplier=2.3, **changes):
    noise = {"noise": privet.noise.Gaussian(multiplier), **changes}
    return plans.plan(examples=N, sampling=privet.sampling.Poisson(4.0), steps=2, **{"delta": 1e-3, **noise})


def train(the_plan, setting):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    place, reading = privet.Storage(purpose="to find a bed"), privet.Reading(probe=False)
    training = privet.Training(
        the_plan, model, lambda m, b: m(b[0])[:, 0], optimizer, DATA, place, reading=reading, method="loop"
    )
    training.setting = setting
    return training


def by_setting(training):
    assert training.steps_left == 0
    return float(training.setting)


def test_the_best_is_kept_with_its_setting_and_score():
    tried = []

    def recorded(the_plan, setting):
        tried.append(setting)
        return train(the_plan, setting)

    candidates = [(plan(), 3.0), (plan(), -7.0), (plan(), 5.0)]
    found = search(candidates, recorded, score=PublicScore(by_setting), number=geometric(6.0))
    assert found.setting == found.score == found.training.setting == max(tried)
    assert found.guarantee.mean == 6.0
    assert found.guarantee.summary.startswith("What was done: a model was chosen by training on the data of 12 examples a secret")
    assert "Purpose: to find a bed." in found.guarantee.summary
    assert "switched off" in str(found.guarantee)  # the probe was
    assert not found.guarantee.by_check


def test_a_score_that_is_no_number_is_the_worst():
    candidates = [(plan(), math.nan), (plan(), -1e300)]

    def both_and_more():
        tried = []

        def recorded(the_plan, setting):
            tried.append(setting)
            return train(the_plan, setting)

        found = search(candidates, recorded, score=PublicScore(by_setting), number=geometric(20.0))
        return found if len(set(map(str, tried))) == 2 else both_and_more()

    assert both_and_more().setting == -1e300
    assert search(candidates[:1], train, score=PublicScore(by_setting), number=geometric(2.0)).score == -math.inf


@pytest.mark.parametrize("law", [geometric(2.5), PoissonTrials(2.0)], ids=str)
def test_numbers_and_settings_of_trials_are_drawn_as_promised(law, monkeypatch, holds_twice):
    """Whole searches, by the operating system's randomness; what is trained does not matter and is left out."""
    monkeypatch.setattr(privet.Training, "run", lambda self: None)
    searches, classes, settings = 1200, 6, 3
    first, probability = law.start()
    expected = [probability]
    for number in range(first, first + classes - 1):
        expected.append(expected[-1] * law.ratio(number))
    reused = train(plan(), None)
    said = reused.guarantee()
    monkeypatch.setattr(privet.Training, "guarantee", lambda self: said)
    monkeypatch.setattr(privet.Training, "__exit__", lambda *_: None)

    def experiment():
        numbers, drawn = Counter(), Counter()

        def counting(the_plan, setting):
            count[0] += 1
            drawn[setting] += 1
            return reused

        for _ in range(searches):
            count = [0]
            search([(reused.plan, i) for i in range(settings)], counting, score=PublicScore(lambda _: 0.0), number=law)
            numbers[count[0]] += 1
        seen = [numbers[first + i] for i in range(classes)]
        tail = searches * (1 - sum(expected))
        return {
            "numbers": stats.chisquare([*seen, searches - sum(seen)], [*(searches * p for p in expected), tail]).pvalue,
            "settings": stats.chisquare([drawn[i] for i in range(settings)]).pvalue,
        }

    holds_twice(experiment)


def test_number_and_settings_come_from_the_secret_source_and_not_from_a_seed(monkeypatch):
    words, tried = [], []

    class Overheard(privet.noise.SecureSource):
        def words(self, size):
            words.append(super().words(size))
            return words[-1]

    def recorded(the_plan, setting):
        tried.append(setting)
        return train(the_plan, setting)

    monkeypatch.setattr(trials, "SecureSource", Overheard)
    number = geometric(4.0)
    firsts = []
    for _ in range(2):
        torch.manual_seed(0)
        words.clear()
        tried.clear()
        search([(plan(), i) for i in range(5)], recorded, score=PublicScore(by_setting), number=number)
        firsts.append(int(words[0][0]))
        assert len(tried) == number.quantile((firsts[-1] >> 11) / 2**53)
        assert tried == [int(drawn[0] % 5) for drawn in words[1:]]
    assert firsts[0] != firsts[1]


def test_no_trial_gives_nothing(monkeypatch):
    monkeypatch.setattr(trials, "uniform", lambda words: 0.0)
    found = search([(plan(), 1)], train, score=PublicScore(by_setting), number=PoissonTrials(2.0))
    assert (found.setting, found.training, found.score) == (None, None, None)
    assert 0 < found.guarantee.epsilon < math.inf


def test_one_trial_costs_what_a_training_costs():
    said = state_search([plan()], score=PublicScore(by_setting), number=geometric(1.0))
    assert said.epsilon == said.epsilon_of_one == pytest.approx(plan().epsilon("rdp"), rel=1e-12)


def test_the_price_is_that_of_the_most_expensive_candidate_and_names_the_law():
    cheap, dear = plan(4.0), plan(2.0)
    said = state_search([cheap, dear, cheap], score=PublicScore(by_setting), number=logarithmic(5.0))
    alone = state_search([dear], score=PublicScore(by_setting), number=logarithmic(5.0))
    assert said.epsilon == alone.epsilon > dear.epsilon("rdp")
    assert "logarithmic with mean 5" in str(said)
    assert "3 settings" in str(said)
    assert "public data" in str(said)


def test_a_search_has_the_statement_of_a_training():
    """Summary, meaning and format; what it covers and what not is its own."""
    two = [plan(), plan(clipping=privet.clipping.Normalize(1.0))]
    said = state_search(two, score=PublicScore(by_setting), number=geometric(4.0))
    one, values = plan().guarantee(), said.to_dict()
    assert one.to_dict().keys() - values.keys() <= {*vars(one)}
    assert (values["format"], values["accountant"], values["tuning"][:7]) == (one.to_dict()["format"], "rdp", "covered")
    summary, _, details = str(said).partition("\n\nGuarantee: ")
    assert summary == said.summary
    assert 90 <= len(summary.split()) <= 155
    assert "nothing yet" in summary
    assert details.startswith(f"({format_up(said.epsilon)}, 0.001)-differential privacy")
    assert one.meaning.advantage < said.meaning.advantage < 1  # the choice helps an attacker
    assert {*one.assumptions} < {*said.assumptions}  # those of the other rule, too
    assert "which run to keep" not in str(said)
    assert "evaluation on private data other than the score" in str(said)
    assert not said.without_user_code().by_check


def test_a_private_score_is_paid_for():
    with pytest.raises(InvalidArgumentError, match="events"):
        PaidScore(by_setting, ())
    free = state_search([plan(unit="one user")], score=PublicScore(by_setting), number=geometric(5.0))
    assert "privacy for one user" in str(free)
    paid = state_search([plan()], score=PaidScore(by_setting, (Event(1.0, 8.0),)), number=geometric(5.0))
    assert paid.epsilon > free.epsilon
    assert paid.epsilon_of_one > free.epsilon_of_one
    assert "whose cost is included" in str(paid)


@pytest.mark.parametrize("changes", [
    {"noise": privet.noise.Gaussian(2.3, source="fixed")},
    {"noise": privet.noise.Gaussian(0.0, non_private=True)},
    {"clipping": privet.clipping.Unclipped(bound=0.7, non_private=True)},
])  # fmt: skip
def test_a_candidate_without_privacy_leaves_none(changes):
    said = state_search([plan(), plan(**changes)], score=PublicScore(by_setting), number=geometric(5.0))
    assert said.to_dict()["epsilon"] == said.to_dict()["epsilon_of_one"] == "inf"
    assert str(said).startswith("NO PRIVACY (ε = ∞): a run without private noise could be chosen")


def test_a_query_of_the_plan_is_paid_for_as_the_score_may_answer_it():
    score, law = PublicScore(lambda training: 0.0), geometric(mean=3)
    without = state_search([plan()], score=score, number=law)
    for query in ({"holdout": privet.plan.Holdout(5.0, examples=10)}, {"class_counts": privet.plan.ClassCounts(5.0)}):
        assert state_search([plan(**query)], score=score, number=law).epsilon > without.epsilon


def test_calibrated_noise_meets_the_budget_of_the_whole_search():
    score, number = PublicScore(by_setting), logarithmic(8.0)
    found = calibrate_search(plan(None), 3.0, score=score, number=number)
    spent = state_search([found], score=score, number=number).epsilon
    assert 3.0 * (1 - 1e-3) < spent <= 3.0
    assert found.noise_multiplier > plan(None).calibrate(3.0, accountant="rdp").noise_multiplier
    with pytest.raises(InvalidArgumentError, match="calibrated"):
        calibrate_search(found, 3.0, score=score, number=number)


@pytest.mark.parametrize(("candidates", "options", "says"), [
    ([], {}, "candidates"),
    ([(plan(), 1)], {"score": by_setting}, r"PublicScore\(function\) if it only uses the model and public data"),
    ([(plan(), 1)], {"number": 10}, "number"),
    ([(plan(), 1), (plan(delta=1e-4), 2)], {}, "the same delta"),
    ([(plan(), 1), (plan(adjacency="zero-out"), 2)], {}, "the same adjacency"),
    ([(plan(), 1), (plan(unit="one user"), 2)], {}, "the same unit"),
])  # fmt: skip
def test_searches_without_a_guarantee_are_refused_before_training(candidates, options, says):
    def never(the_plan, setting):
        raise AssertionError

    with pytest.raises(InvalidArgumentError, match=says):
        search(candidates, never, **{"score": PublicScore(by_setting), "number": geometric(2.0), **options})


def test_a_training_that_is_not_the_one_asked_for_is_refused():
    def used(the_plan, setting):
        training = train(the_plan, setting)
        next(iter(training))
        return training

    for wrong in (lambda p, s: train(plan(1.1), s), lambda p, s: nn.Linear(2, 1), used):
        with pytest.raises(InvalidArgumentError, match="train"):
            search([(plan(), 1)], wrong, score=PublicScore(by_setting), number=geometric(2.0))
