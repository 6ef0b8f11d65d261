"""Private training on what networks that were trained on public data see: images and sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privet import clipping
from privet.clipping import Flat, Unclipped
from privet.momentum import InnerOuter
from privet.noise import Gaussian
from privet.plan import epochs
from privet.sampling import Poisson
from privet.schedules import Piecewise
from privet_experiments.recipe import Arm, Chart, Recipe

_NOT_PRIVATE = {"clipping": Unclipped(1.0, non_private=True), "noise": Gaussian(0.0, non_private=True)}
_METRICS = ("accuracy", "negative_log_likelihood", "expected_calibration_error", "maximum_calibration_error")


def _against_bound(name: str, metric: str) -> Chart:
    return Chart(name, "sweep", metric, x="clip bound R", series="trained", logarithmic=True)


_CHARTS = (
    Chart("arms", "arms", "accuracy"),
    _against_bound("accuracy", "accuracy"),
    _against_bound("calibration", "expected_calibration_error"),
    Chart("likelihood", "curve", "negative_log_likelihood", where={"trained": "linear probe"}),
)

# ── CIFAR-10 ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────
_PROBE = {"model": "logistic", "features": "efficientnet"}
_BLOCK = {"model": "efficientnet-last-block", "features": "efficientnet before its last block"}
_BOUND, _STABILITY, _SCALE = 0.1, 1e-4, 0.8  # of the experiment with scaling weights
_PSASC = clipping.PSASC(_BOUND, _SCALE, _STABILITY)
_WEIGHTS: Mapping[str, dict[str, Any]] = {
    "Auto-S": {"clipping": clipping.Automatic(_BOUND, _STABILITY)},
    "PSAC": {"clipping": clipping.PSAC(_BOUND, _STABILITY)},
    "PSASC": {"clipping": _PSASC},
    "PSASC*": {"clipping": _PSASC, "momentum": InnerOuter(inner=0.1, outer=0.9, length=1)},
}


def _bounds(trained: str, settings: dict[str, Any], product: float, bounds: tuple[float, ...]) -> list[Arm]:
    """Return arms with learning rates such that η·R, and so the noise of a step, is the same in all."""
    return [
        Arm(
            f"{trained}, R = {bound:g}",
            {**settings, "learning_rate": product / bound, "plan": {"clipping": Flat(bound)}},
            at={"trained": trained, "clip bound R": bound},
        )
        for bound in bounds
    ]


def _rules(product: float) -> list[Arm]:
    return [
        Arm(f"linear probe, {name}", {**_PROBE, "learning_rate": product / _BOUND, "plan": plan})
        for name, plan in _WEIGHTS.items()
    ]


TRANSFER_CIFAR10 = Recipe(
    name="transfer-cifar10",
    title="Private transfer learning on CIFAR-10: clip bounds, and scaling weights",
    source=(
        "Bu et al., “On the convergence and calibration of deep learning with differential privacy”, §5.3; Huang et al., "
        "“Enhancing DP-SGD through non-monotonous adaptive scaling gradient weight”, Table II"
    ),
    data="cifar-10",
    task="classification",
    common={"plan": {"sampling": Poisson(1024), "steps": epochs(20), "delta": 1e-5}, "epsilon": 2.0, "momentum": 0.9},
    arms=(
        Arm("linear probe, not private", {**_PROBE, "learning_rate": 0.01, "epsilon": None, "plan": _NOT_PRIVATE},
            at={"trained": "linear probe"}),
        *_bounds("linear probe", _PROBE, 0.05, (0.1, 1.0, 10.0, 100.0)),
        *_rules(0.05),
        *_bounds("last block", _BLOCK, 0.02, (0.1, 10.0)),
    ),
    metrics=_METRICS,
    seeds=3,
    points=10,
    charts=_CHARTS,
    note=(
        "The papers train ViT-base (86 M parameters, (1.96, 1e-5), 97.2 % with a small bound and 96.6 % with a large one) and a "
        "linear map of SimCLRv2's features (R = 0.1, r = 1e-4, s = 0.8, 40 epochs, (2, 1e-5), 92.24 % by DP-SGD to 93.36 % by "
        "PSASC*). The features here are those of EfficientNet-Lite0 (4.65 M parameters, ImageNet) at 96 pixels, so only "
        "differences between arms compare. Learning rates keep η·R."
    ),
    hours=1,
)  # fmt: skip

# ── SST-2 ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────
_SMALL, _LARGE = 0.1, 20.0
_RATE = 1e-3
_SWITCH = 0.95
_LAYER = {"model": "minilm-last-layer", "features": "minilm before its last layer"}
_LORA = {"model": "minilm-lora", "features": "minilm tokens"}
_VECTORS = {"model": "logistic", "features": "minilm", "learning_rate": 0.01}
_MIXED: Mapping[str, dict[str, Any]] = {
    f"R = {_SMALL:g}, then {_LARGE:g}": {
        "clipping": Flat(_SMALL), "bound_schedule": Piecewise((1.0, _LARGE / _SMALL), (_SWITCH,)),
    },
    f"R = {_LARGE:g}, then {_SMALL:g}": {
        "clipping": Flat(_LARGE), "bound_schedule": Piecewise((1.0, _SMALL / _LARGE), (1 - _SWITCH,)),
    },
}  # fmt: skip


def _adam(trained: str, settings: dict[str, Any]) -> list[Arm]:
    return [
        Arm(
            f"{trained}, R = {bound:g}",
            {**settings, "plan": {"clipping": Flat(bound)}},
            at={"trained": trained, "clip bound R": bound},
        )
        for bound in (_SMALL, _LARGE)
    ]


TRANSFER_SST2 = Recipe(
    name="transfer-sst2",
    title="Private transfer learning on SST-2: clip bounds, and both one after the other",
    source="Bu et al., “On the convergence and calibration of deep learning with differential privacy”, §5.5",
    data="sst2",
    task="classification",
    examples=20_000,
    common={
        "plan": {"sampling": Poisson(512), "steps": epochs(3), "delta": 1e-5}, "epsilon": 2.0, "optimizer": "adam",
        "learning_rate": _RATE,
    },
    arms=(
        Arm("last layer, not private", {**_LAYER, "learning_rate": 1e-4, "epsilon": None, "plan": _NOT_PRIVATE}),
        *_adam("linear probe", _VECTORS),
        *_adam("last layer", _LAYER),
        *(Arm(f"last layer, {name}", {**_LAYER, "plan": plan}) for name, plan in _MIXED.items()),
        *_adam("LoRA", _LORA),
    ),
    metrics=_METRICS,
    seeds=3,
    points=5,
    charts=(*_CHARTS[:3], Chart("likelihood", "curve", "negative_log_likelihood", where={"trained": "last layer"})),
    note=(
        "The paper trains the last layer of BERT-base on SNLI at (1.25, 1/n) by AdamW: 74.1 % with a small bound, 73.1 % with a "
        "small bound for 95 % of the steps and then a large one, 65.9 % with a large one, 85.4 % without privacy; ECE 22.0 %, "
        "17.6 % (the mixture) and 13.0 % (not private). Here it is all-MiniLM-L6-v2 (22.7 M parameters, trained on sentence "
        "pairs) on the first 20,000 phrases of SST-2. The reverse order, a large bound for the first 5 % and then a small one, "
        "is ours."
    ),
    hours=1.2,
)  # fmt: skip
