"""Common parts of operators that learn numbers for each column."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from workflow.operator.checks import expect_state, require
from workflow.operator.feature import State
from workflow.schema.names import listed


def expect_numbers_of_columns(
    state: State, keys: Sequence[str], columns: Collection[str]
) -> list[list[float]]:
    """The numbers in a state with one float64 for each column under each key.

    Returns:
        The numbers by key, in the columns' order.

    Raises:
        WorkflowError: the state belongs to other columns, or to another operator.
    """
    expect_state(state, keys)
    for column in state.values():
        plain = column.valid is None and column.lengths is None
        require(
            plain and column.rows == len(columns) and column.array.dtype == np.float64,
            f"Expected one float64 for each of {listed(columns)}.",
        )
    return [state[key].array.tolist() for key in keys]
