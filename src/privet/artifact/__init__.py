"""Trained models for use: a self-contained folder, loading, prediction and export.

The folder holds the weights (safetensors), their description (`model.json`: architecture, preprocessing or schema, target and
guarantee) and a model card (`README.md`). Loading reads JSON and safetensors only: it executes no code from the folder.
"""

from privet.artifact.answers import ENDINGS, check_ending, list_columns, write_predictions
from privet.artifact.card import PublicMetric, format_card
from privet.artifact.description import Architecture, GuaranteeSummary, ModelDescription
from privet.artifact.encoding import MISFITS
from privet.artifact.export import FORMATS, choose_format
from privet.artifact.folder import FOLDER, find_weights, write_folder, write_weights
from privet.artifact.predictor import Predictions, Predictor, load
from privet.tables.misfits import MisfitError

__all__ = [
    "ENDINGS",
    "FOLDER",
    "FORMATS",
    "MISFITS",
    "Architecture",
    "GuaranteeSummary",
    "MisfitError",
    "ModelDescription",
    "Predictions",
    "Predictor",
    "PublicMetric",
    "check_ending",
    "choose_format",
    "find_weights",
    "format_card",
    "list_columns",
    "load",
    "write_folder",
    "write_predictions",
    "write_weights",
]
