"""The names of a matrix's columns, if the ONNX file says them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import onnx

from training.errors import TrainingError
from training.signature import TensorSpec
from workflow.schema.names import listed

# No converter writes it; `onnx.helper.set_model_props` does.
KEY = "feature_names"


def feature_names(
    model: onnx.ModelProto, inputs: Sequence[TensorSpec]
) -> dict[str, tuple[str, ...]]:
    """The columns of inputs, in order, as the metadata `feature_names` of a model says them.

    Args:
        model: its metadata has a JSON list, the columns of the only matrix; or an object of such lists
            by input. A list beside inputs that are all single columns says nothing: these have names.
        inputs: the model's inputs.

    Raises:
        TrainingError: other metadata of this name, an unknown input, or a list for several matrices.

    Example:
        >>> model = onnx.ModelProto()
        >>> onnx.helper.set_model_props(model, {"feature_names": '["age", "price"]'})
        >>> feature_names(model, [TensorSpec("features", "float32", (None, 2))])
        {'features': ('age', 'price')}
    """
    text = next((entry.value for entry in model.metadata_props if entry.key == KEY), None)
    if text is None:
        return {}
    names = _read(text)
    if isinstance(names, dict):
        input_names = [spec.name for spec in inputs]
        if unknown := [name for name in names if name not in input_names]:
            raise TrainingError(
                f"Expected the metadata {KEY!r} of the ONNX network for its inputs, {listed(input_names)}. "
                f"Received: names for {listed(map(repr, unknown))}."
            )
        return {name: tuple(columns) for name, columns in names.items()}
    matrices = [spec.name for spec in inputs if spec.shape[1] != 1]
    if len(matrices) > 1:
        raise TrainingError(
            f"Expected the metadata {KEY!r} of the ONNX network as an object of lists by input, since "
            f"{' and '.join(matrices)} have several columns. Received: one list, {text:.100}."
        )
    of = matrices or [spec.name for spec in inputs if len(inputs) == 1]
    return dict.fromkeys(of, tuple(names))


def _read(text: str) -> Any:
    try:
        names = json.loads(text)
    except ValueError:
        names = None
    lists = [*names.values()] if isinstance(names, dict) else [names]
    if not all(isinstance(part, list) and all(isinstance(n, str) for n in part) for part in lists):
        raise TrainingError(
            f"Expected the metadata {KEY!r} of the ONNX network as a JSON list of names, or an object "
            f"of such lists by input. Received: {text:.100}. Write it with "
            f'onnx.helper.set_model_props(network, {{"{KEY}": json.dumps([...])}}).'
        )
    return names
