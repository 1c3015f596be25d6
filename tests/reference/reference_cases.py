"""Each operator with several settings, over the columns that it takes."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workflow import ops, where


@dataclass(frozen=True, eq=False)
class Case:
    """An operator at work.

    Attributes:
        operator: its name in `workflow.ops`.
        columns: what stands left of `>>`, names and groups, as the reference is given it.
        settings: as a user gives them; the reference has them too.
        plain: what the reference is given beside or instead, as a function in plain Python.
    """

    operator: str
    columns: Any
    settings: Mapping[str, Any] = field(default_factory=dict)
    plain: Mapping[str, Any] = field(default_factory=dict)

    @property
    def left(self) -> Any:
        """The columns as a graph."""
        if isinstance(self.columns, dict):
            return (self.columns["ids"] >> ops.Categorify()) + self.columns["others"]
        return self.columns

    @property
    def file(self) -> str:
        """The module of the reference."""
        if self.operator.startswith(("Add", "TagAs")):
            return "add_metadata"
        return "".join(f"_{c.lower()}" if c.isupper() else c for c in self.operator).lstrip("_")

    def made(self) -> Any:
        """The operator."""
        return getattr(ops, self.operator)(**self.settings)


WHOLE = ["user", "small", "short", "wide", "large"]
REAL = ["price", "ratio"]
LISTS = ["items", "tags", "marks", "scores"]
KEYS = ["user", "city", "flag", "small", "short", "wide", "large"]
COUNTABLE = [*KEYS, "items", "tags", "marks"]
SOME = ["city", "wide", "items", "tags"]
NUMBERS = ["user", "small", "large", *REAL, "items", "scores"]
PLAIN = [*KEYS, *REAL, *LISTS]
TIMES = ["at", "on", "there"]

# Some of the tables' integers are among the row numbers.
VECTORS = np.linspace(-1.5, 0.25, 400, dtype=np.float32).reshape(200, 2)
VECTORS[:3] = [[0.5, -1.5], [2.0, 3e38], [-0.0, 0.25]]
WORD_VECTORS = {
    "word": ["a", "\u00e9", ""],
    "vector": [[1.0, 2.0, 3.0], [0.5, 0.5, 0.5], [-1.0] * 3],
}
TOPICS = {
    "id": [-3, -3, -1, 0, 0, 0, 1, 2, 3, 5, 8, None],
    "topic": ["a", "b", "a", "c", "c", "é", None, "b", "", "a", "b", "a"],
    "weight": [1.0, 2.0, 0.5, 1.0, 1.5, 0.0, 1.0, 3.0, 1.0, -1.0, 0.25, 9.0],
}
WIDE_TOPICS = {"id": [0, 1, 2, 3, 4], "topics": [["a", "b"], ["b"], [], ["a", "c", "d"], None]}
MOVIES = {
    "key": [-2, 0, 1, 2, 3, None, 10, 2**40],
    "genres": [["x", None], [], None, ["y"], ["x", "y", "z"], ["q"], [""], ["é"]],
    "score": [0.5, math.nan, math.inf, None, -0.0, 1.0, 2.5, 3.0],
    "title": ["a", "", None, "日本", "b", "c", "d", "e"],
    "seen": [True, None, False, True, False, True, False, True],
    "shown": [dt.date(1969, 12, 31), None, *[dt.date(2024, 2, day) for day in range(24, 30)]],
    "codes": [[2**60, None], [], None, [7], [1, 2], [3], [4], [5]],
}
PLACES = {
    "name": ["é", "a", "é", "", None, "日本", "a", "b"],
    "open": [True, True, False, None, True, False, False, True],
    "size": [1, 2, 3, 4, 5, 6, 7, None],
    "kinds": [["x"], [], None, ["y", None], ["z"], ["x"], ["q"], ["é"]],
}
CITIES = {"name": ["é", "a", "é", "", None, "日本", "a"], "size": [1, 2, 3, 4, 5, 6, 7]}


def nullable(function: Any) -> Any:
    """A function of one value that knows no null."""
    return lambda value, _row: None if value is None else function(value)


def _logarithm(value: float) -> float:
    return math.log1p(value) if value > 0 else 0.0


def _city_or_tag(value, row):
    chosen = None if row["flag"] is None else row["city"] if row["flag"] else value
    return None if chosen is None else chosen == "a"


def _share(value: float | None, row: Mapping[str, Any]) -> float | None:
    if value is None or row["rating"] is None:
        return None
    return value / row["rating"] if row["rating"] else math.copysign(math.inf, value) * (value != 0)


ADDED = {"tags": ["mine"], "properties": {"unit": "EUR"}}

CASES = [
    Case("AddMetadata", PLAIN, ADDED),
    Case("AddTags", [*PLAIN, *TIMES], {"tags": ["mine", "yours"]}),
    Case("AddProperties", PLAIN, {"properties": {"unit": "EUR", "n": 3}}),
    Case("TagAsItemFeatures", PLAIN),
    Case("TagAsItemID", ["user"]),
    Case("TagAsUserFeatures", PLAIN),
    Case("TagAsUserID", ["user"]),
    Case("Bucketize", NUMBERS, {"boundaries": [0, 1, 10]}),
    Case("Bucketize", ["user", "price"], {"boundaries": {"user": [2], "price": [-0.5, 0.1]}}),
    Case(
        "Bucketize",
        ["wide", "scores"],
        {"boundaries": lambda _name: [n / 4 for n in range(-60, 60)]},
    ),
    Case("Bucketize", WHOLE, {"boundaries": [-(2**63), -128, 127, 2**53 + 1, 2**63 - 1]}),
    Case("Categorify", COUNTABLE),
    Case("Categorify", SOME, {"freq_threshold": 3}),
    Case("Categorify", SOME, {"max_size": 7, "dtype": "int32"}),
    Case("Categorify", SOME, {"max_size": 9, "num_buckets": 4, "freq_threshold": 2}),
    Case("Categorify", [*SOME, "large"], {"num_buckets": {"city": 3, "items": 2, "large": 5}}),
    Case("Categorify", SOME, {"split_out": 3, "single_table": True}),
    Case("Categorify", ["city", "user"], {"vocabs": {"city": ["é", "", "a"], "user": [3, -7]}}),
    Case("Categorify", [["user", "friend", "items"], "city"], {"freq_threshold": {"city": 2}}),
    Case("Categorify", [["city", "tags"]], {"name_sep": "+", "max_size": {"city+tags": 6}}),
    Case("Categorify", [["user", "city"], "city"], {"encode_type": "combo"}),
    Case("Categorify", [["flag", "city", "large"]], {"encode_type": "combo", "freq_threshold": 2}),
    Case("Categorify", [["user", "flag"]], {"encode_type": "combo", "num_buckets": 3}),
    Case("Categorify", TIMES, {"freq_threshold": 2}),
    Case("Categorify", [["on", "city"]], {"encode_type": "combo"}),
    Case("Clip", NUMBERS, {"min_value": 0, "max_value": 10}),
    Case("Clip", ["small", "scores"], {"min_value": 0.5}),
    Case("Clip", ["small", "scores"], {"max_value": 2.75}),
    Case("ColumnSimilarity", [["user", "friend"]], {"left_features": TOPICS}),
    Case("ColumnSimilarity", [["user", "friend"]], {"left_features": TOPICS, "metric": "inner"}),
    Case(
        "ColumnSimilarity",
        [["user", "small"], ["small", "user"]],
        {"left_features": TOPICS, "right_features": WIDE_TOPICS, "metric": "cosine"},
    ),
    Case("DataStats", PLAIN),
    Case("DatePart", ["at", "on"]),
    Case(
        "DatePart",
        ["at", "on"],
        {"parts": ["quarter", "dayofyear", "hour", "minute", "second", "weekday"]},
    ),
    Case("DatePart", ["user", "items"], {"parts": ["year", "day", "hour"], "unit": "D"}),
    Case("DatePart", ["user", "short"], {"parts": ["minute", "second"], "unit": "s"}),
    Case("DatePart", ["there"], {"parts": ["year", "month", "day", "hour", "weekday"]}),
    Case("DatePart", ["there"], {"parts": ["day", "hour"], "time_zone": "Asia/Kathmandu"}),
    Case("DifferenceLag", [*WHOLE, *REAL, "flag"], {"partition_cols": "city"}),
    Case(
        "DifferenceLag",
        ["price", "wide"],
        {"partition_cols": ["flag", "small"], "shift": [1, -1, 3]},
    ),
    Case("DropLowCardinality", {"ids": KEYS, "others": ["price", "tags"]}),
    Case(
        "DropLowCardinality",
        {"ids": ["user", "city"], "others": ["wide"]},
        {"min_cardinality": 11},
    ),
    Case("Dropna", PLAIN),
    Case("Dropna", ["city", *TIMES], {"subset": ["on", "there"]}),
    Case("Dropna", PLAIN, {"subset": "price"}),
    Case("Dropna", PLAIN, {"subset": ["tags", "city", "items"]}),
    Case("FillMedian", NUMBERS),
    Case("FillMedian", ["short", "scores"], {"add_binary_cols": True}),
    Case("FillMissing", [*NUMBERS]),
    Case("FillMissing", [*WHOLE, "items"], {"fill_val": 7, "add_binary_cols": True}),
    Case("FillMissing", [*REAL, "scores"], {"fill_val": -0.5}),
    Case("FillMissing", ["city", "tags"], {"fill_val": "é"}),
    Case("FillMissing", ["flag", "marks"], {"fill_val": True, "add_binary_cols": True}),
    Case(
        "Filter",
        [*PLAIN, *TIMES],
        {"f": lambda df: df["user"] > 3},
        {"plain": lambda row: row["user"] is not None and row["user"] > 3},
    ),
    Case(
        "Filter",
        PLAIN,
        {"f": lambda df: (df["city"] == "a") | df["flag"].is_null()},
        {"plain": lambda row: row["city"] == "a" or row["flag"] is None},
    ),
    Case(
        "Filter",
        PLAIN,
        {"f": lambda df: df["items"].list_length() > df["small"]},
        {"plain": lambda row: row["small"] is not None and len(row["items"]) > row["small"]},
    ),
    Case(
        "Groupby",
        ["city", *WHOLE, *REAL],
        {"groupby_cols": "city", "aggs": ["count", "nunique", "sum", "min", "max", "list"]},
    ),
    Case(
        "Groupby",
        ["city", "small", "price", "rating"],
        {
            "groupby_cols": ["city"],
            "aggs": {
                "small": ["mean", "std", "var", "median"],
                "rating": ["mean", "median", "var"],
                "price": ["median", "std"],
            },
        },
    ),
    Case(
        "Groupby",
        ["user", "flag", "small", "city", *LISTS],
        {
            "groupby_cols": ["flag", "user"],
            "sort_cols": ["small", "city"],
            "aggs": {"city": ["first", "last", "list"], "tags": ["first", "last", "count"]},
            "name_sep": "-",
        },
    ),
    Case(
        "Groupby",
        ["large", "city", "small"],
        {
            "groupby_cols": "city",
            "sort_cols": "small",
            "aggs": ["list", "first", "last"],
            "ascending": False,
        },
    ),
    Case(
        "Groupby",
        ["city", *TIMES],
        {
            "groupby_cols": "city",
            "aggs": ["list", "first", "last", "min", "max", "count", "nunique"],
        },
    ),
    Case(
        "Groupby",
        ["on", "there", "user"],
        {"groupby_cols": "on", "sort_cols": "there", "aggs": {"user": "list", "there": "last"}},
    ),
    Case("HashBucket", COUNTABLE, {"num_buckets": 10}),
    Case("HashBucket", ["city", "items"], {"num_buckets": {"city": 1, "items": 2**31 - 1}}),
    Case("HashBucket", ["city", "items", "user"], {"num_buckets": 99, "hash": "farmhash"}),
    Case("HashedCross", [["user", "city"], ["city", "user"]], {"num_buckets": 1000}),
    Case("HashedCross", [["city", "flag", "user"]], {"num_buckets": 1000, "hash": "farmhash"}),
    Case("HashedCross", [["user", "tags"], ["items", "city", "flag"]], {"num_buckets": 1000}),
    Case("HashedCross", [["tags", "user"]], {"num_buckets": 1000, "hash": "farmhash"}),
    Case(
        "HashedCross",
        [["flag", "wide", "large"]],
        {"num_buckets": {"flag_X_wide_X_large": 2**31 - 1}},
    ),
    Case("JoinExternal", ["user", "tags"], {"df_ext": MOVIES, "on": "user", "on_ext": "key"}),
    Case(
        "JoinExternal",
        ["small", "price"],
        {"df_ext": MOVIES, "on": "small", "on_ext": "key", "columns_ext": ["codes", "title"]},
    ),
    Case(
        "JoinExternal",
        ["city"],
        {"df_ext": CITIES, "on": "city", "on_ext": "name", "drop_duplicates_ext": True},
    ),
    Case(
        "JoinExternal",
        ["city", "flag", "small"],
        {"df_ext": PLACES, "on": ["city", "flag"], "on_ext": ["name", "open"]},
    ),
    Case("PretrainedVectors", ["user", "small", "large"], {"table": VECTORS}),
    Case("PretrainedVectors", ["user", "short"], {"table": VECTORS, "ids": [*range(-60, 140)]}),
    Case("PretrainedVectors", ["city"], {"table": WORD_VECTORS, "ids": "word"}),
    Case("JoinGroupby", ["user", "city", "flag"]),
    Case(
        "JoinGroupby",
        ["user", "city"],
        {
            "cont_cols": ["rating", "small", "bought"],
            "stats": ["count", "sum", "mean", "std", "var", "min", "max"],
        },
    ),
    Case(
        "JoinGroupby",
        [["city", "flag"], "large"],
        {"cont_cols": ["wide", "price"], "stats": ["min", "max", "count"], "name_sep": "-"},
    ),
    Case(
        "LambdaOp",
        ["user", "price", "scores"],
        {"f": lambda c: (c > 1).cast("int8")},
        {"plain": nullable(lambda v: int(v > 1)), "dtype": "int8"},
    ),
    Case(
        "LambdaOp",
        ["user", "small", "price", "items"],
        {"f": lambda c: where(c > 0, c, 0).log1p(), "dtype": "float32"},
        {"plain": nullable(_logarithm)},
    ),
    Case(
        "LambdaOp",
        ["user", "items"],
        {
            "f": lambda c: c.fill_null(-1).clip(-5, 5) * 2 + c.fill_null(3) // 4 % 3,
            "dtype": "int64",
        },
        {
            "plain": lambda v, _row: (
                max(-5, min(5, -1 if v is None else v)) * 2 + (3 if v is None else v) // 4 % 3
            )
        },
    ),
    Case(
        "LambdaOp",
        ["price", "scores"],
        {"f": lambda c, df: c / df["rating"], "dependency": ["rating"], "dtype": "float64"},
        {"plain": _share},
    ),
    Case(
        "LambdaOp",
        ["city", "tags"],
        {"f": lambda c: (c == "a") | c.is_null()},
        {"plain": lambda v, _row: v in ("a", None), "dtype": "bool"},
    ),
    Case(
        "LambdaOp",
        ["tags"],
        {
            "f": lambda c, df: where(df["flag"], df["city"], c) == "a",
            "dependency": ["city", "flag"],
        },
        {"plain": _city_or_tag, "dtype": "bool"},
    ),
    Case("ListSlice", LISTS, {"start": 3}),
    Case("ListSlice", LISTS, {"start": -2}),
    Case("ListSlice", LISTS, {"start": 1, "end": -1}),
    Case("ListSlice", ["items"], {"start": -4, "pad": True, "pad_value": -1}),
    Case("ListSlice", ["tags"], {"start": 1, "end": 3, "pad": True, "pad_value": "?"}),
    Case("LogOp", NUMBERS),
    Case("Normalize", NUMBERS),
    Case("Normalize", ["wide", "price"], {"out_dtype": "float64"}),
    Case("NormalizeMinMax", NUMBERS),
    Case("NormalizeMinMax", ["wide", "price"], {"out_dtype": "float64"}),
    Case("ReduceDtypeSize", PLAIN),
    Case("ReduceDtypeSize", [*REAL, "scores", "wide"], {"float_dtype": "float64"}),
    Case("Rename", [*PLAIN, *TIMES], {"postfix": "_raw"}),
    Case("Rename", ["user", "friend", "city"], {"f": {"user": "friend", "friend": "user"}}),
    Case("Rename", LISTS, {"f": str.upper}),
    Case("Rename", ["price"], {"name": "cost"}),
    Case("TargetEncoding", ["user", "city", "large"], {"target": "rating"}),
    Case(
        "TargetEncoding",
        [["user", "city"], "flag"],
        {
            "target": ["rating", "bought"],
            "p_smooth": 2.5,
            "out_dtype": "float64",
            "kfold": 5,
            "fold_seed": 7,
        },
    ),
    Case(
        "TargetEncoding",
        [["city", "flag"]],
        {"target": "bought", "target_mean": 0.25, "p_smooth": 0, "out_col": "x"},
    ),
    Case("ValueCount", LISTS),
]


def named(cases: Sequence[Case]) -> list[str]:
    """A name for each case: the operator, and the how many-eth of its cases."""
    seen: dict[str, int] = {}
    names = []
    for case in cases:
        seen[case.operator] = seen.get(case.operator, 0) + 1
        names.append(f"{case.operator}-{seen[case.operator]}")
    return names
