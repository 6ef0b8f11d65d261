"""DP-FedAvg on real users' data, against central training at the same ε and the trivial predictor."""

from __future__ import annotations

__all__ = ["FEDERATED_MOVIELENS", "FEDERATED_SENT140", "FEDERATED_SHAKESPEARE"]

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privet.clipping import Flat, Unclipped
from privet.noise import Gaussian
from privet.sparsification import Random
from privet_experiments.claims import Claim
from privet_experiments.recipe import Arm, Chart, Recipe

_EPSILONS = (2.0, 4.0, 8.0)
_RATE = 0.9
_NOT_PRIVATE = {"clipping": Unclipped(1.0, non_private=True), "noise": Gaussian(0.0, non_private=True)}
_FEDERATED, _USERS, _EXAMPLES, _CONSTANT = "DP-FedAvg", "central, user level", "central, example level", "trivial predictor"
_MASKED = f"DP-FedAvg, r = {_RATE:g}"
_SETTINGS = "public users rehearsed a few settings, by hand"


@dataclass(frozen=True)
class _Tuned:
    """A method's settings from a rehearsal: clip bound, learning rate, steps, and the expected part of units in a step."""

    bound: float
    rate: float
    steps: int
    share: float = 1.0

    def settings(self, method: str, epsilon: float | None, **plan: Any) -> dict[str, Any]:
        """Return the settings of an arm; None for ε trains without clipping and noise."""
        how = {"clipping": Flat(self.bound)} if epsilon is not None else _NOT_PRIVATE
        return {
            "method": method, "epsilon": epsilon, "learning_rate": self.rate, "share": self.share,
            "plan": {"steps": self.steps, **how, **plan},
        }  # fmt: skip


def _recipe(
    name: str, title: str, source: str, metrics: tuple[str, ...], local: Mapping[str, Any], tuned: Mapping[str, _Tuned],
    plain: Mapping[str, _Tuned], note: str, remark: str,
) -> Recipe:  # fmt: skip
    better = "higher" if metrics[0] == "accuracy" else "lower"
    methods = {_FEDERATED: "federated", _USERS: "users", _EXAMPLES: "examples"}
    masked = {"sparsification": Random(_RATE)}
    return Recipe(
        name=f"federated-{name}",
        title=title,
        source=f"ours; algorithm: McMahan et al. 2018, “Learning Differentially Private Recurrent Language Models”; {source}",
        data=name,
        task="federated",
        common={"plan": {}, **local},
        arms=(
            *(
                Arm(f"{arm}, ε = {epsilon:g}", tuned[arm].settings(method, epsilon), at={"ε": epsilon, "method": arm})
                for arm, method in methods.items()
                for epsilon in _EPSILONS
            ),
            *(
                Arm(f"{_MASKED}, ε = {epsilon:g}", tuned[_FEDERATED].settings("federated", epsilon, **masked),
                    at={"ε": epsilon, "method": _MASKED})
                for epsilon in _EPSILONS
            ),
            Arm("FedAvg, not private", plain[_FEDERATED].settings("federated", None)),
            Arm("central, not private", plain[_EXAMPLES].settings("examples", None)),
            Arm(_CONSTANT, {"method": "constant", "plan": {"steps": 1, **_NOT_PRIVATE}}),
        ),
        metrics=(*metrics, "bytes_up_of_a_client", "bytes_up"),
        seeds=5,
        hours=0.1,
        charts=(
            Chart("by-epsilon", "sweep", metrics[0], x="ε", series="method", logarithmic=True),
            Chart("bytes", "sweep", "bytes_up", x="ε", series="method", logarithmic=True,
                  where={"method": (_FEDERATED, _MASKED)}),
            Chart("arms", "arms", metrics[0]),
        ),
        claims=(
            *(
                Claim(f"DP-FedAvg is better than the trivial predictor at ε = {epsilon:g}", metrics[0],
                      f"{_FEDERATED}, ε = {epsilon:g}", better, _CONSTANT, row="user-level privacy against the trivial predictor")
                for epsilon in _EPSILONS
            ),
            *(
                Claim(f"DP-FedAvg is not worse than central training at user level, ε = {epsilon:g}", metrics[0],
                      f"{_FEDERATED}, ε = {epsilon:g}", f"not {'lower' if better == 'higher' else 'higher'}",
                      f"{_USERS}, ε = {epsilon:g}", row="federated against central")
                for epsilon in _EPSILONS
            ),
            *(
                Claim(f"Random masks of final rate {_RATE:g} are not worse than dense updates at ε = {epsilon:g}", metrics[0],
                      f"{_MASKED}, ε = {epsilon:g}", f"not {'lower' if better == 'higher' else 'higher'}",
                      f"{_FEDERATED}, ε = {epsilon:g}", row="sparse updates")
                for epsilon in _EPSILONS
            ),
        ),
        rates=f"chosen with clip bounds and numbers of steps: {_SETTINGS}, with the noise that private training would have",
        note=(
            f"{note} Users are private, public or held out by a hash of their number; held-out users measure. δ is 1/(10·N) "
            "for N users, or for N examples at example level. Models start at zero, so runs of an arm differ by noise, sampling, "
            "and the choice of a user's examples. Bytes are what clients send, by the plan and the model's shapes: four for each "
            "kept coordinate. The rate of masks grows from 0 to its final value. The trivial predictor is fitted on the private "
            "users without noise."
        ),
        remark=remark,
    )  # fmt: skip


