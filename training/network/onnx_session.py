"""onnxruntime as a server runs it: on the CPU, in one thread, with strings as bytes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from training.errors import TrainingError
from workflow.schema.column import Array
from workflow.schema.dtypes import DTYPES


def open_session(model: Path | bytes, without: Sequence[str] = ()) -> Any:
    """A session of an ONNX file, or of the bytes of one.

    Args:
        model: the file, or its bytes.
        without: names of onnxruntime's optimizers that are not to simplify it.

    Raises:
        TrainingError: onnxruntime is not installed.
        Exception: onnxruntime raises errors of several types for a model that it cannot load.
    """
    # It reports its use to its makers otherwise, from 1.31 on.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise TrainingError(
            "Expected the package onnxruntime, to prove the written models. Received: none. "
            "Install the extra [onnx]."
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        model if isinstance(model, bytes) else str(model),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=[*without],
    )


def call_session(
    session: Any, names: Sequence[str], tensors: Mapping[str, Array]
) -> dict[str, Array]:
    """The named outputs for tensors by name; strings are bytes on both sides.

    Raises:
        Exception: onnxruntime raises errors of several types.
    """
    fed = {name: _with_end(array) for name, array in tensors.items()}
    return dict(zip(names, map(_in_bytes, session.run(names, fed)), strict=True))


def _with_end(array: Any) -> Any:
    """Strings as bytes of one width, each followed by the NUL at which onnxruntime stops."""
    if array.dtype != DTYPES["string"].numpy:
        return array
    texts = [text.encode() if isinstance(text, str) else text for text in array.flat]
    width = max(map(len, texts), default=0) + 1
    return np.array(texts, f"S{width}").reshape(array.shape)


def _in_bytes(array: Any) -> Any:
    """Strings as bytes, as in a server and TensorFlow; onnxruntime returns Python strings."""
    if array.dtype != DTYPES["string"].numpy:
        return array
    encoded = array.copy()
    encoded.reshape(-1)[:] = [text.encode() for text in array.flat]
    return encoded
