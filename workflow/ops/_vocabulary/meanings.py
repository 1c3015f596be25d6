"""Meanings of the ids of a vocabulary."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from workflow.expressions.polars.series import as_times
from workflow.operator.feature import State

from .vocabulary import PADDING, Ids, Vocabulary

KINDS = pl.Enum(["padding", "null", "out of vocabulary", "value"])


def meanings(
    vocabulary: Vocabulary, ids: Ids, state: State, times: Mapping[str, str]
) -> pl.DataFrame:
    """The columns `id`, `kind` and `value`, with a row for each id in ascending order.

    The value is null if the kind is not "value"; the value of a combination is a struct.

    Args:
        vocabulary: the vocabulary.
        ids: the layout of its ids.
        state: its state.
        times: the kinds of those columns that are times.
    """
    table = vocabulary.table(state)
    table = table.with_columns(as_times(pl.col(name), times[name]) for name in table.columns)
    values = table.to_series() if table.width == 1 else table.to_struct()
    reserved = ["padding", "null"] + ["out of vocabulary"] * ids.buckets
    kinds = pl.Series(reserved, dtype=KINDS).extend_constant("value", ids.values)
    return pl.DataFrame(
        {
            "id": np.append(PADDING, np.arange(ids.null, ids.end)),
            "kind": kinds,
            "value": values.clear(len(reserved)).extend(values),
        }
    )
