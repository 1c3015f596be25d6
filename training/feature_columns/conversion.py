"""Feature columns as a workflow that computes them, and as columns of its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from training.errors import TrainingError
from training.feature_columns.ids import KINDS, ids_of
from training.feature_columns.numbers import numbers_of, width_of
from workflow import Tags, Workflow, ops
from workflow.graph.node import Node

_WRAPPERS = ("EmbeddingColumn", "IndicatorColumn", "SharedEmbeddingColumn")
_REMEDY = "Compute it in the data or by operators of workflow.ops"
_SEQUENCE = (
    "The layers make one vector of a list. Convert the column without a sequence, take its lists "
    "padded (sparse_as_dense=True of the loader), and embed them by keras.layers.Embedding"
)
_REMEDIES: Mapping[str, str] = {
    "WeightedCategoricalColumn": "The layers take no weights of ids. Give them the column without "
    "its weights, or embed the ids by keras.layers.Embedding and weigh them in the network",
    "SequenceCategoricalColumn": _SEQUENCE,
    "SequenceNumericColumn": _SEQUENCE,
}


class FeatureColumnWorkflow(NamedTuple):
    """The result of `make_feature_column_workflow`.

    Attributes:
        workflow: computes ids and numbers from raw columns; to be fitted.
        feature_columns: one for each given column, in the same order, over the workflow's columns:
            for `DenseFeatures`, `LinearFeatures` and the loader's `feature_columns`.
    """

    workflow: Workflow
    feature_columns: list[Any]


def make_feature_column_workflow(
    feature_columns: Iterable[Any],
    label_name: str | Sequence[str] = (),
    *,
    sparse: bool = False,
) -> FeatureColumnWorkflow:
    """Convert TensorFlow's feature columns: preprocessing to a workflow, the rest to the layers.

    The workflow's numbers are those of `tf.feature_column`, int64 ids and float32 numbers: identity,
    vocabularies (list and file) and `num_oov_buckets`, hashes, crosses with their `hash_key`,
    buckets, `default_value`, and a `normalizer_fn` of arithmetic or of numpy's functions. A network
    trained with TensorFlow keeps its tables. A missing value, one outside the vocabulary, and the
    cross of a missing value have the id -1, which the layers take as unknown.

    Null is missing. Of dense tensors, such as of a dictionary of arrays, TensorFlow takes an empty
    string and the integer -1 as missing too, except in a crossed column that names the data's
    column, and crosses categorical and bucketized columns before those of the data. Of sparse
    tensors, which `tf.io.parse_example` makes, it takes every value, and crosses columns in the
    given order. Differences:

    - NaN counts as a missing number; TensorFlow puts it into the last bucket.
    - The vector of the id -1 is zeros, as in TensorFlow, until `LinearFeatures`, or `DenseFeatures` with
      single ids, are trained with such ids, which TensorFlow leaves at zeros.
    - A crossed column takes no lists. In a list for a `numeric_column` of shape (k,) missing
      numbers are `default_value`, or else NaN, and those after the k-th are cut; TensorFlow refuses
      another number of them.
    - `DenseFeatures` concatenates embeddings, then indicators, then numbers, each as they are given;
      TensorFlow sorts all by name. A bucketized column needs an `indicator_column` or an
      `embedding_column` around it.

    Args:
        feature_columns: `numeric_column`, `bucketized_column`, the categorical columns with
            identity, vocabulary or hash, `crossed_column`, and `embedding_column`,
            `indicator_column` and `shared_embeddings` over these.
        label_name: columns that pass through unchanged, as targets.
        sparse: whether TensorFlow was given sparse tensors.

    Raises:
        TrainingError: a column of another kind, such as of weights or sequences, a numeric column
            whose shape has several dimensions, a vocabulary file that is missing or too short,
            settings that exclude each other, boundaries that do not ascend, a `normalizer_fn` that
            cannot be traced, or two different columns of one name.
        WorkflowError: raised by `fit` if the data lacks a column, or has it in another type.

    Example:
        >>> price = tf.feature_column.numeric_column("price")
        >>> city = tf.feature_column.categorical_column_with_vocabulary_list("city", ["b", "a"])
        >>> workflow, columns = make_feature_column_workflow(
        ...     [
        ...         tf.feature_column.embedding_column(city, 4),
        ...         tf.feature_column.bucketized_column(price, [1, 2]),
        ...     ]
        ... )
        >>> rows = {"city": ["a", "b", "z"], "price": [0.5, 2.0, 7.0]}
        >>> workflow.fit(rows).transform(rows).collect().to_dict(as_series=False)
        {'city': [1, 0, -1], 'price_bucketized': [0, 2, 2]}
    """
    nodes = _Nodes(sparse=sparse)
    columns = [nodes.of_column(column) for column in _listed(feature_columns)]
    is_one = isinstance(label_name, str) or not isinstance(label_name, Iterable)
    labels = [label_name] if is_one else list(label_name)
    parts = list(nodes.outputs())
    if labels:
        parts.append(labels >> ops.AddTags([Tags.TARGET]))
    return FeatureColumnWorkflow(Workflow(sum(parts[1:], parts[0])), columns)


def _listed(columns: Any) -> list[Any]:
    items = [columns] if isinstance(columns, tuple) and hasattr(columns, "name") else columns
    items = list(items) if isinstance(items, Iterable) and not isinstance(items, str) else [items]
    if not items:
        raise TrainingError("Expected a tf.feature_column object or more. Received: [].")
    return items


class _Nodes:
    """The nodes of a workflow by the names of the feature columns, each with its column."""

    def __init__(self, *, sparse: bool) -> None:
        self._sparse = sparse
        self._found: dict[str, tuple[Any, Node]] = {}

    def outputs(self) -> Iterator[Node]:
        """The node of each column."""
        return (node for _, node in self._found.values())

    def of_column(self, column: Any) -> Any:
        """Add a column's node; return the feature column over its output."""
        kind = type(column).__name__
        if kind == "NumericColumn":
            self._add(column.name, column, lambda: numbers_node(column))
            return tf.feature_column.numeric_column(column.key, column.shape)
        if kind in _WRAPPERS:
            return column._replace(categorical_column=self._ids(column.categorical_column))
        return self._ids(column)

    def _ids(self, column: Any) -> Any:
        self._add(column_name(column), column, lambda: ids_node(column, sparse=self._sparse))
        return tf.feature_column.categorical_column_with_identity(
            column.name, int(column.num_buckets)
        )

    def _add(self, name: str, column: Any, node: Callable[[], Node]) -> None:
        if name not in self._found:
            self._found[name] = column, node()
        elif self._found[name][0] != column:
            raise TrainingError(
                f"Expected one feature column of the name {name!r}. Received: "
                f"{type(self._found[name][0]).__name__} and {type(column).__name__} of different "
                "settings. Make a copy of the column in the data under another name."
            )


