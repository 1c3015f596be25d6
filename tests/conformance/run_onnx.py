"""Runs a program in onnxruntime, and the same with its tables folded."""

from __future__ import annotations

from collections.abc import Mapping

from workflow.expressions.fold_tables import fold_tables
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.onnx import OnnxInterpreter
from workflow.expressions.program.program import Program
from workflow.schema.column import Column


def run_onnx(program: Program, columns: Mapping[str, Column]) -> dict[str, Column]:
    return OnnxInterpreter(program)(columns)


def run_folded(program: Program, columns: Mapping[str, Column]) -> dict[str, Column]:
    return NumpyInterpreter(fold_tables(program))(columns)
