"""Feature columns as a workflow that computes them, and as columns of its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from training.errors import TrainingError
from training.feature_columns.ids import KINDS, UNKNOWN, ids_of
from workflow import Tags, Workflow, ops
from workflow.expressions.language.tree import Expression, source
from workflow.expressions.language.types import ExpressionError, Type
from workflow.expressions.program.tracing import trace
from workflow.graph.node import Node, as_node

_WRAPPERS = ("EmbeddingColumn", "IndicatorColumn", "SharedEmbeddingColumn")


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
    feature_columns: Iterable[Any], label_name: str | Sequence[str] = ()
) -> FeatureColumnWorkflow:
    """Convert TensorFlow's feature columns: preprocessing to a workflow, the rest to the layers.

    The workflow's numbers are those of `tf.feature_column`, int64 ids and float32 numbers: identity,
    vocabularies (list and file), buckets, `default_value`, and a `normalizer_fn` of arithmetic or of
    numpy's functions. A missing value (null, an empty string, the integer -1) and one outside the
    vocabulary have the id -1, which the layers take as unknown. Differences:

    - Hashes are those of `ops.HashBucket`, not TensorFlow's Fingerprint64: ids of
      `categorical_column_with_hash_bucket`, `crossed_column` and `num_oov_buckets` are in the same
      ranges, but other ones. A network that was trained with TensorFlow's has to be trained again.
    - In a list, an element with the id -1 counts in a mean; TensorFlow leaves it out.
    - `DenseFeatures` concatenates embeddings, then indicators, then numbers, each as they are given;
      TensorFlow sorts all by name. A bucketized column needs an `indicator_column` or an
      `embedding_column` around it.

    Args:
        feature_columns: `numeric_column`, `bucketized_column`, the categorical columns with
            identity, vocabulary or hash, `crossed_column`, and `embedding_column`,
            `indicator_column` and `shared_embeddings` over these.
        label_name: columns that pass through unchanged, as targets.

    Raises:
        TrainingError: a column of another kind, a numeric column of several numbers, a vocabulary
            file that is missing or too short, settings that exclude each other, boundaries that do
            not ascend, a `normalizer_fn` that cannot be traced, or two different columns of one name.
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
    nodes = _Nodes()
    made = [nodes.of_column(column) for column in _listed(feature_columns)]
    labels = [label_name] if isinstance(label_name, str) else list(label_name)
    parts = list(nodes.outputs())
    if labels:
        parts.append(labels >> ops.AddTags([Tags.TARGET]))
    return FeatureColumnWorkflow(Workflow(sum(parts[1:], parts[0])), made)


def _listed(columns: Any) -> list[Any]:
    found = [columns] if isinstance(columns, tuple) and hasattr(columns, "name") else columns
    found = list(found) if isinstance(found, Iterable) and not isinstance(found, str) else [found]
    if not found:
        raise TrainingError("Expected a tf.feature_column object or more. Received: [].")
    return found


class _Nodes:
    """The nodes of a workflow by the names of the feature columns, each with its column."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[Any, Node]] = {}

    def outputs(self) -> Iterator[Node]:
        """The node of each column."""
        return (node for _, node in self._found.values())

    def of_column(self, column: Any) -> Any:
        """Add a column's node; return the feature column over its output."""
        kind = type(column).__name__
        if kind == "NumericColumn":
            _expect_single(column)
            self._add(column.name, column, lambda: _number(column))
            return tf.feature_column.numeric_column(column.key, column.shape)
        if kind in _WRAPPERS:
            return column._replace(categorical_column=self._ids(column.categorical_column))
        return self._ids(column)

    def _ids(self, column: Any) -> Any:
        self._add(column_name(column), column, lambda: ids_node(column))
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


def _expect_single(column: Any) -> None:
    """Refuse vectors of numbers: the loader would give a list, and the server take one of any length.

    Raises:
        TrainingError: the shape is not (1,).
    """
    if tuple(column.shape) != (1,):
        raise TrainingError(
            f"Expected numeric columns of single numbers, shape (1,). Received: {column.key!r} of shape "
            f"{tuple(column.shape)}. Make a column of each number in the data, as with "
            f"frame[{column.key!r}].list.to_struct() in Polars, and a numeric_column of each."
        )


