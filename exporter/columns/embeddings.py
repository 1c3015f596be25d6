"""Networks of another fit, and embeddings with fewer rows than the workflow has ids, or with more."""

from __future__ import annotations

from exporter.columns.served_columns import ServedColumns
from exporter.errors import ExportError
from training.column_facts.id_counts import id_count, too_small
from training.network.named_inputs import base_of
from training.network.nearest_items import NearestNetwork
from training.network.network import Columns, Network
from workflow import Workflow
from workflow.schema.names import listed
from workflow.schema.schema import Schema
from workflow.schema.tags import fits_of, other_fits
from workflow.wire.request_rules import VALUES


def id_counts(features: ServedColumns) -> dict[str, int]:
    """The number of ids of each column of ids, which start from 0."""
    counts = {column.name: id_count(column) for column in features.program.output_schema.columns}
    return {name: count for name, count in counts.items() if count}


def expect_room(network: Network, features: ServedColumns) -> None:
    """Check that the tables of a network have a row for each id of their columns.

    Args:
        network: the exported network, which knows the tables that it can determine.
        features: the preprocessing.

    Raises:
        ExportError: a table is too small.
    """
    counts = id_counts(features)
    for layer, name, rows in network.tables():
        column = _column_of(name, network.columns, features.program.output_schema)
        if rows < counts.get(column, 0):
            raise ExportError(
                too_small(column, counts[column], f"layer {layer!r} with {rows} rows.")
            )


def expect_same_fit(network: Network, workflow: Workflow) -> None:
    """Check that the network was trained on features of the workflow's fit, where it is known.

    Args:
        network: the exported network, which knows the fits that `train` has recorded.
        workflow: the exported workflow.

    Raises:
        ExportError: another fit has made the features; names the columns. Or another training has
            made the items' vectors.
    """
    made = workflow.output_schema
    recorded = {_column_of(n, network.columns, made): fit for n, fit in network.fits().items()}
    if differ := other_fits(recorded, fits_of(made.columns)):
        raise ExportError(
            "Expected the workflow whose fit has made the features that the network was trained on. "
            f"Received: one of another fit, in which ids or numbers of {listed(differ)} mean something "
            "else. Export the workflow that transformed the training data, as it was saved then, or "
            "train again on what this one transforms. If the values mean the same: "
            "ServingOptions(other_fit=True), in a shell --option other_fit=True."
        )
    if isinstance(network, NearestNetwork) and network.are_items_stale():
        raise ExportError(
            "Expected items whose vectors were written with the model whose query's tower is exported. "
            "Received: vectors of another training, which this tower's vectors cannot be compared "
            "with. Write them again with training.retrieval.write_item_vectors. If only the query's "
            "tower was trained since: ServingOptions(other_fit=True), in a shell --option other_fit=True."
        )


def expect_own_names(network: Network, workflow: Workflow) -> None:
    """Check that a Keras model is served the columns on which it was trained.

    Keras is given columns by the keys of the model's dictionary of inputs, and a server by the names of
    the inputs. A workflow that makes both would serve another column without a word.

    Raises:
        ExportError: names the input and both columns.
    """
    keys = getattr(getattr(network, "tower", network), "keys", {})
    for name, key in keys.items():
        if {key, base_of(name)} <= {*workflow.output_schema}:
            raise ExportError(
                "Expected the network's inputs under their own names, since Keras is given columns by the keys of "
                f"its inputs, and a server by their names. Received: the input {name!r} under the key {key!r}, and a "
                f"workflow that makes both columns. Write keras.Input(..., name={key!r}), or say which column "
                f"feeds it: ServingOptions(columns={{{base_of(name)!r}: {key!r}}})."
            )


def spare_tables(network: Network, features: ServedColumns) -> tuple[str, ...]:
    """Tables with more rows than their columns have ids, as of a network that another workflow trained.

    Returns:
        A text for each: the column, its ids and the table's rows.
    """
    counts, made = id_counts(features), features.program.output_schema
    tables = [
        (_column_of(name, network.columns, made), layer, rows)
        for layer, name, rows in network.tables()
    ]
    return tuple(
        f"{column} ({counts[column]:,} ids, {rows:,} rows in {layer!r})"
        for column, layer, rows in tables
        if 0 < counts.get(column, 0) < rows
    )


def _column_of(name: str, columns: Columns, made: Schema) -> str:
    """The workflow's column for a network's own name of it, or of the values of its lists."""
    base = name.removesuffix(VALUES)
    column = str(columns.get(name) or columns.get(base) or columns.get(base + VALUES, name))
    return column if column in made else column.removesuffix(VALUES)
