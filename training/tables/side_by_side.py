"""Notes of the lookups in a table, for the exchange of its gradient."""

from __future__ import annotations

from dataclasses import dataclass

import keras
import tensorflow as tf

# For each column its first row and its number of rows.
Columns = tuple[tuple[int, int], ...]


def looked_up(table: keras.Variable, columns: Columns | None) -> None:
    """Note a lookup in a table.

    Args:
        table: the variable.
        columns: those whose ids are looked up side by side, so that the gradient has the row of each
            column for each row of the batch; None for lists.
    """
    noted = getattr(table, "looked_up_side_by_side", columns)
    table.looked_up_side_by_side = columns if noted == columns else None


def side_by_side_of(table: keras.Variable) -> Columns | None:
    """The columns that are looked up side by side, if there are no other lookups in the table."""
    return getattr(table, "looked_up_side_by_side", None)


@dataclass(frozen=True)
class LookedRows:
    """The gradient of rows that a worker has looked up in a table.

    Attributes:
        rows: their numbers, (n,), int64.
        values: (n, width).
        columns: those that were looked up side by side, of which all workers have as many rows; or the
            one of a list; None if they are unknown.
        is_list: whether workers may have different numbers of rows.
    """

    rows: tf.Tensor
    values: tf.Tensor
    columns: Columns | None = None
    is_list: bool = True
