"""Pipelines: transformers that learn from private rows without noise are named, as no guarantee covers what they learn."""

from __future__ import annotations

__all__ = ["PrivatePipeline", "check_pipeline"]

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures
from sklearn.utils import get_tags

from privet.accounting.guarantee.statement import Guarantee
from privet.errors import PrivetWarning
from privet.integrations.sklearn.fitting import PrivateEstimator

_LEARNED = (
    "{names} of the pipeline learned from the private rows without noise; no guarantee covers that. Use PublicScaler, "
    "PublicOneHot or a transformer that was fitted on public rows, in a FrozenEstimator"
)
# These learn nothing but the number of columns, or were fitted before.
_HARMLESS = (PrivateEstimator, PolynomialFeatures, FrozenEstimator)


def check_pipeline(pipeline: Any) -> tuple[str, ...]:
    """Return the names of the steps that learn from the rows that they are fitted on, without privacy.

    An estimator cannot see the pipeline that it is part of, so ask this function, or use a `PrivatePipeline`.

    Args:
        pipeline: a pipeline, column transformer, feature union, transformer or estimator.

    Returns:
        Name and class of each such step, such as "scale (StandardScaler)"; "encode__age (KBinsDiscretizer)" for a step of a
        step. Steps that need no fit, by their tag `requires_fit`, learn nothing; a `FunctionTransformer` is only trusted with a
        NumPy ufunc, since other functions can mix rows.

    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from privet.integrations.sklearn import PrivateClassifier, PublicScaler, check_pipeline
    >>> check_pipeline(make_pipeline(StandardScaler(), PrivateClassifier()))
    ('standardscaler (StandardScaler)',)
    >>> check_pipeline(make_pipeline(PublicScaler((0, 1)), PrivateClassifier()))
    ()
    """
    return tuple(f"{name} ({type(step).__name__})" for name, step in _learning(pipeline))


class PrivatePipeline(Pipeline):  # type: ignore[misc]
    """A `Pipeline` that warns of steps that learn from the private rows without noise, and says so in the statement.

    The warning, a `privet.errors.PrivetWarning`, names the steps (`check_pipeline`); so does `guarantee_` of the last step.
    Arguments are those of `sklearn.pipeline.Pipeline`.
    """

    def fit(self, X: Any, y: Any = None, **params: Any) -> Any:  # noqa: N803
        """Fit all steps, and return the pipeline; arguments as for `Pipeline`."""
        found = check_pipeline(self)
        remark = _LEARNED.format(names=", ".join(found))
        if found:
            warnings.warn(remark, PrivetWarning, stacklevel=2)
        fitted = super().fit(X, y, **params)
        last = self._final_estimator
        if found and isinstance(getattr(last, "guarantee_", None), Guarantee):
            last.guarantee_ = replace(last.guarantee_, not_covered=(remark, *last.guarantee_.not_covered))
        return fitted


def _learning(step: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield name and step of what learns from rows."""
    parts = _parts(step)
    if parts is not None:
        for own, part in parts:
            yield from _learning(part, f"{name}__{own}" if name else own)
    elif not _is_harmless(step):
        yield name or type(step).__name__.lower(), step


def _parts(step: Any) -> list[tuple[str, Any]] | None:
    """Return names and parts of a step that consists of others; None for any other."""
    match step:
        case Pipeline():
            return [(name, part) for name, part in step.steps]
        case FeatureUnion():
            return [(name, part) for name, part in step.transformer_list]
        case ColumnTransformer():
            return [*((name, part) for name, part, _ in step.transformers), ("remainder", step.remainder)]
    return None


def _is_harmless(step: Any) -> bool:
    if step is None or isinstance(step, (str, *_HARMLESS)):  # "passthrough" and "drop" are strings
        return True
    if isinstance(step, FunctionTransformer):
        return all(function is None or isinstance(function, np.ufunc) for function in (step.func, step.inverse_func))
    return not get_tags(step).requires_fit
