"""Pipelines: transformers that learn from private rows without noise are named, as no guarantee covers what they learn."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures
from sklearn.utils import get_tags

from privet.errors import PrivetWarning

_LEARNED = (
    "{names} of the pipeline learned from the private rows without noise; no guarantee covers that. Use PublicScaler, "
    "PublicOneHot or a transformer that was fitted on public rows, in a FrozenEstimator"
)
_FITS = {"fit", "fit_transform", "fit_predict"}


class LearnsPrivately:
    """Marks estimators whose `fit` has a guarantee."""


# These have a guarantee, learn nothing but the number of columns, or were fitted before.
_HARMLESS = (LearnsPrivately, PolynomialFeatures, FrozenEstimator)


def check_pipeline(pipeline: Any) -> tuple[str, ...]:
    """Return the names of the steps that learn from the rows that they are fitted on, without privacy.

    `fit` of a private estimator warns of them, too, if it is the last step of a pipeline.

    Args:
        pipeline: a pipeline, column transformer, feature union, transformer or estimator.

    Returns:
        Name and class of each such step, such as "scale (StandardScaler)", or "encode__age (KBinsDiscretizer)" within a step.
        Steps that need no fit, by their tag `requires_fit`, learn nothing; a `FunctionTransformer` is trusted with a NumPy ufunc
        only, since other functions can mix rows.

    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from privet.integrations.sklearn import PrivateClassifier, PublicScaler, check_pipeline
    >>> check_pipeline(make_pipeline(StandardScaler(), PrivateClassifier()))
    ('standardscaler (StandardScaler)',)
    >>> check_pipeline(make_pipeline(PublicScaler((0, 1)), PrivateClassifier()))
    ()
    """
    return tuple(f"{name} ({type(step).__name__})" for name, step in _learning(pipeline))


def warn_of_pipeline(estimator: LearnsPrivately) -> str | None:
    """Warn of what learned from private rows in the pipeline that fits this estimator; return the remark for the statement.

    scikit-learn tells the last step of a pipeline nothing of the steps before, so the pipeline is looked for among the callers.
    This is a help and no part of the guarantee: one that is not found, such as one in another process, gives no warning.
    """
    found: object = estimator
    frame = sys._getframe(1)
    while (frame := frame.f_back) is not None:  # type: ignore[assignment]
        caller = frame.f_locals.get("self") if frame.f_code.co_name in _FITS else None
        if isinstance(caller, Pipeline) and caller.steps[-1][1] is found:
            found = caller
    names = check_pipeline(found)
    if not names:
        return None
    remark = _LEARNED.format(names=", ".join(names))
    warnings.warn(remark, PrivetWarning, stacklevel=3)
    return remark


def _learning(step: Any, name: str = "") -> Iterator[tuple[str, Any]]:
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
