"""Scaling rules of Huang et al.: their plans, and claims that one is more accurate than another."""

from __future__ import annotations

__all__ = ["beats", "scaling_rules"]

from collections.abc import Mapping
from typing import Any

from privet import clipping
from privet.momentum import InnerOuter
from privet_experiments.claims import Claim


def scaling_rules(bound: float, stability: float, scale: float) -> Mapping[str, dict[str, Any]]:
    """Return name → settings of the plan, for the four rules that the paper compares with DP-SGD."""
    psasc = clipping.PSASC(bound, scale, stability)
    return {
        "Auto-S": {"clipping": clipping.Automatic(bound, stability)},
        "PSAC": {"clipping": clipping.PSAC(bound, stability)},
        "PSASC": {"clipping": psasc},
        "PSASC*": {"clipping": psasc, "momentum": InnerOuter(inner=0.1, outer=0.9, length=1)},
    }


def beats(name: str, other: str, size: float, arms: Mapping[str, str] | None = None, row: str = "") -> Claim:
    """Return the claim that one rule is more accurate than another.

    Args:
        size: difference of the published accuracies, > 0.
        arms: rule → name of its arm, if different.
        row: of the index.
    """
    arms = arms or {}
    arm, baseline = arms.get(name, name), arms.get(other, other)
    return Claim(f"{name} is more accurate than {other}", "accuracy", arm, "higher", baseline, size=round(size, 6), row=row)