def column_name(column: Any) -> str:
    """The name of a column of ids.

    Raises:
        TrainingError: a column of another kind.
    """
    if type(column).__name__ not in KINDS:
        raise TrainingError(
            "Expected numeric, bucketized, identity, vocabulary, hashed and crossed columns of "
            "tf.feature_column, and embedding, indicator and shared embedding columns over them. "
            f"Received: {type(column).__name__}{_named(column)}."
        )
    return str(column.name)


def _named(column: Any) -> str:
    if hasattr(column, "parse_example_spec"):
        return f" {column.name!r}. {_REMEDIES.get(type(column).__name__, _REMEDY)}"
    return f" {column!r:.100}"


def ids_node(column: Any, *, sparse: bool) -> Node:
    """The node that computes a column of ids.

    Raises:
        TrainingError: as `make_feature_column_workflow`.
    """
    name, ids = column_name(column), ids_of(column, sparse=sparse)
    first, *other_keys = ids.keys
    of_rows = ops.LambdaOp(
        (lambda _, columns: ids(columns)) if other_keys else (lambda values: ids({first: values})),
        dependency=other_keys or None,
    )
    facts = {"cardinality": int(column.num_buckets)}
    return [first] >> of_rows >> ops.Rename(name=name) >> ops.AddMetadata([Tags.CATEGORICAL], facts)


def numbers_node(column: Any) -> Node:
    """The node that computes a column of numbers.

    Raises:
        TrainingError: as `make_feature_column_workflow`.
    """
    node: Node = [column.key] >> ops.LambdaOp(numbers_of(column), tags=[Tags.CONTINUOUS])
    if (width := width_of(column)) == 1:
        return node
    return node >> ops.AddMetadata([Tags.LIST], {"value_count": {"min": width, "max": width}})
