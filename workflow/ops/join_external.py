"""JoinExternal: columns of another table, found by a key."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from workflow.data import as_lazy_frame
from workflow.expressions.series import to_column, to_series
from workflow.operator import Feature, Features, Operator, Partials, State, require
from workflow.schema import Schema


@dataclass(frozen=True)
class JoinExternal(Operator):
    """Add columns of an external table to each row, by a key: a left join.

    Args:
        df_ext: the table: a Polars or pandas frame, a dict of columns, or a path to parquet.
        on: the name of the key among the input columns.
        on_ext: the name of the key in the table, where it differs.
        columns_ext: the table's columns to add (the key may be among them, as NVTabular asks);
            by default all.
        drop_duplicates_ext: keep the first row of each key; without it a key that occurs twice
            is an error, since a row to be served has one answer.

    A key that the table does not have, or null, gives null, and an empty list in a list column.
    The input columns stay.

    Example:
        >>> movies = pl.DataFrame({"movieId": [1, 2], "genres": [["Comedy"], []]})
        >>> joined = ["movieId"] >> JoinExternal(movies, on="movieId")
    """

    df_ext: Any = dataclasses.field(repr=False, compare=False)
    on: str
    on_ext: str | None = None
    columns_ext: Sequence[str] | None = None
    drop_duplicates_ext: bool = False

    learns: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require(
            isinstance(self.on, str),
            f"JoinExternal needs one key column in `on`. Received: {self.on!r}.",
        )

    def partial(self, frame: pl.LazyFrame, columns: Schema) -> Partials:  # noqa: ARG002
        """Nothing is learnt from the data, only that the key is there."""
        require(
            self.on in columns,
            f"The key {self.on!r} is not among the input columns {', '.join(columns)}.",
        )
        return {}

    def merge(self, partials: Partials, columns: Schema) -> Partials:  # noqa: ARG002
        """Nothing to merge."""
        return partials

    def finish(self, partials: Mapping[str, pl.DataFrame], columns: Schema) -> State:  # noqa: ARG002
        """The table's columns, the key as `key`, the others as `column.<name>`."""
        table = as_lazy_frame(self.df_ext).collect()
        key = self.on_ext or self.on
        names = [name for name in (self.columns_ext or table.columns) if name != key]
        for name in (key, *names):
            require(
                name in table.columns,
                f"The external table has no column {name!r}. It has: {', '.join(table.columns)}.",
            )
        table = table.select(key, *names).drop_nulls(key)
        if self.drop_duplicates_ext:
            table = table.unique(key, keep="first", maintain_order=True)
        twice = table.filter(pl.col(key).is_duplicated())[key]
        require(
            twice.is_empty(),
            f"{twice.n_unique()} keys of the external table occur more than once, for example {twice.head(1).to_list()}. "
            "Set drop_duplicates_ext=True to keep the first row of each.",
        )
        floats = [c for c, t in table.schema.items() if t.is_float()]
        table = table.with_columns(pl.col(floats).fill_nan(None))
        state = {"key": to_column(table[key], compact_strings=True)}
        return state | {
            f"column.{name}": to_column(table[name], compact_strings=True) for name in names
        }

    def lower(self, columns: Features, state: State) -> Features:
        """The input columns and, by the key's row in the table, the table's."""
        row = columns[self.on].expression.lookup(state["key"])
        joined = dict(columns)
        for key, table in state.items():
            if key != "key":
                name = key.removeprefix("column.")
                require(
                    name not in columns,
                    f"Column {name!r} is in the data and in the external table. Drop one.",
                )
                joined[name] = Feature.of(name, row.gather(table))
        return joined

    def to_config(self, columns: Features) -> dict[str, Any]:
        """The configuration without the table, which is in the state."""
        config = super().to_config(columns)
        del config["df_ext"]
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any], state: State) -> JoinExternal:
        """The operator, its table made of the state, so that it can be fitted again."""
        key = config["on_ext"] or config["on"]
        names = {k: key if k == "key" else k.removeprefix("column.") for k in state}
        return cls(
            pl.DataFrame([to_series(column, names[k]) for k, column in state.items()]), **config
        )
