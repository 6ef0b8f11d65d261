"""scikit-learn estimators and transformers for private tables, which learn nothing from rows but what a guarantee covers."""

from privet.integrations.sklearn.estimators import PrivateClassifier, PrivateRegressor
from privet.integrations.sklearn.pipelines import check_pipeline
from privet.integrations.sklearn.search import tune
from privet.integrations.sklearn.transformers import PublicOneHot, PublicScaler

__all__ = ["PrivateClassifier", "PrivateRegressor", "PublicOneHot", "PublicScaler", "check_pipeline", "tune"]
