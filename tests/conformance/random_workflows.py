"""Random chains of operators over random rows: what each operator's own examples do not combine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

from workflow import ColumnSchema, Schema, Workflow, WorkflowError, ops, where
from workflow.expressions.polars.series import polars_dtype
from workflow.graph.node import Node
from workflow.operator.operator import Operator
from workflow.schema.dtypes import DTYPES

# A key, a number and a target are in all rows, under these names.
KEY, NUMBER, TARGET = "k", "v", "target"
_JOINED = "joined"
NAMES = ["a", "b c", "x/y", "é", "count", "0.finite", "__out", "1"]
TEXTS = ["", "a", "b", "é", " a", "a longer text than the others"]
Step = Callable[[st.DrawFn], Operator]
STEPS: list[Step] = [
    lambda draw: ops.Bucketize(draw(st.sampled_from([[0, 1, 5], [2.5], list(range(40))]))),
    lambda draw: ops.Categorify(
        freq_threshold=draw(st.sampled_from([0, 2])),
        num_buckets=draw(st.sampled_from([None, 3])),
        encode_type=draw(st.sampled_from(["joint", "combo"])),
        split_out=draw(st.sampled_from([1, 2])),
    ),
    lambda draw: ops.Clip(*draw(st.sampled_from([(0, None), (-3, 3), (0.5, 2.5)]))),
    lambda draw: ops.FillMissing(
        draw(st.sampled_from([0, 0.5, "x", True])), add_binary_cols=draw(st.booleans())
    ),
    lambda draw: ops.FillMedian(add_binary_cols=draw(st.booleans())),
    lambda draw: ops.HashBucket(100, hash=draw(st.sampled_from(["splitmix64", "farmhash"]))),
    lambda _: ops.HashedCross(100),
    lambda draw: ops.ListSlice(*draw(st.sampled_from([(0, 2), (-2, None), (1, 3)]))),
    lambda draw: ops.ListSlice(0, 3, pad=True, pad_value=draw(st.sampled_from([0, "", 1.5]))),
    lambda _: ops.LogOp(),
    lambda draw: ops.Normalize(draw(st.sampled_from(["float32", "float64"]))),
    lambda draw: ops.NormalizeMinMax(draw(st.sampled_from(["float32", "float64"]))),
    lambda _: ops.ReduceDtypeSize(),
    lambda _: ops.Rename(postfix="_r"),
    lambda _: ops.ValueCount(),
    lambda draw: ops.JoinGroupby(NUMBER, draw(st.sampled_from(["count", "mean", "max", "std"]))),
    lambda draw: ops.TargetEncoding(TARGET, kfold=draw(st.sampled_from([1, 3]))),
    lambda draw: ops.LambdaOp(
        draw(
            st.sampled_from(
                [
                    lambda c: c + 1,
                    lambda c: c / 3,
                    lambda c: c % 4,
                    lambda c: c.is_null(),
                    lambda c: c.fill_null(0),
                    lambda c, df: c - df[next(iter(df))],
                    lambda c, df: where(df[next(iter(df))].is_null(), c, df[next(reversed(df))]),
                ]
            )
        )
    ),
]
OVER_ROWS: list[Step] = [
    lambda _: ops.Dropna(),
    lambda _: ops.DifferenceLag(KEY, [1, -1]),
    lambda draw: ops.Groupby(
        KEY, sort_cols=NUMBER, aggs=draw(st.sampled_from(["count", "first", "list", "max"]))
    ),
]
# No mean of groups: of integers near the ends of int64 it depends on the order of the sum.
# Operators that keep all values, or need a function or a table that random columns would seldom suit; a
# branch may begin with a join of its first column.
LEFT_OUT = [
    *(ops.AddMetadata, ops.AddProperties, ops.AddTags, ops.TagAsItemFeatures, ops.TagAsItemID),
    *(ops.TagAsUserFeatures, ops.TagAsUserID, ops.DataStats, ops.DropLowCardinality),
    *(ops.ColumnSimilarity, ops.JoinExternal, ops.PretrainedVectors, ops.Filter, ops.DatePart),
]


@dataclass(frozen=True)
class RandomWorkflow:
    """A graph, and rows to fit to and to transform."""

    node: Node
    learnt: pl.DataFrame
    rows: pl.DataFrame

    def fit(self, data: Any, engine: str = "cpu") -> Workflow:
        """The graph as a workflow, fitted."""
        return Workflow(self.node).fit(data, engine=engine)


@st.composite
def random_workflows(
    draw: st.DrawFn,
    *,
    row_by_row: bool = False,
    names_of: Sequence[str] = NAMES,
) -> RandomWorkflow:
    """One or two branches of up to three operators each; ones that the columns do not suit are left out.

    Args:
        row_by_row: without operators that need more than one row of the data.
        names_of: names of columns.
    """
    steps = STEPS if row_by_row else [*STEPS, *OVER_ROWS]
    names = draw(st.lists(st.sampled_from(names_of), min_size=1, max_size=4, unique=True))
    kinds = {n: (draw(st.sampled_from(sorted(DTYPES))), draw(st.booleans())) for n in names}
    schema = Schema(
        [
            *(
                ColumnSchema(name, dtype, is_list=is_list)
                for name, (dtype, is_list) in kinds.items()
            ),
            ColumnSchema(KEY, draw(st.sampled_from(["int64", "string", "uint8"]))),
            ColumnSchema(NUMBER, "int32"),
            ColumnSchema(TARGET, "float32", nullable=False),
        ]
    )
    branches = []
    for number in range(draw(st.integers(1, 2))):
        join = draw(st.booleans())
        branches.append(_branch(draw, names, schema, steps, number, join=join))
    node = branches[0] if len(branches) == 1 else branches[0] + branches[1]
    return RandomWorkflow(node, _frame(draw, schema, 1), _frame(draw, schema, 0))


def _branch(
    draw: st.DrawFn,
    names: list[str],
    schema: Schema,
    steps: Sequence[Step],
    number: int,
    *,
    join: bool,
) -> Node:
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    node: Node = chosen >> ops.Rename(postfix=f"_{number}")
    if join:
        joined = [chosen[0]] >> _join(draw, schema[chosen[0]])
        longer = node + (joined[_JOINED] >> ops.Rename(postfix=f"_{number}"))
        node = longer if _suits(longer, schema) else node
    for _ in range(draw(st.integers(1, 3))):
        longer = node >> draw(st.sampled_from(steps))(draw)
        node = longer if _suits(longer, schema) else node
    return node


def _suits(node: Node, schema: Schema) -> bool:
    try:
        Workflow(node).fit_schema(schema)
    except WorkflowError:
        return False
    return True


def _join(draw: st.DrawFn, column: ColumnSchema) -> Operator:
    """A join of a column with a table of one row or of several, whose values may be null or lists."""
    keys = _COMMON.get(column.info.kind, list(range(9)))[: draw(st.sampled_from([1, 5]))]
    values = draw(st.sampled_from([[0.5, None], ["a", "", None], [[1], [], [None, 2]], [7]]))
    rows = [values[number % len(values)] for number in range(len(keys))]
    dtype = polars_dtype(column.dtype)
    table = pl.DataFrame({column.name: pl.Series(keys, dtype=dtype), _JOINED: rows})
    return ops.JoinExternal(table, on=column.name)


def _frame(draw: st.DrawFn, schema: Schema, least: int) -> pl.DataFrame:
    rows = draw(st.sampled_from([least, 1, 7, 40]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    columns = {
        c.name: pl.Series(_values(random, c, rows), dtype=polars_dtype(c.dtype, is_list=c.is_list))
        for c in schema.columns
    }
    return pl.DataFrame(columns)


def _values(random: np.random.Generator, column: ColumnSchema, rows: int) -> list[Any]:
    common = _COMMON.get(column.info.kind, list(range(9)))
    if column.name == TARGET:
        common = [0.0, 1.0]
    elif column.info.is_integer:
        common = [
            *common,
            int(np.iinfo(column.info.numpy).max),
            int(np.iinfo(column.info.numpy).min),
        ]
    nullable = column.nullable and random.random() < 0.6

    def one() -> Any:
        return None if nullable and random.random() < 0.2 else common[random.integers(len(common))]

    if column.is_list:
        return [
            None
            if nullable and random.random() < 0.1
            else [one() for _ in range(random.integers(4))]
            for _ in range(rows)
        ]
    return [one() for _ in range(rows)]


_COMMON: Mapping[str, list[Any]] = {
    "bool": [False, True],
    "string": TEXTS,
    "float": [float("nan"), float("inf"), -0.0, 0.0, 0.5, 1.0, 2.0, 3.0, 7.0, -4.0],
}


def written(rows: pl.DataFrame, folder: Path) -> Path:
    """A folder with the rows as three files of several row groups, the first without rows."""
    folder.mkdir()
    middle = rows.height // 2
    for number, part in enumerate((rows[:0], rows[:middle], rows[middle:])):
        part.write_parquet(folder / f"{number}.parquet", row_group_size=5)
    return folder
