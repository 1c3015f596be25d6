"""Models built from what the workflow knows of its columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras

from training.errors import TrainingError
from training.layers import DenseFeatures
from workflow.embeddings import embedding_dimension
from workflow.schema import ColumnSchema, Schema, Tags
from workflow.wire import NNZS, VALUES

EmbeddingSizes = Mapping[str, tuple[int, int]]
IdDtype = str | tuple[str, str]

SCALAR_DTYPE = "int32"
LIST_DTYPES = ("int64", "int64")


def mlp(
    embedding_sizes: EmbeddingSizes | Sequence[EmbeddingSizes],
    continuous: Iterable[str] = (),
    *,
    hidden: Sequence[int] = (128, 128, 128),
    max_embedding_dim: int | None = None,
    id_dtypes: Mapping[str, IdDtype] | None = None,
    combiner: str = "mean",
    embeddings_initializer: Any = "uniform",
    dropout: float = 0.0,
    output_name: str = "output",
) -> keras.Model:
    """A multi-layer perceptron over embeddings, with one sigmoid output.

    The inputs are those that the loader feeds: `userId` (N, 1) for a single value, and for a
    list `genres` the pair `genres__values` (nnz, 1), `genres__nnzs` (N, 1), nested as
    `{"userId": ..., "genres": (values, nnzs)}`.

    Args:
        embedding_sizes: as `workflow.get_embedding_sizes` gives them: a dictionary of column
            name -> (cardinality, width) when all columns hold single values, else a pair of
            such dictionaries, of single values and of lists.
        continuous: names of float32 columns of shape (N, 1).
        hidden: the widths of the hidden layers, each with relu.
        max_embedding_dim: the widest that an embedding may be; narrower ones stay.
        id_dtypes: the dtypes of inputs that are not "int32" (single values) or
            ("int64", "int64") (values and row lengths of a list).
        combiner: how a list's vectors become one: "sum", "mean" or "sqrtn".
        embeddings_initializer: a Keras initializer for the tables.
        dropout: the share of each hidden layer's outputs dropped in training.
        output_name: the name of the output layer, and so of the served output.

    Returns:
        A functional model, not compiled.

    Raises:
        TrainingError: no columns, or a width, cardinality or dtype that makes no sense.

    Example:
        >>> model = mlp(({"userId": (162542, 512)}, {"genres": (21, 16)}), max_embedding_dim=32)
        >>> model.compile("adam", "binary_crossentropy")
    """
    scalars, lists = _split_sizes(embedding_sizes)
    continuous = list(continuous)
    dtypes = dict(id_dtypes or {})
    _check_known(dtypes, [*scalars, *lists])
    inputs: dict[str, Any] = {
        name: _scalar_input(name, dtypes.get(name, SCALAR_DTYPE)) for name in scalars
    }
    inputs |= {name: _list_input(name, dtypes.get(name, LIST_DTYPES)) for name in lists}
    inputs |= {name: _scalar_input(name, "float32") for name in continuous}
    features = DenseFeatures(
        _capped({**scalars, **lists}, max_embedding_dim),
        continuous,
        combiner,
        embeddings_initializer,
    )
    x = features(inputs)
    for width in hidden:
        x = keras.layers.Dense(width, activation="relu")(x)
        x = keras.layers.Dropout(dropout)(x) if dropout else x
    # In mixed precision the probabilities still have to be float32, for the loss and the server.
    output = keras.layers.Dense(1, activation="sigmoid", name=output_name, dtype="float32")(x)
    return keras.Model(inputs, output)


def mlp_from_schema(schema: Schema, **options: Any) -> keras.Model:
    """The `mlp` of the columns of a schema, with inputs of the schema's own dtypes.

    Columns tagged categorical are embedded, by their properties `cardinality` and, where there
    is one, `embedding_size` (else by the rule of `workflow.get_embedding_sizes`). Columns tagged
    continuous are taken as they are. Others, the target among them, are no inputs.

    Args:
        schema: the workflow's output schema.
        **options: those of `mlp` but for the columns; `id_dtypes` overrides the schema's.

    Raises:
        TrainingError: nothing is tagged, or a categorical column lacks its cardinality.

    Example:
        >>> model = mlp_from_schema(workflow.output_schema, max_embedding_dim=32)
    """
    features = schema.without(schema.tagged(Tags.TARGET).names)
    categorical = features.tagged(Tags.CATEGORICAL).columns
    continuous = features.tagged(Tags.CONTINUOUS).names
    scalars = {column.name: _size(column) for column in categorical if not column.is_list}
    lists = {column.name: _size(column) for column in categorical if column.is_list}
    dtypes: dict[str, IdDtype] = {name: schema[name].dtype for name in scalars}
    dtypes |= {name: (schema[name].dtype, LIST_DTYPES[1]) for name in lists}
    options["id_dtypes"] = dtypes | dict(options.get("id_dtypes") or {})
    return mlp((scalars, lists), continuous, **options)


def _size(column: ColumnSchema) -> tuple[int, int]:
    rows = column.properties.get("cardinality")
    if rows is None:
        raise TrainingError(
            f"Expected the categorical column {column.name!r} to have the property cardinality. "
            f"Received: {dict(column.properties)!r}. ops.Categorify sets it."
        )
    return rows, column.properties.get("embedding_size", embedding_dimension(rows))


def _split_sizes(
    sizes: EmbeddingSizes | Sequence[EmbeddingSizes],
) -> tuple[EmbeddingSizes, EmbeddingSizes]:
    if isinstance(sizes, Mapping):
        return sizes, {}
    if len(sizes) != 2 or not all(isinstance(part, Mapping) for part in sizes):
        raise TrainingError(
            "Expected embedding sizes as a dictionary, or as a pair of them (single values, "
            f"lists). Received: {sizes!r}."
        )
    return sizes[0], sizes[1]


def _capped(sizes: EmbeddingSizes, limit: int | None) -> EmbeddingSizes:
    if limit is None:
        return sizes
    return {name: (rows, min(width, limit)) for name, (rows, width) in sizes.items()}


def _check_known(dtypes: Mapping[str, IdDtype], names: Sequence[str]) -> None:
    unknown = [name for name in dtypes if name not in names]
    if unknown:
        raise TrainingError(
            f"Expected id_dtypes of embedded columns: {', '.join(names)}. "
            f"Received: {', '.join(unknown)}."
        )


def _scalar_input(name: str, dtype: IdDtype) -> Any:
    if not isinstance(dtype, str):
        raise TrainingError(
            f"Expected one dtype for {name!r}, which holds single values. Received: {dtype!r}."
        )
    return keras.Input(shape=(1,), name=name, dtype=dtype)


def _list_input(name: str, dtypes: IdDtype) -> tuple[Any, Any]:
    values, nnzs = (dtypes, LIST_DTYPES[1]) if isinstance(dtypes, str) else dtypes
    return _scalar_input(name + VALUES, values), _scalar_input(name + NNZS, nnzs)
