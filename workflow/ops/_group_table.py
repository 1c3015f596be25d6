"""Tables with one row for each group of keys, found by lookup and gather expressions.

A key of one column is looked up among its distinct values; null is a group like any other. With
more columns each is looked up, the positions i and j are combined to i * n + j, which is looked up
among the occurring combinations, and so on with the next column; so numbers never exceed rows times
distinct values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import polars as pl

from workflow.expressions.language.tree import Expression, source
from workflow.expressions.language.types import Type
from workflow.expressions.polars.series import to_column
from workflow.expressions.polars.stages import apply
from workflow.expressions.program.program import build
from workflow.operator.checks import require
from workflow.operator.feature import Feature, Features, Groups, Keyed, Partials, State
from workflow.schema.column import Array, Column
from workflow.schema.schema import ColumnSchema, Schema

from ._times import TIME

# Positions of values: null counts as a value, while values not seen in fit share one position.
NULL, UNSEEN, FIRST = 0, 1, 2


def expect_keys(label: str, groups: Groups, columns: Schema | Features) -> None:
    """Refuse columns that cannot be looked up.

    Raises:
        WorkflowError: a key is a list or a float.
    """
    for name in dict.fromkeys(name for group in groups for name in group):
        entry = columns[name]
        column = entry if isinstance(entry, ColumnSchema) else entry.schema
        require(
            not column.is_list,
            f"{label} groups by one value a row. Received: column {name!r}, {column}. Give each "
            f"element its own row before fit, as with frame.explode({name!r}) in Polars, or "
            f"leave {name!r} to Categorify and an embedding.",
        )
        require(
            column.info.kind != "float",
            f"{label} groups by integers, booleans or strings. Received: column {name!r}, {column}. "
            "Use Bucketize for numbers.",
        )


def tables_of(groups: Groups) -> dict[str, tuple[str, ...]]:
    """The groups by the names of their tables, which are prefixes in a state.

    Example:
        >>> tables_of((("userId", "genre"), ("userId",)))
        {'group0': ('userId', 'genre'), 'group1': ('userId',)}
    """
    return {f"group{number}": group for number, group in enumerate(groups)}


def key_names(group: Sequence[str]) -> list[str]:
    """Names of a group's columns in its tables, whatever their original names are."""
    return [f"key{number}" for number in range(len(group))]


def keyed_groups(groups: Groups) -> dict[str, Keyed]:
    """The tables of groups, as `Operator.keyed_tables` describes them."""
    return {name: Keyed(tuple(key_names(group))) for name, group in tables_of(groups).items()}


def key_columns(group: Sequence[str]) -> list[pl.Expr]:
    """The columns of a group as the keys of a table."""
    return [pl.col(n).alias(k) for n, k in zip(group, key_names(group), strict=True)]


def keys_state(
    prefix: str, group: Sequence[str], table: pl.DataFrame
) -> tuple[State, pl.DataFrame]:
    """State for finding the rows of a table.

    Args:
        prefix: prefix of the names in the state.
        group: the columns of the key.
        table: one row for each group, its keys named by `key_names`.

    Returns:
        The state, and the table in the order of the rows that `find_row` returns.
    """
    state: dict[str, Column] = {}
    row = np.zeros(table.height, np.int64)
    for number, name in enumerate(key_names(group)):
        values = table[name].drop_nulls().unique().sort()
        state[f"{prefix}.{name}"] = to_column(values, compact_strings=True)
        place = _positions(table[name], values)
        if number:
            row = row * (len(values) + FIRST) + place
            pairs, place = np.unique(row, return_inverse=True)
            state[f"{prefix}.{name}.pairs"] = Column(pairs)
            row = place + FIRST
        else:
            # In a key of one column null has the last row.
            row = np.where((place == NULL) & (len(group) == 1), len(values) + FIRST, place)
    return state, table[np.argsort(row, kind="stable")]


def key_rows(prefix: str, group: Sequence[str], state: State) -> list[Array]:
    """The indexes of each key's distinct values in the rows of a table: the inverse of `keys_state`.

    Args:
        prefix: prefix of the names in the state.
        group: the columns of the key, without nulls in the table.
        state: a result of `keys_state`, possibly read from a file.

    Raises:
        WorkflowError: the state does not describe such a table.
    """
    names = key_names(group)
    rows = np.arange(state[key_state_names(prefix, group)[-1]].rows)
    indexes: list[Array] = []
    for name in reversed(names[1:]):
        values, pairs = state[f"{prefix}.{name}"], state[f"{prefix}.{name}.pairs"]
        _expect_places(rows, pairs.rows)
        before, place = np.divmod(pairs.array[rows], values.rows + FIRST)
        _expect_places(place - FIRST, values.rows)
        indexes.append(place - FIRST)
        rows = before - FIRST
    _expect_places(rows, state[f"{prefix}.{names[0]}"].rows)
    return [rows, *reversed(indexes)]


def _expect_places(places: Array, count: int) -> None:
    inside = places.dtype.kind in "iu" and bool(np.all((places >= 0) & (places < count)))
    require(inside, "Expected a state in which each row of a table has a value of each key.")


