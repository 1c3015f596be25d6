"""The cases of `benchmarks.scaling`: every operator and every verb, and rows for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from workflow import ops
from workflow.expressions.language.tree import Expression, call, constant
from workflow.expressions.language.types import ExpressionError, Type
from workflow.expressions.language.verbs import VERBS, Verb
from workflow.expressions.polars.series import to_lists
from workflow.schema.column import Array, Column

# Elements of a list, on average.
LIST_LENGTH = 10
# Ids lie far apart, so that they are found by their hash and not by their address.
STRIDE = 1_000_003

Graph = Any
Make = Callable[[int], Graph]


@dataclass(frozen=True)
class Case:
    """An operator or a verb at work.

    Attributes:
        name: of the operator or the verb.
        make: the graph, by how many entries its vocabulary or table has.
        columns: kinds of values (`values_of`) by the names of the columns.
        label: tells apart the cases of one name.
        lists: the columns that hold lists in the list form; without any there is none.
        table: whether it has a vocabulary or a table whose size can be chosen.
        row_by_row: whether it can be served, and is measured in the numpy interpreter too.
        only_lists: whether it takes lists alone.
    """

    name: str
    make: Make
    columns: Mapping[str, str]
    label: str = ""
    lists: tuple[str, ...] = ()
    table: bool = False
    row_by_row: bool = True
    only_lists: bool = False

    @property
    def forms(self) -> tuple[str, ...]:
        """The forms of its columns."""
        if self.only_lists:
            return ("list",)
        return ("scalar", "list") if self.lists else ("scalar",)

    @property
    def title(self) -> str:
        """The name and the label."""
        return f"{self.name} {self.label}".strip()

    def rows(self, form: str, count: int, table: int) -> pl.DataFrame:
        """Rows of `count` values: in the list form a tenth as many rows."""
        return self._frame(form, count, lambda rng, size: rng.integers(0, table, size))

    def every(self, form: str, table: int) -> pl.DataFrame:
        """Rows in which each entry of the vocabulary occurs."""
        return self._frame(form, table, lambda _, size: np.arange(size) % table)

    def _frame(
        self, form: str, count: int, choose: Callable[[np.random.Generator, int], Array]
    ) -> pl.DataFrame:
        rng = np.random.default_rng(7)
        offsets = _offsets(rng, count)
        made = {}
        for name, kind in self.columns.items():
            in_list = form == "list" and name in self.lists
            size = count if in_list or form == "scalar" else len(offsets) - 1
            values = values_of(kind, choose(rng, size), rng)
            made[name] = to_lists(values, offsets) if in_list else values
        return pl.DataFrame(made)


def _offsets(rng: np.random.Generator, values: int) -> Array:
    lengths = rng.integers(LIST_LENGTH // 2, LIST_LENGTH * 3 // 2 + 1, -(-values // LIST_LENGTH))
    ends = np.minimum(np.cumsum(lengths), values)
    ends[-1] = values
    return np.concatenate([[0], ends]).astype(np.int64)


def values_of(kind: str, chosen: Array, rng: np.random.Generator) -> pl.Series:
    """Values of a kind; of ids and texts those that were chosen.

    Example:
        >>> values_of("text", np.array([0, 1]), np.random.default_rng(0)).to_list()
        ['value 00000000', 'value 00000001']
    """
    size = len(chosen)
    makers: Mapping[str, Callable[[], Any]] = {
        "id": lambda: chosen * STRIDE,
        "place": lambda: chosen,
        "text": lambda: "value " + pl.Series(chosen).cast(pl.String).str.zfill(8),
        "flag": lambda: rng.random(size) < 0.5,
        "time": lambda: pl.Series(rng.integers(0, 2**50, size)).cast(pl.Datetime("us")),
        "whole": lambda: rng.integers(1, 1_000, size),
        "number": lambda: pl.Series(rng.normal(50, 20, size)).set(
            pl.Series(rng.random(size) < 0.05), None
        ),
    }
    return pl.Series(makers[kind]())


def _keys(table: int, kind: str = "id") -> pl.Series:
    return values_of(kind, np.arange(table), np.random.default_rng(0))


def _on_a(operator: Any, columns: Mapping[str, str] | str, label: str = "", **more: Any) -> Case:
    """An operator on "a", of a kind and in any form, or of some columns, each one value a row."""
    make = lambda _: ["a"] >> operator  # noqa: E731
    if isinstance(columns, str):
        columns, more = {"a": columns}, more | {"lists": ("a",)}
    return Case(type(operator).__name__, make, columns, label, **more)


def _operators() -> list[Case]:
    rated, pairs = {"a": "id", "rating": "number"}, {"a": "id", "b": "id"}
    mixed, pair, category = {"a": "id", "b": "whole"}, [["a", "b"]], ops.Categorify
    by_user = ops.Groupby("a", aggs={"rating": ["list", "mean"]})
    described = ops.JoinGroupby(["rating"], stats=["count", "mean", "std", "max"])
    encoding = ops.TargetEncoding("rating")
    lag = ["rating"] >> ops.DifferenceLag("a")
    some = {"a": "number"}
    sets: dict[str, Any] = {"table": True, "lists": ("a",)}
    return [
        _on_a(ops.AddMetadata(tags=["x"]), "number"),
        _on_a(ops.AddProperties({"x": 1}), "number"),
        _on_a(ops.AddTags(["x"]), "number"),
        _on_a(ops.TagAsItemFeatures(), "id"),
        _on_a(ops.TagAsItemID(), "id"),
        _on_a(ops.TagAsUserFeatures(), "id"),
        _on_a(ops.TagAsUserID(), "id"),
        _on_a(ops.Clip(10, 90), "number"),
        _on_a(ops.DataStats(), "number", "floats"),
        _on_a(ops.DatePart(["year", "month", "hour"]), "time"),
        _on_a(ops.DropLowCardinality(2), "whole"),
        _on_a(ops.FillMedian(), "number"),
        _on_a(ops.FillMissing(0), "number"),
        _on_a(ops.HashBucket(1_000), "id", "integers"),
        _on_a(ops.HashBucket(1_000), "text", "strings"),
        _on_a(ops.HashBucket(1_000, hash="farmhash"), "text", "farmhash"),
        _on_a(ops.LambdaOp(lambda c: (c > 3).cast("float32") * c), "number"),
        _on_a(ops.LogOp(), "number"),
        _on_a(ops.Normalize(), "number"),
        _on_a(ops.NormalizeMinMax(), "number"),
        _on_a(ops.ReduceDtypeSize(), "whole"),
        _on_a(ops.Rename(postfix="_x"), "number"),
        _on_a(category(), "id", "integers", table=True),
        _on_a(category(), "text", "strings", table=True),
        _on_a(category(num_buckets=100), "text", "buckets", table=True),
        _on_a(ops.DataStats(), "id", "integers", table=True),
        _on_a(ops.ListSlice(5), "number", only_lists=True),
        _on_a(ops.ListSlice(-10, pad=True), "number", "padded", only_lists=True),
        _on_a(ops.ValueCount(), "number", only_lists=True),
        Case("Bucketize", lambda n: ["a"] >> ops.Bucketize(_edges(n).tolist()), some, **sets),
        Case("Categorify", lambda _: pair >> category(), pairs, "joint", ("a", "b")),
        Case("Categorify", lambda _: pair >> category(encode_type="combo"), mixed, "combo"),
        Case("ColumnSimilarity", _similarity, pairs, table=True),
        Case("DifferenceLag", lambda _: lag, rated, table=True, row_by_row=False),
        _on_a(ops.Dropna(), some, row_by_row=False),
        _on_a(ops.Filter(lambda df: df["a"] > 50), some, row_by_row=False),
        Case("Groupby", lambda _: [*rated] >> by_user, rated, table=True, row_by_row=False),
        Case("HashedCross", lambda _: pair >> ops.HashedCross(1_000), mixed),
        Case("JoinExternal", _join("id"), {"a": "id"}, "integers", **sets),
        Case("JoinExternal", _join("text"), {"a": "text"}, "strings", **sets),
        Case("JoinExternal", _join_lists, {"a": "id"}, "lists in the table", table=True),
        _on_a(described, rated, table=True),
        Case("PretrainedVectors", _vectors, {"a": "id"}, "integers", table=True),
        _on_a(encoding, rated, table=True),
        Case("TargetEncoding", lambda _: pair >> encoding, rated | mixed, "groups"),
    ]


def _similarity(n: int) -> Graph:
    features = {"id": _keys(n), "feature": np.arange(n) % 1_000}
    return [["a", "b"]] >> ops.ColumnSimilarity(features)


def _join_lists(n: int) -> Graph:
    genres = to_lists(pl.Series(np.arange(3 * n) % 20), np.arange(0, 3 * n + 1, 3))
    table = pl.DataFrame({"a": _keys(n), "genres": genres})
    return ["a"] >> ops.JoinExternal(table, on="a", columns_ext=["genres"])


def _join(kind: str) -> Make:
    def make(n: int) -> Graph:
        year = np.arange(n) % 100
        table = pl.DataFrame({"a": _keys(n, kind), "year": year, "score": year / 7})
        return ["a"] >> ops.JoinExternal(table, on="a")

    return make


def _vectors(n: int) -> Graph:
    return ["a"] >> ops.PretrainedVectors(np.zeros((n, 8), np.float32), ids=_keys(n))


def _edges(count: int) -> Array:
    return np.linspace(-50, 150, count)


# The kinds of columns, by the first type of these that a verb takes.
KINDS = {"float64": "number", "int64": "whole", "bool": "flag"}
# The kinds of columns that are looked up in a table, by its parameter.
KINDS_OF_TABLES = {"keys": "id", "table": "place", "boundaries": "number"}


def _kind(verb: Verb) -> str:
    """The kind of a verb's column: numbers, where it takes them."""
    for table in verb.tables:
        return KINDS_OF_TABLES[table]
    for dtype, kind in KINDS.items():
        operands = [Type(dtype, is_list=not verb.elementwise)] * verb.arity
        with contextlib.suppress(ExpressionError):
            verb.infer(operands, verb.examples[0])
            return kind
    return "number"


def _verb(name: str, table: int) -> Callable[[Expression], Expression]:
    made: dict[str, Callable[[], Column]] = {
        "keys": lambda: Column(_keys(table).to_numpy()),
        "table": lambda: Column(np.arange(table) / 7),
        "boundaries": lambda: Column(_edges(table)),
    }
    row = VERBS[name]
    parameters = {**row.examples[0], **{each: made[each]() for each in row.tables}}

    def apply(column: Expression) -> Expression:
        if row.repeats:
            return call(name, column.list_length(), column)
        try:
            return call(name, *[column] * row.arity, **parameters)
        except ExpressionError:  # the others have to be constants
            return call(name, column, *[constant(1.0)] * (row.arity - 1), **parameters)

    return apply


def _applied(name: str, table: int) -> Graph:
    return ["a"] >> ops.LambdaOp(_verb(name, table))


def _verbs() -> list[Case]:
    return [
        Case(
            name,
            partial(_applied, name),
            {"a": _kind(verb)},
            lists=("a",),
            table=bool(verb.tables),
            only_lists=not verb.elementwise,
        )
        for name, verb in VERBS.items()
    ]


OPERATORS = _operators()
VERB_CASES = _verbs()