FEDERATED_SENT140 = _recipe(
    "sent140",
    "Federated learning on real users: the sentiment of tweets",
    "data: Go, Bhayani and Huang 2009, “Twitter Sentiment Classification using Distant Supervision”, some of the users",
    ("accuracy",),
    {"cap": 16, "local_rate": 10.0, "local_steps": 2, "local_batch": 8},
    {_FEDERATED: _Tuned(2.0, 20.0, 12), _USERS: _Tuned(0.1, 200.0, 12), _EXAMPLES: _Tuned(0.5, 80.0, 20, 0.5)},
    {_FEDERATED: _Tuned(0.0, 10.0, 12), _EXAMPLES: _Tuned(0.0, 30.0, 40, 0.5)},
    "A logistic regression on bags of 1,000 hashed words, 2,053 private users with at most 16 tweets each.",
    "The accuracy of these small models hardly depends on ε; larger ones were not tried.",
)
FEDERATED_SHAKESPEARE = _recipe(
    "shakespeare",
    "Federated learning on real users: the next letter in plays",
    "data: roles of Shakespeare's plays, as in Caldas et al. 2018, “LEAF: A Benchmark for Federated Settings”",
    ("accuracy", "bits_per_letter"),
    {"cap": 16, "local_rate": 10.0, "local_steps": 2, "local_batch": 8},
    {_FEDERATED: _Tuned(2.0, 4.0, 12), _USERS: _Tuned(0.1, 80.0, 12), _EXAMPLES: _Tuned(0.2, 80.0, 20, 0.5)},
    {_FEDERATED: _Tuned(0.0, 2.0, 20), _EXAMPLES: _Tuned(0.0, 20.0, 40, 0.5)},
    "A table of pairs of letters, 240 private roles with at most 16 pieces of 64 letters each.",
    "Every role writes the same language; larger models were not tried.",
)
FEDERATED_MOVIELENS = _recipe(
    "movielens",
    "Federated learning on real users: ratings of films",
    "data: Harper and Konstan 2015, “The MovieLens Datasets”, ml-latest-small",
    ("root_mean_squared_error",),
    {"cap": 64, "local_rate": 15.0, "local_steps": 2, "local_batch": 8},
    {_FEDERATED: _Tuned(2.0, 4.0, 4), _USERS: _Tuned(0.1, 80.0, 12), _EXAMPLES: _Tuned(1.0, 16.0, 20, 0.5)},
    {_FEDERATED: _Tuned(0.0, 1.0, 12), _EXAMPLES: _Tuned(0.0, 15.0, 40, 0.5)},
    "A number for each of the 300 films that public users rate most, and one for all others; 429 private users with at most 64 "
    "ratings each.",
    "The model knows nothing of the user whose ratings it predicts; every arm gains little on a constant.",
)
