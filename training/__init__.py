"""From columns to a trained network and its SavedModel."""

from training import layers, models
from training.errors import TrainingError
from training.saved_model import save_model
from training.signature import ModelSignature, TensorSpec, model_signature
from training.train import TrainingReport, train

__all__ = [
    "ModelSignature",
    "TensorSpec",
    "TrainingError",
    "TrainingReport",
    "layers",
    "model_signature",
    "models",
    "save_model",
    "train",
]
