"""The network as a SavedModel for Triton's TensorFlow backend, the native one or ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from exporter.errors import ExportError
from exporter.model_spec import ModelSpec, Tensor
from exporter.options import ServingOptions
from training.errors import TrainingError
from training.saved_model import save_model

SIGNATURE, GRAPH_TAG = "serving_default", "serve"


def model_spec(
    name: str,
    version: int,
    inputs: tuple[Tensor, ...],
    outputs: tuple[Tensor, ...],
    options: ServingOptions,
) -> ModelSpec:
    """The network's model."""
    return ModelSpec(
        name=name,
        version=version,
        backend="tensorflow",
        platform="tensorflow_savedmodel",
        inputs=inputs,
        outputs=outputs,
        parameters={"TF_SIGNATURE_DEF": SIGNATURE, "TF_GRAPH_TAG": GRAPH_TAG},
        instances=options.network_instances,
        instance_kind=options.network_kind,
    )


def write(model: Any, folder: Path) -> None:
    """Write the network's files into a version folder.

    Raises:
        ExportError: the disk is full, or the folder cannot be written.
    """
    try:
        save_model(model, folder / "model.savedmodel", signature=SIGNATURE)
    except TrainingError as error:
        raise ExportError(str(error)) from error
    except tf.errors.OpError as error:
        # TensorFlow writes by itself, and its texts begin with the graph's own names.
        reason = error.message.rpartition("}} ")[2]
        raise ExportError(
            f"Expected to be able to write to {folder}. Received: {reason}."
        ) from error
