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
        "number": lambda: _with_nulls(rng.normal(50, 20, size), rng),
    }
    return pl.Series(makers[kind]())


def _with_nulls(values: Array, rng: np.random.Generator) -> pl.Series:
    there = pl.Series(rng.random(len(values)) >= 0.05)
    return pl.select(pl.when(there).then(pl.Series(values))).to_series()


def _keys(table: int, kind: str = "id") -> pl.Series:
    return values_of(kind, np.arange(table), np.random.default_rng(0))


def _external(table: int, kind: str) -> pl.DataFrame:
    year = np.arange(table) % 100
    return pl.DataFrame({"a": _keys(table, kind), "year": year, "score": year / 7})


def _lists_of(table: int) -> pl.DataFrame:
    offsets = np.arange(0, 3 * table + 1, 3)
    genres = to_lists(pl.Series(np.arange(3 * table) % 20), offsets)
    return pl.DataFrame({"a": _keys(table), "genres": genres})


def _features(table: int) -> dict[str, Any]:
    return {"id": _keys(table), "feature": np.arange(table) % 1_000}


def _on_a(operator: Any) -> Make:
    return lambda _: ["a"] >> operator


def _operators() -> list[Case]:
    number, whole, ids, texts = ({"a": kind} for kind in ("number", "whole", "id", "text"))
    rated = {"a": "id", "rating": "number"}
    a = ("a",)
    tagging = (ops.TagAsItemFeatures, ops.TagAsItemID, ops.TagAsUserFeatures, ops.TagAsUserID)
    category, encoding = ops.Categorify, ops.TargetEncoding("rating")
    described = ops.JoinGroupby(["rating"], stats=["count", "mean", "std", "max"])
    combined = {"a": "id", "b": "whole"}
    lambda_op = ops.LambdaOp(lambda c: (c > 3).cast("float32") * c)
    pair = [["a", "b"]]
    return [
        Case("AddMetadata", _on_a(ops.AddMetadata(tags=["x"])), number, lists=a),
        Case("AddProperties", _on_a(ops.AddProperties({"x": 1})), number, lists=a),
        Case("AddTags", _on_a(ops.AddTags(["x"])), number, lists=a),
        *(Case(tag.__name__, _on_a(tag()), ids, lists=a) for tag in tagging),
        Case("Bucketize", lambda n: ["a"] >> ops.Bucketize(_edges(n)), number, lists=a, table=True),
        Case("Categorify", _on_a(category()), ids, "integers", a, table=True),
        Case("Categorify", _on_a(category()), texts, "strings", a, table=True),
        Case("Categorify", _on_a(category(num_buckets=100)), texts, "buckets", a, table=True),
        Case(
            "Categorify", lambda _: pair >> category(), {"a": "id", "b": "id"}, "joint", ("a", "b")
        ),
        Case("Categorify", lambda _: pair >> category(encode_type="combo"), combined, "combo"),
        Case("Clip", _on_a(ops.Clip(10, 90)), number, lists=a),
        Case(
            "ColumnSimilarity",
            lambda n: pair >> ops.ColumnSimilarity(_features(n)),
            {"a": "id", "b": "id"},
            table=True,
        ),
        Case("DataStats", _on_a(ops.DataStats()), number, "floats", a),
        Case("DataStats", _on_a(ops.DataStats()), ids, "integers", a, table=True),
        Case("DatePart", _on_a(ops.DatePart(["year", "month", "hour"])), {"a": "time"}, lists=a),
        Case(
            "DifferenceLag",
            lambda _: ["rating"] >> ops.DifferenceLag("a"),
            rated,
            table=True,
            row_by_row=False,
        ),
        Case("DropLowCardinality", _on_a(ops.DropLowCardinality(2)), whole, lists=a),
        Case("Dropna", _on_a(ops.Dropna()), number, row_by_row=False),
        Case("FillMedian", _on_a(ops.FillMedian()), number, lists=a),
        Case("FillMissing", _on_a(ops.FillMissing(0)), number, lists=a),
        Case("Filter", _on_a(ops.Filter(lambda df: df["a"] > 50)), number, row_by_row=False),
        Case(
            "Groupby",
            lambda _: ["a", "rating"] >> ops.Groupby("a", aggs={"rating": ["list", "mean"]}),
            rated,
            table=True,
            row_by_row=False,
        ),
        Case("HashBucket", _on_a(ops.HashBucket(1_000)), ids, "integers", a),
        Case("HashBucket", _on_a(ops.HashBucket(1_000)), texts, "strings", a),
        Case("HashBucket", _on_a(ops.HashBucket(1_000, hash="farmhash")), texts, "farmhash", a),
        Case("HashedCross", lambda _: pair >> ops.HashedCross(1_000), combined),
        Case("JoinExternal", _join("id"), ids, "integers", a, table=True),
        Case("JoinExternal", _join("text"), texts, "strings", a, table=True),
        Case(
            "JoinExternal",
            lambda n: ["a"] >> ops.JoinExternal(_lists_of(n), on="a", columns_ext=["genres"]),
            ids,
            "lists in the table",
            table=True,
        ),
        Case("PretrainedVectors", _vectors, ids, "integers", table=True),
        Case("JoinGroupby", _on_a(described), rated, table=True),
        Case("LambdaOp", _on_a(lambda_op), number, lists=a),
        Case("ListSlice", _on_a(ops.ListSlice(5)), number, lists=a, only_lists=True),
        Case(
            "ListSlice",
            _on_a(ops.ListSlice(-10, pad=True)),
            number,
            "padded",
            a,
            only_lists=True,
        ),
        Case("LogOp", _on_a(ops.LogOp()), number, lists=a),
        Case("Normalize", _on_a(ops.Normalize()), number, lists=a),
        Case("NormalizeMinMax", _on_a(ops.NormalizeMinMax()), number, lists=a),
        Case("ReduceDtypeSize", _on_a(ops.ReduceDtypeSize()), whole, lists=a),
        Case("Rename", _on_a(ops.Rename(postfix="_x")), number, lists=a),
        Case("TargetEncoding", _on_a(encoding), rated, table=True),
        Case(
            "TargetEncoding", lambda _: [["a", "b"]] >> encoding, rated | {"b": "whole"}, "groups"
        ),
        Case("ValueCount", _on_a(ops.ValueCount()), number, lists=a, only_lists=True),
    ]


def _join(kind: str) -> Make:
    return lambda n: ["a"] >> ops.JoinExternal(_external(n, kind), on="a")


def _vectors(n: int) -> Graph:
    return ["a"] >> ops.PretrainedVectors(np.zeros((n, 8), np.float32), ids=_keys(n))


def _edges(count: int) -> list[float]:
    return np.linspace(-50, 150, count).tolist()


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
        "boundaries": lambda: Column(np.linspace(-50, 150, table)),
    }
    row = VERBS[name]
    parameters = {**row.examples[0], **{each: made[each]() for each in row.tables}}

    def apply(column: Expression) -> Expression:
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
