"""From columns to a trained network and its SavedModel."""

from training import layers, models, optimizers
from training.errors import TrainingError
from training.report import TrainingReport
from training.saved_model import save_model
from training.signature import ModelSignature, TensorSpec, model_signature
from training.split import compile_model
from training.train import train

__all__ = [
    "ModelSignature",
    "TensorSpec",
    "TrainingError",
    "TrainingReport",
    "compile_model",
    "layers",
    "model_signature",
    "models",
    "optimizers",
    "save_model",
    "train",
]
