"""Embeddings with fewer rows than the workflow has ids.

For an id beyond a table Keras raises an error on a CPU and returns zeros on a GPU, and the layers
of `training` return the vector for unknown ids; so the sizes are checked before anything runs.
"""

from __future__ import annotations

from exporter.columns.served_columns import ServedColumns
from exporter.errors import ExportError
from exporter.network.network import Columns, Network
from workflow.schema.schema import ColumnSchema
from workflow.wire.request_rules import VALUES


def id_counts(features: ServedColumns) -> dict[str, int]:
    """The number of ids of each column of ids, which start from 0."""
    counts = {column.name: _count(column) for column in features.program.output_schema.columns}
    return {name: count for name, count in counts.items() if count}


def _count(column: ColumnSchema) -> int:
    largest = column.properties.get("domain", {}).get("max")
    if not column.info.is_integer:
        return 0
    return int(column.properties.get("cardinality", 0) if largest is None else largest + 1)


def expect_room(network: Network, features: ServedColumns) -> None:
    """Check that the tables of a network have a row for each id of their columns.

    Args:
        network: the exported network, which knows the tables that it can determine.
        features: the preprocessing.

    Raises:
        ExportError: a table is too small.
    """
    counts = id_counts(features)
    for layer, own, rows in network.tables():
        column = _column_of(own, network.columns)
        if rows < counts.get(column, 0):
            raise ExportError(
                too_small(column, counts[column], f"layer {layer!r} with {rows} rows.")
            )


def spare_tables(network: Network, features: ServedColumns) -> tuple[str, ...]:
    """Tables with more rows than their columns have ids, as of a network that another workflow trained.

    Returns:
        A text for each: the column, its ids and the table's rows.
    """
    counts = id_counts(features)
    found = [
        (_column_of(own, network.columns), layer, rows) for layer, own, rows in network.tables()
    ]
    return tuple(
        f"{column} ({counts[column]:,} ids, {rows:,} rows in {layer!r})"
        for column, layer, rows in found
        if 0 < counts.get(column, 0) < rows
    )


def _column_of(own: str, columns: Columns) -> str:
    """The workflow's column for a network's own name of it."""
    return str(columns.get(own) or columns.get(own + VALUES, own)).removesuffix(VALUES)


def too_small(column: str, count: int, received: str) -> str:
    """The error text for a table that lacks rows for some of a column's ids.

    Args:
        column: the column of ids.
        count: the number of ids.
        received: a whole sentence.
    """
    return (
        f"Expected an embedding of {count} rows or more for {column!r}, whose ids are 0 to {count - 1}. "
        f"Received: {received} Take its input_dim from workflow.get_embedding_sizes, which "
        f"gives {count} for {column!r}, and train again."
    )
