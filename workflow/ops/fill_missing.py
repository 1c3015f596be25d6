"""FillMissing: a fixed value instead of null."""

from __future__ import annotations

from dataclasses import dataclass

from workflow.operator import Feature, Features, Operator, State, require


@dataclass(frozen=True)
class FillMissing(Operator):
    """Replace nulls, and floats that are NaN, by a value.

    Args:
        fill_val: the value; it keeps the column's dtype.
        add_binary_cols: also make `<column>_filled`, bool, True where a value was missing.

    Lists: null elements are filled; a null list is an empty list before it comes here.

    Example:
        >>> filled = ["age"] >> FillMissing(0, add_binary_cols=True)
    """

    fill_val: bool | float | str = 0
    add_binary_cols: bool = False

    def __post_init__(self) -> None:
        require(
            isinstance(self.fill_val, bool | int | float | str),
            f"FillMissing needs a number, a bool or a string. Received: {self.fill_val!r}.",
        )

    def lower(self, columns: Features, state: State) -> Features:  # noqa: ARG002
        """The columns without nulls."""
        filled: Features = {}
        for name, feature in columns.items():
            column = feature.expression
            value = column.fill_null(self.fill_val)
            require(
                value.type.dtype == column.type.dtype,
                f"{self.fill_val!r} does not fit into column {name!r}, which is {column.type.dtype}.",
            )
            filled[name] = Feature.of(name, value, feature.schema)
            if self.add_binary_cols:
                filled[f"{name}_filled"] = Feature.of(
                    f"{name}_filled", column.is_null(), feature.schema
                )
        return filled