def column_name(column: Any) -> str:
    """The name of a column of ids.

    Raises:
        TrainingError: a column of another kind.
    """
    if type(column).__name__ not in {*KINDS, "BucketizedColumn", "CrossedColumn"}:
        raise TrainingError(
            "Expected numeric, bucketized, identity, vocabulary, hashed and crossed columns of "
            "tf.feature_column, and embedding, indicator and shared embedding columns over them. "
            f"Received: {type(column).__name__}{_named(column)}."
        )
    return str(column.name)


def _named(column: Any) -> str:
    if hasattr(column, "parse_example_spec"):
        return f" {column.name!r}. Compute it in the data or by operators of workflow.ops"
    return f" {column!r:.100}"


def ids_node(column: Any) -> Node:
    """The node that computes a column of ids.

    Raises:
        TrainingError: as `make_feature_column_workflow`.
    """
    kind, name = type(column).__name__, column_name(column)
    if kind == "BucketizedColumn":
        node = _buckets(column)
    elif kind == "CrossedColumn":
        node = _cross(column)
    else:
        node = [column.key] >> ops.LambdaOp(ids_of(column)[0])
    facts = {"cardinality": int(column.num_buckets)}
    return node >> ops.Rename(name=name) >> ops.AddMetadata([Tags.CATEGORICAL], facts)


def _buckets(column: Any) -> Node:
    """The ids of a bucketized column, which TensorFlow computes in float32."""
    numbers = column.source_column
    if tuple(numbers.shape) != (1,):
        raise TrainingError(
            f"Expected a bucketized column of single numbers, shape (1,). Received: {column.name!r} "
            f"of shape {tuple(numbers.shape)}. Make a column of each number."
        )
    boundaries = [float(np.float32(boundary)) for boundary in column.boundaries]
    if not all(low < high for low, high in pairwise(boundaries)):
        raise TrainingError(
            f"Expected boundaries of {column.name!r} that ascend, also as float32. "
            f"Received: {list(column.boundaries)!r:.200}."
        )
    return (
        _number(numbers)
        >> ops.Bucketize(boundaries)
        >> ops.LambdaOp(lambda bucket: bucket.fill_null(UNKNOWN).cast("int64"))
    )


def _cross(column: Any) -> Node:
    """The ids of a crossed column, of raw columns and of ids."""
    if column.hash_key is not None:
        raise TrainingError(
            f"Expected a crossed column without hash_key. Received: {column.name!r} with "
            f"hash_key={column.hash_key}. Leave it out: the hash is that of ops.HashedCross."
        )
    parts = [as_node(key) if isinstance(key, str) else ids_node(key) for key in column.keys]
    crossed = sum(parts[1:], parts[0]) >> ops.HashedCross(column.hash_bucket_size)
    return crossed >> ops.LambdaOp(lambda ids: ids.cast("int64"))


def _number(column: Any) -> Node:
    """Numbers as TensorFlow parses, normalises and casts them."""
    dtype = column.dtype.name

    def numbers(values: Expression) -> Expression:
        if values.type.kind not in ("int", "uint", "float", "bool"):
            raise ExpressionError(
                f"Expected numbers in column {column.key!r}. Received: {values.type}."
            )
        values = values.cast(dtype)
        if column.normalizer_fn is not None:
            values = column.normalizer_fn(values)
        return values.cast("float32")

    _expect_traceable(column, dtype)
    node = [column.key] >> ops.LambdaOp(numbers, tags=[Tags.CONTINUOUS])
    if column.default_value is None:
        return node
    return (
        [column.key]
        >> ops.FillMissing(_default(column))
        >> ops.LambdaOp(numbers, tags=[Tags.CONTINUOUS])
    )


def _default(column: Any) -> float:
    (value,) = np.ravel(column.default_value).tolist()
    return float(value)


def _expect_traceable(column: Any, dtype: str) -> None:
    if column.normalizer_fn is None:
        return
    try:
        trace(column.normalizer_fn, source(column.key, Type(dtype)))
    except ExpressionError as error:
        raise TrainingError(
            f"Expected a normalizer_fn of {column.key!r} of arithmetic and numpy's functions, such "
            "as lambda x: (x - 3.0) / 4.0 and numpy.log1p, which are traced to the workflow's "
            f"verbs. Received: {error} Replace functions of TensorFlow by numpy's."
        ) from error
