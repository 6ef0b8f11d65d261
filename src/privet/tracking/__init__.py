"""Metrics sinks: send the public measures of a training to TensorBoard, Weights & Biases or MLflow.

Each sink is a `privet.Callback`. Its library is an extra, imported when the sink is made: `pip install 'privet[tensorboard]'`.
"""

from privet.tracking.services import MLflow, TensorBoard, WandB

__all__ = ["MLflow", "TensorBoard", "WandB"]
