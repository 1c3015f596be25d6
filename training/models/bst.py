"""A Transformer over a user's behaviour."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras

from training.errors import TrainingError
from training.layers import SequenceEmbedding
from training.models.columns import LIST_DTYPES, Columns, Features, IdDtype, columns_of
from training.models.tower import assembled, check_widths, dense, embedded, probability
from workflow.schema.names import listed
from workflow.schema.python_number import takes_numpy_numbers, whole_number
from workflow.schema.schema import Schema
from workflow.schema.tags import part_of


@takes_numpy_numbers
def bst(
    features: Features,
    continuous: Iterable[str] = (),
    *,
    sequence: str,
    target: str,
    length: int | None = None,
    embedding_dim: int = 64,
    blocks: int = 1,
    heads: int = 8,
    hidden: Sequence[int] = (1024, 512, 256),
    max_embedding_dim: int | None = None,
    id_dtypes: Mapping[str, IdDtype] | None = None,
    combiner: str = "mean",
    embeddings_initializer: Any = "uniform",
    dropout: float = 0.0,
    output_name: str = "output",
    shard: str | None = None,
) -> keras.Model:
    """The Behavior Sequence Transformer: whether the target follows a sequence of items.

    Self-attention over the vectors of a user's items and of the target, with their positions; the
    result and the other columns' embeddings go to a multi-layer perceptron.

    The sequence is one input (N, L), padded with 0 at its end. `ops.ListSlice(-L, pad=True)` makes
    such a column, and the loader gives it with `sparse_names=[sequence], sparse_as_dense=True`.
    Sequence and target share a table, so they share a vocabulary too:
    `[["recent", "item"]] >> ops.Categorify(encode_type="joint")`.

    Source: Q. Chen et al., Behavior Sequence Transformer for E-commerce Recommendation in Alibaba,
    DLP-KDD 2019. Positions are distances in items, not in time.

    Args:
        features: as in `mlp`; so are the inputs of the other columns and further arguments.
        continuous: see `mlp`.
        sequence: the column of lists of items, the oldest first.
        target: the column of the item whose probability is the output.
        length: L; None for the length that the schema states, that of `ListSlice(pad=True)`.
        embedding_dim: the width of the items' vectors, a multiple of `heads`.
        blocks: the number of Transformer blocks.
        heads: the number of attention heads.
        hidden: the widths of the perceptron's hidden layers.
        max_embedding_dim: see `mlp`; of the other columns.
        id_dtypes: see `mlp`.
        combiner: see `mlp`.
        embeddings_initializer: see `mlp`.
        dropout: see `mlp`; applies in the blocks as well.
        output_name: see `mlp`.
        shard: how the tables are divided among workers: see `layers.EmbeddingCollection`.

    Returns:
        A functional model, not compiled.

    Raises:
        TrainingError: see `mlp`; also for a sequence that is no list, or of another vocabulary than
            the target, an unknown length, or a width that the heads cannot share.

    Example:
        >>> sizes = {"item": (500, 16), "user": (1000, 16)}, {"recent": (500, 16)}
        >>> model = bst(sizes, sequence="recent", target="item", length=20)
        >>> model.input["recent"].shape
        (None, 20)
    """
    columns = columns_of(features, continuous, id_dtypes)
    _expect_columns(columns, sequence, target)
    if isinstance(features, Schema):
        _expect_one_vocabulary(features, sequence, target)
    length = _length(features, sequence) if length is None else length
    _expect_sizes(length, embedding_dim, blocks, heads)
    check_widths(hidden, dropout, "hidden")
    extras = columns.only(
        n for n in (*columns.sizes, *columns.continuous) if n not in (sequence, target)
    )
    dtype = columns.dtypes.get(sequence, LIST_DTYPES)
    inputs = {
        **extras.inputs(),
        **columns.only([target]).inputs(),
        sequence: keras.Input(
            (length,), name=sequence, dtype=dtype if isinstance(dtype, str) else dtype[0]
        ),
    }
    x, present = SequenceEmbedding(
        columns.cardinalities[target],
        embedding_dim,
        length,
        embeddings_initializer,
        shard=shard,
        name="sequence",
    )(inputs[sequence], inputs[target])
    attended = keras.layers.Reshape((1, length + 1), name="attended")(present)
    for number in range(1, blocks + 1):
        x = _block(x, attended, heads, dropout, f"block_{number}")
    mask = keras.layers.Reshape((length + 1, 1), name="kept")(present)
    x = keras.layers.Multiply(name="present")([x, keras.ops.cast(mask, x.dtype)])
    x = keras.layers.Flatten(name="behavior")(x)
    if extras.sizes or extras.continuous:
        tensors = {name: inputs[name] for name in (*extras.sizes, *extras.continuous)}
        rest = embedded(
            extras, tensors, max_embedding_dim, combiner, embeddings_initializer, shard=shard
        )
        x = keras.layers.Concatenate(name="hidden_inputs")([x, rest])
    return assembled("bst", columns, inputs, probability(dense(x, hidden, dropout), output_name))


def _block(x: Any, attended: Any, heads: int, dropout: float, name: str) -> Any:
    """A Transformer block: attention and a layer for each position, each added and normalized."""
    width = x.shape[-1]
    attention = keras.layers.MultiHeadAttention(
        heads, width // heads, dropout=dropout, name=f"{name}_attention"
    )
    x = _normalized(x, attention(x, x, attention_mask=attended), dropout, f"{name}_first")
    wide = keras.layers.Dense(4 * width, "leaky_relu", name=f"{name}_wide")(x)
    return _normalized(x, keras.layers.Dense(width, name=f"{name}_narrow")(wide), dropout, name)


def _normalized(x: Any, change: Any, dropout: float, name: str) -> Any:
    if dropout:
        change = keras.layers.Dropout(dropout, name=f"{name}_dropout")(change)
    added = keras.layers.Add(name=f"{name}_sum")([x, change])
    return keras.layers.LayerNormalization(name=f"{name}_normalized")(added)


def _expect_columns(columns: Columns, sequence: str, target: str) -> None:
    lists, scalars = columns.lists, columns.scalars
    if sequence not in lists or target not in scalars:
        raise TrainingError(
            f"Expected sequence among the columns of lists, {listed(lists) or 'none'}, and target "
            f"among those of single ids, {listed(scalars) or 'none'}. "
            f"Received: sequence={sequence!r}, target={target!r}."
        )
    if lists[sequence][0] != scalars[target][0]:
        raise _vocabularies(sequence, target, f"{lists[sequence][0]} and {scalars[target][0]} ids")


def _expect_one_vocabulary(schema: Schema, sequence: str, target: str) -> None:
    """Vocabularies of one size may have different values, or the same ones in another order."""
    domains = [part_of(schema[name], "domain", "name") for name in (sequence, target)]
    if None not in domains and domains[0] != domains[1]:
        raise _vocabularies(sequence, target, f"those of {domains[0]!r} and of {domains[1]!r}")


def _vocabularies(sequence: str, target: str, received: str) -> TrainingError:
    return TrainingError(
        f"Expected one vocabulary of {sequence!r} and {target!r}, which share a table: "
        f'[["{sequence}", "{target}"]] >> ops.Categorify(encode_type="joint"). Received: {received}.'
    )


def _length(features: Features, sequence: str) -> Any:
    """The length of the lists according to the schema."""
    if not isinstance(features, Schema):
        return None
    least, most = (part_of(features[sequence], "value_count", end) for end in ("min", "max"))
    return most if least == most else None


def _expect_sizes(length: Any, width: int, blocks: int, heads: int) -> None:
    for name, number in (("embedding_dim", width), ("blocks", blocks), ("heads", heads)):
        whole_number(name, number, 1, TrainingError)
    if type(length) is not int or length < 1:
        raise TrainingError(
            "Expected the length of the sequence as a whole number from 1, or a schema that states "
            f"it, as after ops.ListSlice(-20, pad=True). Received: length={length!r}."
        )
    if width % heads:
        raise TrainingError(
            "Expected embedding_dim as a multiple of heads. "
            f"Received: embedding_dim={width}, heads={heads}."
        )
