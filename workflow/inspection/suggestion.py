"""Operators that may suit a column, by rules of thumb over its facts."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from workflow.embedding_sizes import embedding_dimension
from workflow.schema.dtypes import DTYPES

from .column import ColumnInspection
from .time_formats import has_hours

# Categorify's ids for padding, null and unknown values.
_RESERVED = 3
_FEW, _MANY, _TOO_MANY = 64, 100_000, 5_000_000
_HASHED = 1_000_000
_ID = re.compile(r"(^|_)(id|key|code|number|num|zip|upc|sku)s?$|[a-z](Id|ID|Key|Code)s?$", re.ASCII)


@dataclass(frozen=True)
class Suggestion:
    """A guess at how to preprocess a column; whoever knows its meaning decides.

    Attributes:
        operators: code of operators, such as "ops.Categorify()"; "" to leave the column out.
        embedding: rows and width of the embedding table for ids; None for numbers.
        reason: the facts that led to it.
    """

    operators: str
    embedding: tuple[int, int] | None
    reason: str

    def __str__(self) -> str:
        """The operators without their prefix, the embedding and the reason."""
        code = self.operators.replace("ops.", "") or "leave it out"
        table = f", embedding {self.embedding[0]:,} x {self.embedding[1]}" if self.embedding else ""
        return f"{code}{table}: {self.reason}"


def suggestion(column: ColumnInspection) -> Suggestion:
    """An operator for a column.

    Texts that are dates or times in a common format have to be parsed first, and booleans with null
    cast, since no request can hold them. Ids are other strings, booleans, whole numbers with few
    different values or with a name like "userId", and such without a sign in lists or with very many
    values; other numbers and times are quantities. An embedding has the width of `embedding_dimension`.

    Example:
        >>> from workflow import inspect_dataset
        >>> print(suggestion(inspect_dataset({"userId": [7, 9, 7]})["userId"]))
        Categorify(), embedding 5 x 16: 2 different values
    """
    if column.distinct < 2 and not (column.distinct and _are_some_missing(column)):
        return Suggestion("", None, "all values are equal" if column.distinct else "no values")
    if column.time:
        return _of_times("dates" if column.time == "date" else "times")
    if column.formats:
        return _times_as_text(column)
    return _of_ids(column) if is_category(column) else _of_numbers(column)


def is_category(column: ColumnInspection) -> bool:
    """Whether the values are names rather than quantities, by a guess."""
    kind = DTYPES[column.dtype].kind
    if kind in ("string", "bool"):
        return True
    if column.time or (kind == "float" and not column.is_whole):
        return False
    if _ID.search(column.name) or column.distinct <= _FEW:
        return True
    many = column.is_list or column.distinct > _MANY
    return kind != "float" and (column.minimum or 0) >= 0 and many


def _of_times(kind: str, advice: str = "") -> Suggestion:
    parts = ["month", "weekday"] if kind == "dates" else ["month", "weekday", "hour"]
    code = f"ops.DatePart({parts}) >> ops.Categorify()".replace("'", '"')
    return Suggestion(code, None, f"{kind}{advice}")


def _times_as_text(column: ColumnInspection) -> Suggestion:
    """The suggestion for texts that are dates or times in known formats."""
    first, *rest = column.formats
    kind, method = ("times", "to_datetime") if has_hours(first) else ("dates", "to_date")
    parse = f'str.strip_chars().str.{method}("{first}")'  # as `time_formats` reads them
    if column.is_list:
        parse = f"list.eval(polars.element().{parse})"
    advice = f" as text: parse them before, {_polars(column)}.{parse}"
    again = f'; "{rest[0]}" reads them too' if rest else ""
    return _of_times(kind, f"{advice}{again}")


def _polars(column: ColumnInspection) -> str:
    """The code of a column, whatever its name holds."""
    return f"polars.col({json.dumps(column.name, ensure_ascii=False)})"


def _of_ids(column: ColumnInspection) -> Suggestion:
    distinct = column.distinct
    if column.is_unique and distinct > _FEW:
        return Suggestion("", None, "every value occurs once: nothing to learn from it")
    if DTYPES[column.dtype].kind == "float":
        # A null makes floats of integers in pandas.
        return _categorified(
            column, 'ops.LambdaOp(lambda c: c.cast("int64")) >> ', "whole numbers, "
        )
    result = _categorified(column, "", "")
    missing = column.null_elements if column.is_list else column.nulls
    if DTYPES[column.dtype].kind == "bool" and missing:
        dtype = "polars.List(polars.Int8)" if column.is_list else "polars.Int8"
        cast = f"{_polars(column)}.cast({dtype})"
        advice = f"booleans with null, which a request cannot hold: cast them before, {cast}"
        return replace(result, reason=f"{result.reason}; {advice}")
    return result


def _categorified(column: ColumnInspection, before: str, facts: str) -> Suggestion:
    distinct = column.distinct
    if distinct > _TOO_MANY:
        table = (_HASHED, embedding_dimension(_HASHED))
        reason = f"{facts}{distinct:,} different values: a table of fewer rows"
        return Suggestion(f"{before}ops.HashBucket({_HASHED})", table, reason)
    code, reason = f"{before}ops.Categorify()", f"{facts}{distinct:,} different values"
    if column.once > distinct / 2 and distinct > _FEW:
        code = f"{before}ops.Categorify(freq_threshold=2)"
        reason = f"{facts}{column.once / distinct:.0%} of {distinct:,} different values occur once"
        distinct -= column.once
    rows = distinct + _RESERVED
    return Suggestion(code, (rows, embedding_dimension(rows)), reason)


def _of_numbers(column: ColumnInspection) -> Suggestion:
    steps, reasons = [], ["numbers"]
    if _are_some_missing(column):
        steps.append("ops.FillMissing(0)" if column.is_list else "ops.FillMedian()")
        reasons.append("some missing")
    if _is_long_tailed(column):
        steps.append("ops.LogOp()")
        reasons.append("a long tail")
    return Suggestion(" >> ".join([*steps, "ops.Normalize()"]), None, ", ".join(reasons))


def _are_some_missing(column: ColumnInspection) -> bool:
    return bool(column.nulls or column.null_elements or column.nans)


def _is_long_tailed(column: ColumnInspection) -> bool:
    """Whether the greatest percent of numbers from 0 begins at ten times the middle."""
    if not column.quantiles or column.quantiles[0] < 0:
        return False
    middle, high = column.quantiles[50], column.quantiles[99]
    return bool(high > 10 * max(middle, 1))
