"""A network of a model of any kind, or of the path of one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from training.errors import TrainingError
from training.network.network import Network
from workflow.data.object_stores import expect_local

KINDS = (
    "a Keras model, the path of a .keras file, the folder of a SavedModel, or an ONNX model as a "
    "ModelProto or the path of an .onnx file"
)


def as_network(model: Any, columns: Mapping[str, Any] | None = None) -> Network:
    """Make a network of a model of any kind, or of the path of one.

    Raises:
        TrainingError: there is no model at the path, a SavedModel or an ONNX model that cannot be
            served, or columns for inputs that it lacks; a Keras model that cannot be served.
    """
    network = load_network(model)
    if hasattr(network, "renamed"):
        renamed_network: Network = network.renamed(columns or {})
        return renamed_network
    from training.network.keras_network import KerasNetwork  # noqa: PLC0415 - see load_network

    return KerasNetwork(network, columns or {})


def load_network(model: Any) -> Any:
    """A model that answers in this process, whatever the user has.

    Args:
        model: a model of any kind, or the path of one.

    Returns:
        The Keras model itself, or the one of a `.keras` file; or a network of another kind, which
        has the attributes that a proof of parity needs, by its own names: `inputs`, `input` and
        `predict_on_batch`.

    Raises:
        TrainingError: there is no model, or it cannot be read.
    """
    if isinstance(model, str | os.PathLike):
        expect_local(model, TrainingError)
    # Each kind imports the library that runs it: the others may be missing, and take seconds.
    if _is_onnx(model):
        from training.network.onnx_network import OnnxModelFile  # noqa: PLC0415

        return OnnxModelFile(model)
    if isinstance(model, str | os.PathLike):
        return _from_path(Path(model))
    if not hasattr(model, "predict_on_batch"):
        raise TrainingError(
            f"Expected {KINDS}. Received: {model!r:.100} of {type(model).__name__}."
        )
    return model


def _is_onnx(model: Any) -> bool:
    if isinstance(model, str | os.PathLike):
        return Path(model).suffix == ".onnx"
    return type(model).__name__ == "ModelProto"


def _from_path(path: Path) -> Any:
    if (path / "saved_model.pb").is_file():
        from training.network.saved_network import SavedNetwork  # noqa: PLC0415

        return SavedNetwork(path)
    if path.suffix != ".keras" or not path.is_file():
        received = (
            "no such file" if not path.exists() else "a folder" if path.is_dir() else "a file"
        )
        raise TrainingError(
            f"Expected a Keras model in {path}, written by model.save('model.keras'), an ONNX model "
            f"as a file .onnx, or the folder of a SavedModel. Received: {received}."
        )
    from training.network.keras_network import load_keras  # noqa: PLC0415

    return load_keras(path)