def _positions(series: pl.Series, values: pl.Series) -> Array:
    if series.equals(values):  # a table in the order of its key
        return np.arange(FIRST, FIRST + len(values))
    places = pl.Series(np.arange(FIRST, FIRST + len(values)), dtype=pl.Int64)
    return series.replace_strict(values, places, default=NULL, return_dtype=pl.Int64).to_numpy()


def key_state_names(prefix: str, group: Sequence[str]) -> list[str]:
    """The names in a result of `keys_state`."""
    keys = key_names(group)
    return [f"{prefix}.{k}" for k in keys] + [f"{prefix}.{k}.pairs" for k in keys[1:]]


Lookup = Callable[[Expression, Column, int, int], Expression]


def look_up(value: Expression, keys: Column, first: int, missing: int) -> Expression:
    """`first` + the position of a value among the keys, or `missing`."""
    return value.lookup(keys, first=first, missing=missing)


def find_row(
    prefix: str,
    group: Sequence[str],
    columns: Features,
    state: State,
    rows: int,
    look_up: Lookup = look_up,
) -> Expression:
    """The row in a group's table for each row of the data, -1 for a group that the table lacks.

    Args:
        prefix: prefix of the names in the state.
        group: the columns of the key.
        columns: expressions and schemas of these columns.
        state: a result of `keys_state`.
        rows: the number of rows of the table.
        look_up: the expression for the position of a value among the keys of its column.
    """
    keys = [state[f"{prefix}.{key}"] for key in key_names(group)]
    values = [columns[name].expression for name in group]
    if len(group) == 1:
        null_row = rows - 1 if rows > keys[0].rows else -1
        return look_up(values[0], keys[0], 0, -1).fill_null(null_row)
    row, *places = (
        look_up(v, k, FIRST, UNSEEN).fill_null(NULL) for v, k in zip(values, keys, strict=True)
    )
    for number, place in enumerate(places, 1):
        combined = row * (keys[number].rows + FIRST) + place
        pairs = state[f"{prefix}.key{number}.pairs"]
        last = number == len(places)
        row = combined.lookup(pairs, first=0 if last else FIRST, missing=-1 if last else UNSEEN)
    return row


def rows_of(
    prefix: str,
    group: Sequence[str],
    table: pl.DataFrame,
    columns: Features,
    state: State,
    rows: int,
) -> Array:
    """The row in a group's table for each row of another table with the same keys."""
    schemas = Schema(columns[name].schema for name in group)
    sources = {c.name: Feature(source(c.name, Type(c.dtype)), c) for c in schemas.columns}
    row = find_row(prefix, group, sources, state, rows)
    program = build([(ColumnSchema("row", "int64"), row)], schemas)
    # The keys alone: another column of the table may have the name of one in the data.
    named = table.lazy().select(
        pl.col(k).alias(n) for k, n in zip(key_names(group), group, strict=True)
    )
    return apply(named, program).collect()["row"].to_numpy()


def merge_groups(
    partials: Partials,
    groups: Groups,
    merge: Callable[[Sequence[str], pl.DataFrame], pl.DataFrame],
) -> Partials:
    """The tables of several parts, with one row for each group.

    Args:
        partials: the parts, by table.
        groups: the groups of columns.
        merge: makes a row for each key, from the names of the keys and the rows of all parts.
    """
    return {
        prefix: merge(key_names(group), partials[prefix].collect(engine="in-memory")).lazy()
        for prefix, group in tables_of(groups).items()
        if prefix in partials
    }


def restrict_groups(state: State, groups: Groups, names: Iterable[str]) -> State:
    """The state of the groups that remain complete.

    Groups are numbered in the state, so the remaining ones get new numbers.
    """
    columns = set(names)
    prefixes = [name for name, group in tables_of(groups).items() if columns.issuperset(group)]
    places = dict(zip(prefixes, tables_of(groups), strict=False))
    remaining: dict[str, Column] = {}
    for name, column in state.items():
        table = name.removeprefix(TIME)
        number, _, rest = table.partition(".")
        if number in places:
            remaining[f"{TIME if table != name else ''}{places[number]}.{rest}"] = column
    return remaining


def check_tables(state: State, groups: Mapping[str, Sequence[str]], tables: Sequence[str]) -> None:
    """Check that every table in a state has as many rows as its keys.

    Raises:
        WorkflowError: an entry is missing, superfluous or has a wrong size.
    """
    names = {n for prefix, group in groups.items() for n in key_state_names(prefix, group)}
    names |= {f"{prefix}.{table}" for prefix in groups for table in tables}
    times = {f"{TIME}{prefix}.{table}" for prefix in groups for table in tables}
    require(
        names <= state.keys() <= names | times,
        f"Expected state for {', '.join(sorted(names))}. Received: {', '.join(state) or 'none'}.",
    )
    for prefix, group in groups.items():
        keys = state[key_state_names(prefix, group)[-1]].rows
        sizes = {state[f"{prefix}.{table}"].rows for table in tables}
        # A key of one column has a row for null if null occurred.
        allowed = {keys, keys + 1} if len(group) == 1 else {keys}
        require(
            len(sizes) == 1 and sizes <= allowed,
            f"Expected tables of {keys} rows for {', '.join(group)}. Received: {sorted(sizes)} rows.",
        )
