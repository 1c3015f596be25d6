"""ReduceDtypeSize: the narrowest dtype for a column's values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl

from workflow.expressions.polars.series import to_column
from workflow.operator.checks import expect_state, require
from workflow.operator.feature import Feature, Features, Partials, State
from workflow.operator.operator import Example, Operator
from workflow.operator.settings import FloatDType
from workflow.schema.column import Column
from workflow.schema.dtypes import DTYPES
from workflow.schema.exact_dtypes import holds
from workflow.schema.schema import ColumnSchema, Schema
from workflow.schema.tags import facts_of

from ._numbers import ends, flat_values, merged_ends


@dataclass(frozen=True)
class ReduceDtypeSize(Operator):
    """Make integers as narrow as the values in `fit` allow, and floats float32.

    An integer column becomes the narrowest of int8, int16, int32 and int64 that holds its values
    and, if its schema has a `domain`, like ids of Categorify, that domain; it is unchanged if that
    would not be narrower, or if it has no values. A later value outside the new dtype becomes the
    nearest value in it (it saturates), so leave out columns that grow, such as timestamps and
    counters.

    Nulls stay null. Lists keep their shape. Booleans and strings are unchanged.

    Args:
        float_dtype: "float32" or "float64". A float column that is already narrower is unchanged; a
            float64 beyond the range of float32 becomes infinite.

    Example:
        >>> from workflow import ops
        >>> small = ["age", "price"] >> ReduceDtypeSize()
    """

    float_dtype: FloatDType = "float32"

    learns: ClassVar[bool] = True

    @classmethod
    def examples(cls) -> list[Example]:
        """Integers at the limits of dtypes, floats, lists, and unchanged columns."""
        numbers = {
            "byte": [-128, 127, None],
            "short": [128, 0, None],
            "wide": [2**40, -1, None],
            "full": pl.Series([255, 0, 1], dtype=pl.UInt8),
            "huge": pl.Series([2**64 - 1, 0, None], dtype=pl.UInt64),
            "price": [1e300, None, 0.1],
        }
        unseen = {"byte": [128, -(2**63)], "short": [2**62, None], "full": [7, None]}
        rest = {name: [None, None] for name in numbers if name not in unseen}
        unchanged_columns = {"flag": [True, None, False], "city": ["a", None, ""]}
        lists = {"clicks": [[1, None, 300], [], None], "scores": [[0.5], [], [1e-300]]}
        return [
            Example(cls(), numbers, unseen | rest),
            Example(cls("float64"), numbers),
            Example(cls(), unchanged_columns | lists),
        ]

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:
        """The least and the greatest value of each column of integers."""
        return {
            c.name: ends(flat_values(frame, c.name, is_list=c.is_list), c.name)
            for c in columns.columns
            if c.info.is_integer
        }

    def merge(self, partials: Partials, columns: Schema) -> Partials:  # noqa: ARG002
        """The least and the greatest value of all parts."""
        return merged_ends(partials)

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:
        """Both values of each column; none if it has no values, or no integers."""
        state = {name: Column(np.zeros(0, np.int64)) for name in columns}
        for name, table in partials.items():
            state[name] = to_column(pl.concat([table["min"], table["max"]]).drop_nulls())
        return state

    def lower(self, columns: Features, state: State) -> Features:
        """The columns, cast."""
        expect_state(state, columns)
        outputs: Features = {}
        for name, feature in columns.items():
            dtype = self._dtype(feature.schema, state[name])
            outputs[name] = Feature(
                feature.expression.cast(dtype), feature.schema.with_(dtype=dtype)
            )
        return outputs

    def _dtype(self, column: ColumnSchema, pair: Column) -> str:
        if column.info.kind == "float":
            narrower = DTYPES[self.float_dtype].numpy.itemsize < column.info.numpy.itemsize
            return self.float_dtype if narrower else column.dtype
        if not column.info.is_integer:
            return column.dtype
        plain = pair.valid is None and not pair.is_list and pair.array.dtype.kind in "iu"
        require(
            plain and pair.rows in (0, 2), f"Expected two whole numbers for column {column.name!r}."
        )
        values = pair.array.tolist()
        if values and (domain := facts_of(column).get("domain")):
            values += domain["min"], domain["max"]
        return _narrowest(column, values) if values else column.dtype


def _narrowest(column: ColumnSchema, values: list[int]) -> str:
    """The narrowest signed dtype for values, if it is narrower than the column's own."""
    itemsize = column.info.numpy.itemsize
    narrower = (d for d in DTYPES.values() if d.kind == "int" and d.numpy.itemsize < itemsize)
    return next((d.name for d in narrower if holds(d, min(values), max(values))), column.dtype)
