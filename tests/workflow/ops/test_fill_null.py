"""A value that fills a null keeps all its digits, in the server as offline, and ids stay ids."""

import numpy as np
import polars as pl
import pytest

from workflow import Workflow, ops
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


def test_filled_ids_have_the_cardinality_of_ids():
    rows = {"at": [5, None], "price": [0.5, None], "seen": [[7, None], None]}
    times, ranges = ["at"] >> ops.DatePart(["hour"], unit="s"), ["price"] >> ops.Bucketize([1, 2])
    seen = ["seen"] >> ops.Categorify()
    filled = Workflow((times + ranges + seen) >> ops.FillMissing(2)).fit(rows).output_schema
    facts = {column.name: column.properties["cardinality"] for column in filled.columns}
    assert facts == {"at_hour": 24, "price": 3, "seen": 4}
    assert not any(column.nullable for column in filled.columns)


def test_ids_filled_with_no_id_have_no_cardinality():
    ranges = ["price"] >> ops.Bucketize([1, 2])
    for beyond in (-1, 3):
        workflow = Workflow(ranges >> ops.FillMissing(beyond)).fit({"price": [0.5, None]})
        assert "cardinality" not in workflow.output_schema["price"].properties


@pytest.mark.parametrize("fill", [ops.FillMissing(5.0), ops.FillMedian()])
def test_a_nan_that_an_operator_computes_stays_as_the_guide_says(fill):
    rows = {"price": [-2.0, None, 1.0]}
    made = Workflow(["price"] >> ops.LogOp() >> fill).fit(rows).transform(rows).collect()["price"]
    assert made.is_nan().to_list() == [True, False, False]
    assert made.null_count() == 0
    clipped = Workflow(["price"] >> ops.Clip(min_value=0) >> ops.LogOp() >> fill).fit(rows)
    assert clipped.transform(rows).collect()["price"].is_finite().all()
