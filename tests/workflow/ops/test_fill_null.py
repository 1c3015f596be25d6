"""A value that fills a null keeps all its digits, in the server as offline."""

import numpy as np
import polars as pl

from workflow.expressions.language.tree import constant, source
from workflow.expressions.language.types import Type
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.polars.stages import apply
from workflow.expressions.program.program import build
from workflow.schema.column import Column
from workflow.schema.schema import ColumnSchema, Schema


def test_a_float64_constant_in_a_float32_column_is_not_rounded():
    filled = source("x", Type("float32")).fill_null(constant(0.1))
    program = build(
        [(ColumnSchema("y", "float64"), filled)], Schema([ColumnSchema("x", "float32")])
    )
    column = Column(np.array([1, 2], np.float32), np.array([True, False]))
    served = NumpyInterpreter(program)({"x": column})["y"].array.tolist()
    frame = pl.LazyFrame({"x": [1.0, None]}, schema={"x": pl.Float32})
    assert served == [1.0, 0.1]
    assert served == apply(frame, program).collect()["y"].to_list()
