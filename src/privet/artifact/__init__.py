"""Trained models for use: a self-contained folder, loading, prediction and export.

The folder holds the weights (safetensors), their description (`model.json`: architecture, preprocessing or schema, target and
guarantee) and a model card (`README.md`). Loading reads JSON and safetensors only: it executes no code from the folder.
"""

from privet.artifact.description import Architecture, GuaranteeSummary, ModelDescription
from privet.artifact.predictor import Predictions, Predictor
from privet.tables.schema import MisfitError

__all__ = ["Architecture", "GuaranteeSummary", "MisfitError", "ModelDescription", "Predictions", "Predictor"]
