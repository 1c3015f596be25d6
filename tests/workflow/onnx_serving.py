"""Programs as ONNX models in onnxruntime, fed with wire tensors."""

from __future__ import annotations

import numpy as np
import onnxruntime

from workflow.expressions.onnx import OUTPUT_SUFFIX, save_onnx, to_onnx
from workflow.expressions.program.program import build
from workflow.schema.schema import ColumnSchema, Schema


def load(path):
    """A model's file as a function over wire tensors."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # refused requests are expected here
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def serve(tensors):
        feed = {name: as_bytes(t) if t.dtype == object else t for name, t in tensors.items()}
        made = dict(zip(names, session.run(names, feed), strict=True))
        return {name.removesuffix(OUTPUT_SUFFIX): array for name, array in made.items()}

    return serve


def as_bytes(texts):
    """Bytes as onnxruntime takes them from Python, those that are not UTF-8 too.

    It reads each up to a NUL, past its end if there is none, so that there must be one.
    """
    width = max([1, *(len(text) for text in texts.ravel())])
    return np.array(texts.tolist(), f"S{width + 1}").reshape(texts.shape)


def serve_program(program, folder, **wires):
    path = folder / "model.onnx"
    save_onnx(to_onnx(program, **wires), path)
    return load(path)


def program_over(x, outputs):
    schema = ColumnSchema(x.parameters["name"], x.type.dtype, x.type.is_list, x.type.nullable)
    made = [
        (ColumnSchema(name, e.type.dtype, e.type.is_list, e.type.nullable), e)
        for name, e in outputs.items()
    ]
    return build(made, Schema([schema]))
