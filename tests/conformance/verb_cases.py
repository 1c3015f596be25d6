"""Every verb over every dtype that it takes, with the values at which libraries differ.

What hypothesis draws in the conformance suite is written out here, so that a machine which has
little more than a GPU can run it in a minute.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from workflow.expressions.language.tree import Expression, call, source
from workflow.expressions.language.types import ExpressionError, Type
from workflow.expressions.language.verbs import VERBS
from workflow.expressions.program.program import Program, build
from workflow.schema.column import Column, Strings
from workflow.schema.dtypes import DTYPES
from workflow.schema.schema import ColumnSchema, Schema

TEXTS = ["", "a", "b", "é", "日本", "a longer text, of more bytes than a word has"]
# Enough boundaries for a search, and distinct in every dtype.
MANY = 40


class VerbCase(NamedTuple):
    """A verb at work.

    Attributes:
        label: the verb, its parameters and its operands.
        verb: its name.
        program: applies it.
        columns: the program's inputs.
    """

    label: str
    verb: str
    program: Program
    columns: dict[str, Column]


def verb_cases(verbs: Iterable[str] = VERBS) -> Iterator[VerbCase]:
    """Each of some verbs over columns, beside a constant, over a list, and over a list beside rows."""
    for verb in verbs:
        for dtypes in itertools.product(DTYPES, repeat=VERBS[verb].arity):
            for is_list in (False, True):
                # Where dtypes meet is the same for elements as for scalars.
                if not is_list or len(set(dtypes)) == 1:
                    yield from _cases(verb, dtypes, is_list=is_list)


def _cases(verb: str, dtypes: Sequence[str], *, is_list: bool) -> Iterator[VerbCase]:
    # Of scalars, a constant beside them is tried where all dtypes are the same.
    alike = len(set(dtypes)) == 1 < len(dtypes)
    makers = [_columns, _constants] if alike else [_columns]
    if is_list:
        makers = [_constants, _mixed] if len(dtypes) > 1 else [_constants]
    for parameters in _parameters(verb, dtypes[0]):
        for make in makers:
            operands, columns = make(dtypes, is_list=is_list)
            try:
                result = call(verb, *operands, **parameters)
            except ExpressionError:
                continue  # a verb or parameters that are not for these dtypes
            sources = [o for o in operands if o.verb == "source"]
            inputs = Schema(_schema(o.parameters["name"], o.type) for o in sources)
            program = build([(_schema("out", result.type), result)], inputs)
            shown = {k: v for k, v in parameters.items() if not isinstance(v, Column)}
            label = f"{verb}({', '.join(str(o.type) for o in operands)}) {shown or ''}"
            yield VerbCase(label, verb, program, columns)


def hard_values(dtype: str) -> list[Any]:
    """The values of a dtype at which libraries differ, null among them."""
    info = DTYPES[dtype]
    if info.kind == "bool":
        return [False, True, None]
    if info.kind == "string":
        return [*TEXTS, None]
    if info.kind == "float":
        floats = np.finfo(info.numpy)
        edges = [np.nan, np.inf, -np.inf, float(floats.max), float(floats.min), float(floats.tiny)]
        near = [0.0, -0.0, 0.5, 1.0, -1.0, 1e-9, 49.0, 127.5]
        return [*edges, *near, 2.0**31, 2.0**63, -(2.0**63), 2.0**64, None]
    integers = np.iinfo(info.numpy)
    return [
        int(integers.min),
        int(integers.min) + 1,
        0,
        1,
        2,
        7,
        int(integers.max) - 1,
        int(integers.max),
        None,
    ]


def make_column(dtype: str, rows: Sequence[Any], *, is_list: bool = False) -> Column:
    """A column of Python values, None for null."""
    if is_list:
        elements = make_column(dtype, [e for row in rows for e in row or ()])
        lengths = np.array([len(row or ()) for row in rows], np.int64)
        return Column(elements.values, elements.valid, lengths)
    array = np.empty(len(rows), DTYPES[dtype].numpy)
    array[:] = [({"string": ""}.get(dtype, 0) if v is None else v) for v in rows]
    valid = np.array([v is not None for v in rows], bool)
    return Column(array, None if valid.all() else valid)


def _schema(name: str, type_: Type) -> ColumnSchema:
    return ColumnSchema(name, type_.dtype, type_.is_list, type_.nullable)


def _columns(dtypes: Sequence[str], *, is_list: bool) -> tuple[list[Expression], dict[str, Column]]:
    """Operands that are columns: each hard value beside each."""
    rows = list(itertools.product(*map(hard_values, dtypes)))
    names = "abc"[: len(dtypes)]
    values = zip(*rows, strict=True)
    columns = {
        n: make_column(d, v, is_list=is_list) for n, d, v in zip(names, dtypes, values, strict=True)
    }
    return [source(n, Type(d)) for n, d in zip(names, dtypes, strict=True)], columns


def _constants(
    dtypes: Sequence[str], *, is_list: bool
) -> tuple[list[Expression], dict[str, Column]]:
    """A column of hard values, and constants beside it."""
    values = hard_values(dtypes[0])
    # Null rows, empty rows, nulls among elements.
    rows = [None, [], values, [], *([v] for v in values), [None, None]] if is_list else values
    beside = {"string": "b", "bool": True}.get(DTYPES[dtypes[0]].kind, 7)
    others = [_constant(beside, dtype) for dtype in dtypes[1:]]
    column = make_column(dtypes[0], rows, is_list=is_list)
    return [source("a", Type(dtypes[0], is_list)), *others], {"a": column}


def _mixed(dtypes: Sequence[str], **_: bool) -> tuple[list[Expression], dict[str, Column]]:
    """Hard values of one a row, beside lists of hard values as the last operand."""
    values = hard_values(dtypes[0])
    rows = [None, [], *([value, values[0]] for value in values), values, [None, None]]
    before = [(values * 3)[place : place + len(rows)] for place in range(len(dtypes) - 1)]
    columns = {n: make_column(dtypes[0], b) for n, b in zip("abc", before, strict=False)}
    sources = [source(name, Type(dtypes[0])) for name in columns]
    lists = source("l", Type(dtypes[-1], is_list=True))
    return [*sources, lists], columns | {"l": make_column(dtypes[-1], rows, is_list=True)}


def _constant(value: Any, dtype: str) -> Expression:
    value = float(value) if DTYPES[dtype].kind == "float" else value
    return Expression("constant", (), {"value": value}, Type.of_constant(value, dtype))


def _parameters(verb: str, dtype: str) -> list[dict[str, Any]]:
    """The verb's own examples, with each table of its parameters' names."""
    made = {"keys": lambda: _keys(dtype), "table": _tables, "boundaries": lambda: _edges(dtype)}
    row = VERBS[verb]
    tables = itertools.product(*([(name, each) for each in made[name]()] for name in row.tables))
    return [{**example, **dict(own)} for own in tables for example in row.examples]


def _keys(dtype: str) -> list[Column]:
    """Tables to look values up in: none, some of the values, and many that lie far apart."""
    kind = DTYPES[dtype].kind
    if kind == "float":
        return []
    known = [value for value in hard_values(dtype) if value is not None][::2]
    if kind == "string":
        return [Column(Strings.of(texts)) for texts in ([], known)]
    tables = [known[:0], known]
    if kind != "bool" and DTYPES[dtype].numpy.itemsize >= 4:
        tables.append(known + [1_000_003 * n + 5 for n in range(500)])
    own = [make_column(dtype, list(dict.fromkeys(keys))) for keys in tables]
    return own if kind == "bool" else own + [_wide_keys(other) for other in ("int64", "uint64")]


def _wide_keys(dtype: str) -> Column:
    """Keys of another dtype than the values', the ends of both among them."""
    limits = np.iinfo(DTYPES[dtype].numpy)
    ends = [0, 1, 7, 255, 2**31 - 1, 2**63 - 1, int(limits.min), int(limits.max)]
    return make_column(dtype, list(dict.fromkeys(ends)))


def _tables() -> list[Column]:
    texts = Column(Strings.of(TEXTS), np.arange(len(TEXTS)) % 3 > 0)
    lists = make_column("int64", [[1, None], [], [2, 3], None], is_list=True)
    return [make_column("float32", [0.5, None, 2.0]), make_column("int8", [1, 2]), texts, lists]


def _edges(dtype: str) -> list[Column]:
    if DTYPES[dtype].kind in ("bool", "string"):
        return []
    many = np.unique(np.linspace(0, 120, MANY).astype(DTYPES[dtype].numpy))
    halves = Column(np.arange(MANY) - 3.5)
    return [make_column(dtype, [0, 1, 7]), Column(many), halves, Column(np.zeros(0, np.int64))]
