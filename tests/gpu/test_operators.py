"""Every operator's examples on the GPU: what it learns and makes of parquet is what the CPU does.

The rows to transform hold also the values of each dtype at which libraries differ. What the GPU
cannot run is an error, never a fallback, and fails.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from same_columns import assert_same
from verb_cases import hard_values

from workflow import Workflow, WorkflowError, ops
from workflow.engine import engine as engines
from workflow.expressions.polars.series import column_schema, to_column
from workflow.operator.frame_operator import OutOfFoldOperator
from workflow.operator.operator import OPERATORS

pytestmark = pytest.mark.timeout(120)

EXAMPLES = [
    pytest.param(example, id=f"{name}-{number}")
    for name, operator in sorted(OPERATORS.items())
    for number, example in enumerate(operator.examples())
]
OUT_OF_FOLD = [p for p in EXAMPLES if isinstance(p.values[0].operator, OutOfFoldOperator)]
# Sums of floats may differ in their last bits.
CLOSE = 1e-8


def make(example):
    return Workflow((example.left or list(example.columns)) >> example.operator)


def learnt_rows(example):
    return pl.concat([pl.DataFrame(dict(example.columns))] * 3)


def hard_rows(example):
    """An example's rows and those that are hard, also without any between them, and unseen ones."""
    frame = pl.DataFrame(dict(example.columns))
    parts = [frame, hard_frame(frame.schema), frame.clear(), frame]
    if example.unseen:
        parts.append(pl.DataFrame(dict(example.unseen), schema=frame.schema))
    return pl.concat(parts)


def hard_frame(schema, rows=20):
    """Rows of the values of each dtype at which libraries differ; lists of them, null and empty."""
    columns = {}
    for name, dtype in schema.items():
        column = column_schema(name, dtype)
        values, written = hard_values(column.dtype), dtype
        if column.is_time:
            values = [0, -1, 86_400_000_000, 951_782_400_000_000, None]
            written = pl.List(pl.Datetime("us")) if column.is_list else pl.Datetime("us")
        if column.is_list:
            values = [None, [], values, [None], *([v] for v in values)]
        picked = [values[row % len(values)] for row in range(rows)]
        columns[name] = pl.Series(picked, dtype=written).cast(dtype)
    return pl.DataFrame(columns)


def write(frame, folder):
    """The rows as two files of several row groups."""
    middle = frame.height // 2
    files = [folder / "0.parquet", folder / "1.parquet"]
    for file, part in zip(files, (frame[:middle], frame[middle:]), strict=True):
        part.write_parquet(file, row_group_size=5)
    return files


def assert_same_files(expected, received):
    expected, received = (pl.read_parquet(files) for files in (expected, received))
    assert expected.schema == received.schema
    for one, other in zip(expected, received, strict=True):
        assert_same(to_column(one), to_column(other))


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_operator_learns_the_same(example, engine, tmp_path):
    files = write(learnt_rows(example), tmp_path)
    expected, received = (make(example).fit(files, engine=e).states for e in ("cpu", engine))
    assert expected.keys() == received.keys()
    for number, state in expected.items():
        assert state.keys() == received[number].keys()
        for name, column in state.items():
            assert_same(column, received[number][name], close=CLOSE)


ROWS = {
    "hard": hard_rows,
    "nulls": lambda example: learnt_rows(example).clear(2),
    "none": lambda example: learnt_rows(example).clear(),
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_operator_makes_the_same(example, rows, engine, tmp_path):
    workflow = make(example).fit(learnt_rows(example))
    files = write(rows(example), tmp_path)
    made = (
        workflow.transform_to_parquet(files, tmp_path / where, engine=e)
        for where, e in (("expected", "cpu"), ("received", engine))
    )
    assert_same_files(*made)


@pytest.mark.parametrize("example", OUT_OF_FOLD)
def test_an_operator_makes_the_same_of_what_it_learns_from(example, engine, tmp_path):
    files = write(learnt_rows(example), tmp_path)
    made = (
        make(example).fit_transform_to_parquet(files, tmp_path / where, engine=e)
        for where, e in (("expected", "cpu"), ("received", engine))
    )
    assert_same_files(*made)


def test_what_cudf_cannot_run_is_an_error(device):
    if device == "cpu":
        pytest.skip("the CPU runs it")
    lists = pl.LazyFrame({"genres": [["a"], []]})
    with pytest.raises(pl.exceptions.ComputeError, match=r"ListFunction\.Length"):
        lists.select(pl.col("genres").list.len()).collect(engine=engines.gpu_engine())


def test_lists_of_floats_are_no_ids_there(device):
    if device == "cpu":
        pytest.skip("the CPU reads them")
    workflow = Workflow(["items"] >> ops.HashBucket(10))
    with pytest.raises(WorkflowError, match=r'cuDF cannot run .*list\.eval\. Pass engine="cpu"'):
        workflow.fit({"items": [[1.0, None], []]}, engine="gpu").transform(
            {"items": [[1.0]]}, engine="gpu"
        ).collect()


def test_uint32_of_old_files_is_refused_there(device, tmp_path):
    """As pyarrow before version 6 wrote it: as int64, which cuDF does not turn into uint32."""
    if device == "cpu":
        pytest.skip("the CPU reads it")
    table = pa.table({"id": pa.array([1, 2], pa.uint32()), "price": [0.5, 1.5]})
    pq.write_table(table, tmp_path / "old.parquet", version="1.0")
    with pytest.raises(WorkflowError, match=r"old\.parquet: cuDF reads column 'id' as int64"):
        Workflow(["id"] >> ops.Categorify()).fit(tmp_path, engine="gpu")
    made = Workflow(["price"] >> ops.FillMissing(0.0)).fit(tmp_path, engine="gpu")
    files = made.transform_to_parquet(tmp_path / "*.parquet", tmp_path / "out", engine="gpu")
    assert pl.read_parquet(files)["price"].to_list() == [0.5, 1.5]
