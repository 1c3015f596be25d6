"""Keras layers, models and optimizers for tabular data, their training, and SavedModels."""

from importlib.util import find_spec
from typing import TYPE_CHECKING

try:
    from workflow.first_use import at_first_use, explained_imports
except ModuleNotFoundError as error:  # here, since no module of ours can say it then
    import workflow

    raise ImportError(
        f"Expected the package 'workflow' of parquet-to-triton. Received: {workflow.__file__}, which has "
        "the same name and comes before it on Python's path. Rename it."
    ) from error

from training.errors import TrainingError

if TYPE_CHECKING or find_spec("tensorflow") is not None:
    # Importing them tells Keras of them, which it needs to load a model that has them.
    with explained_imports():
        # Before Keras: a thread that imports Keras while another imports TensorFlow breaks both for good.
        import tensorflow  # noqa: F401, ICN001

        from training import layers, models, optimizers, retrieval

if TYPE_CHECKING:
    from training.feature_columns.conversion import make_feature_column_workflow
    from training.gather_tables import whole_tables
    from training.initial_weights.earlier import WarmStart, warm_start
    from training.initial_weights.pretrained import PretrainedTable, pretrained_table
    from training.keras_signature import model_signature
    from training.parallel import Workers, join_workers
    from training.report import TrainingReport
    from training.saved_model import save_model
    from training.signature import ModelSignature, TensorSpec
    from training.split import compile_model
    from training.training_run import train

__all__ = [
    "ModelSignature",
    "PretrainedTable",
    "TensorSpec",
    "TrainingError",
    "TrainingReport",
    "WarmStart",
    "Workers",
    "compile_model",
    "join_workers",
    "layers",
    "make_feature_column_workflow",
    "model_signature",
    "models",
    "optimizers",
    "pretrained_table",
    "retrieval",
    "save_model",
    "train",
    "warm_start",
    "whole_tables",
]

# No function has the name of a module, which would take its place once it is imported. The export of
# another library's network does without TensorFlow.
_MODULES = {
    "ModelSignature": "training.signature",
    "TensorSpec": "training.signature",
    "PretrainedTable": "training.initial_weights.pretrained",
    "TrainingReport": "training.report",
    "WarmStart": "training.initial_weights.earlier",
    "Workers": "training.parallel",
    "compile_model": "training.split",
    "join_workers": "training.parallel",
    "layers": "training.layers",
    "make_feature_column_workflow": "training.feature_columns.conversion",
    "model_signature": "training.keras_signature",
    "models": "training.models",
    "optimizers": "training.optimizers",
    "pretrained_table": "training.initial_weights.pretrained",
    "retrieval": "training.retrieval",
    "save_model": "training.saved_model",
    "train": "training.training_run",
    "warm_start": "training.initial_weights.earlier",
    "whole_tables": "training.gather_tables",
}


def __dir__() -> list[str]:
    return __all__


__getattr__ = at_first_use("training", _MODULES)
