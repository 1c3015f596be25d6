"""The ONNX interpreter: a program as an ONNX graph, which onnxruntime runs without Python.

The only part of `workflow` that imports onnx; import it only where ONNX is needed.
"""

from .checks import Rows
from .float64 import ROUNDING_OPTIMIZERS, keep_float64
from .graph import IR_VERSION, OPSET
from .wire import OUTPUT_SUFFIX, WIDTHS_SUFFIX, expect_fits, save_onnx, to_onnx

__all__ = [
    "IR_VERSION",
    "OPSET",
    "OUTPUT_SUFFIX",
    "ROUNDING_OPTIMIZERS",
    "WIDTHS_SUFFIX",
    "Rows",
    "expect_fits",
    "keep_float64",
    "save_onnx",
    "to_onnx",
]
