"""TensorFlow's feature columns as arguments of the layers, as in NVTabular's layers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from training.errors import TrainingError
from training.private import embedding_settings

# Operators of the workflow that replace a feature column.
_OPERATORS = (
    "training.make_feature_column_workflow makes a workflow of such columns, and columns of its "
    "ids for the layers; or write the operators: ops.Categorify, ops.HashBucket, ops.HashedCross, "
    "ops.Bucketize."
)


@dataclass
class FeatureColumns:
    """The content of feature columns, each kind in the given order.

    Attributes:
        sizes: column of an `embedding_column` or of `shared_embeddings` -> (cardinality, width).
        combiners: the same columns -> combiner.
        shared: columns of `shared_embeddings`, except the first -> the first of them.
        indicators: column of an `indicator_column` -> cardinality.
        ids: bare `categorical_column_with_identity` -> cardinality.
        numbers: `numeric_column` -> how many numbers a row has.
    """

    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    combiners: dict[str, str] = field(default_factory=dict)
    shared: dict[str, str] = field(default_factory=dict)
    indicators: dict[str, int] = field(default_factory=dict)
    ids: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)


def read_dense(columns: Iterable[Any]) -> FeatureColumns:
    """Embedding and indicator columns over identity columns, and numeric columns.

    Raises:
        TrainingError: a column of another kind, one with a property that the layer cannot honour,
            or a column twice.
    """
    facts = _read(columns)
    for name in facts.ids:
        raise TrainingError(
            "Expected embedding, indicator and numeric columns. Received: "
            f"IdentityCategoricalColumn {name!r}. Wrap it: tf.feature_column.embedding_column or "
            "indicator_column."
        )
    return facts


def read_linear(columns: Iterable[Any]) -> FeatureColumns:
    """Bare identity columns and numeric columns.

    Raises:
        TrainingError: as `read_dense`.
    """
    facts = _read(columns)
    for kind, names in (("EmbeddingColumn", facts.sizes), ("IndicatorColumn", facts.indicators)):
        for name in names:
            raise TrainingError(
                "Expected columns of categorical_column_with_identity, and numeric columns. "
                f"Received: {kind} of {name!r}. Give its categorical column as it is."
            )
    return facts


def _read(columns: Iterable[Any]) -> FeatureColumns:
    facts = FeatureColumns()
    names: set[str] = set()
    owners: dict[int, str] = {}
    for column in [columns] if isinstance(columns, str) else columns:
        name = _add(facts, column)
        if (creator := getattr(column, "shared_embedding_column_creator", None)) is not None:
            owner = owners.setdefault(id(creator), name)
            facts.shared |= {} if owner == name else {name: owner}
        if name in names:
            raise TrainingError(
                f"Expected each column once. Received twice: {name!r}. Use a layer for each."
            )
        names.add(name)
    return facts


def _add(facts: FeatureColumns, column: Any) -> str:
    """Add a column to `facts`; return its name in the data."""
    kind = type(column).__name__
    if kind == "NumericColumn":
        _expect(column.key, _objections_to_numbers(column))
        facts.numbers[column.key] = int(column.shape[0])
        return str(column.key)
    source = getattr(column, "categorical_column", column)
    if type(source).__name__ != "IdentityCategoricalColumn":
        raise TrainingError(_unknown(column, source))
    name, rows = str(source.key), int(source.number_buckets)
    _expect(name, _objections_to_ids(source))
    if kind == "EmbeddingColumn":
        _expect(name, _objections_to_embedding(column))
        facts.sizes[name] = (rows, column.dimension)
        facts.combiners[name] = column.combiner
    elif kind == "SharedEmbeddingColumn":
        settings = embedding_settings(column)
        _expect(name, _objections_to_embedding(settings))
        facts.sizes[name] = (rows, settings.dimension)
        facts.combiners[name] = column.combiner
    elif kind == "IndicatorColumn":
        facts.indicators[name] = rows
    elif column is source:
        facts.ids[name] = rows
    else:
        raise TrainingError(_unknown(column, column))
    return name


def _unknown(column: Any, source: Any) -> str:
    if not hasattr(column, "parse_example_spec"):
        return (
            "Expected a dictionary of column -> size, such as workflow.get_embedding_sizes gives, "
            f"or a list of tf.feature_column objects. Received: {column!r}."
        )
    return (
        "Expected feature columns over categorical_column_with_identity, and numeric columns. "
        f"Received: {type(source).__name__} of {column.name!r}. {_OPERATORS}"
    )


def _expect(name: str, objections: Iterator[tuple[str, str]]) -> None:
    for received, remedy in objections:
        raise TrainingError(
            "Expected feature columns that only say which columns there are and of what size. "
            f"Received: {received} of {name!r}. {remedy}"
        )


def _objections_to_numbers(column: Any) -> Iterator[tuple[str, str]]:
    if column.normalizer_fn is not None:
        yield "normalizer_fn", "Use ops.Normalize or ops.LambdaOp in the workflow."
    if column.default_value is not None:
        yield f"default_value={column.default_value}", "Use ops.FillMissing in the workflow."
    if len(column.shape) > 1:
        yield f"shape {column.shape}", "Use a vector, (k,), and reshape the layer's output."


def _objections_to_ids(source: Any) -> Iterator[tuple[str, str]]:
    if source.default_value is not None:
        yield (
            f"default_value={source.default_value}",
            "Ids out of range count as unknown; ops.Categorify gives unknown values an id.",
        )


def _objections_to_embedding(column: Any) -> Iterator[tuple[str, str]]:
    if column.max_norm is not None:
        yield "max_norm", "Leave it out: vectors are not clipped."
    if not column.trainable:
        yield (
            "trainable=False",
            "Put these columns into a separate layer and set its trainable to False.",
        )
    if column.ckpt_to_load_from is not None:
        yield "ckpt_to_load_from", "Use layer.embeddings.set_embedding_table(column, vectors)."
    if not _is_default(column.initializer, column.dimension):
        yield (
            "initializer",
            "Pass embeddings_initializer to the layer, which applies to all columns.",
        )


def _is_default(initializer: Any, width: int) -> bool:
    """Whether it is the default that TensorFlow gives an embedding column without initializer."""
    return (
        type(initializer).__name__ == "TruncatedNormal"
        and initializer.mean == 0
        and math.isclose(initializer.stddev, 1 / math.sqrt(width))
    )
