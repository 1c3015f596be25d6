"""What a batch looks like: which columns, in which order, in which form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loader.errors import LoaderError
from loader.files import ColumnType
from workflow.schema import ColumnSchema, Schema, Tags


@dataclass(frozen=True)
class BatchColumn:
    """One column of a batch.

    Attributes:
        name: the column's name.
        type: element dtype, and whether the file holds lists.
        width: for a list that is padded to a dense (N, width) tensor; None otherwise.
    """

    name: str
    type: ColumnType
    width: int | None = None

    @property
    def is_ragged(self) -> bool:
        """Whether the column arrives as a pair of values and row lengths."""
        return self.type.is_list and self.width is None


@dataclass(frozen=True)
class Names:
    """The columns of a loader by role."""

    cats: tuple[str, ...]
    conts: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """The model's inputs, in the order of the batch."""
        return self.cats + self.conts


@dataclass(frozen=True)
class Layout:
    """The columns of a batch: features first, then labels."""

    features: tuple[BatchColumn, ...]
    labels: tuple[BatchColumn, ...]

    @property
    def columns(self) -> tuple[BatchColumn, ...]:
        """All columns in order."""
        return self.features + self.labels

    @property
    def names(self) -> list[str]:
        """All column names in order."""
        return [column.name for column in self.columns]


def resolve_names(
    cat_names: Sequence[str] | None,
    cont_names: Sequence[str] | None,
    label_names: Sequence[str] | None,
    feature_columns: Sequence[Any] | None,
    schema: Schema | None,
) -> Names:
    """Who is categorical, continuous or a label: as named, or else as the schema tags it.

    Tags are asked for features only when neither names nor feature columns are given, and for
    labels only when `label_names` is None; `label_names=[]` means no labels.

    Raises:
        LoaderError: names and feature columns together, neither names nor tags, or a name twice.
    """
    if feature_columns is not None:
        if cat_names is not None or cont_names is not None:
            raise LoaderError(
                "Expected either feature_columns or cat_names and cont_names. Received: both."
            )
        cat_names, cont_names = _unwrap(feature_columns)
    if cat_names is None and cont_names is None:
        cat_names = _tagged(schema, Tags.CATEGORICAL)
        cont_names = _tagged(schema, Tags.CONTINUOUS)
    labels = _tagged(schema, Tags.TARGET) if label_names is None else _listed(label_names)
    names = Names(
        tuple(name for name in _listed(cat_names) if label_names is not None or name not in labels),
        tuple(
            name for name in _listed(cont_names) if label_names is not None or name not in labels
        ),
        tuple(labels),
    )
    return _checked(names)


def _checked(names: Names) -> Names:
    if not names.features:
        raise LoaderError(
            "Expected names of the features: cat_names, cont_names, or a schema that tags columns "
            "as categorical or continuous. Received: none of them."
        )
    everything = names.features + names.labels
    twice = {name for name in everything if everything.count(name) > 1}
    if twice:
        raise LoaderError(
            "Expected each column once among cat_names, cont_names and label_names. "
            f"Received twice: {', '.join(sorted(twice))}."
        )
    return names


def _tagged(schema: Schema | None, tag: Tags) -> list[str]:
    return schema.tagged(tag).names if schema is not None else []


def _listed(names: Sequence[str] | str | None) -> list[str]:
    return [names] if isinstance(names, str) else list(names or ())


def _unwrap(feature_columns: Iterable[Any]) -> tuple[list[str], list[str]]:
    """The source columns of `tf.feature_column` objects: categorical ones, then numeric ones."""
    cats: list[str] = []
    conts: list[str] = []
    for column in feature_columns:
        inner = getattr(column, "categorical_column", column)
        key = getattr(inner, "key", None)
        if not isinstance(key, str):
            raise LoaderError(
                "Expected feature columns over one named source column (numeric, or identity, "
                f"embedding or indicator of one). Received: {type(column).__name__}. "
                "Use cat_names and cont_names instead."
            )
        is_numeric = inner is column and hasattr(column, "normalizer_fn")
        found = conts if is_numeric else cats
        if key not in found:
            found.append(key)
    return cats, conts


def make_layout(names: Names, types: Mapping[str, ColumnType], widths: Mapping[str, int]) -> Layout:
    """Put names and types together.

    Args:
        names: the columns by role.
        types: what the files hold.
        widths: columns to pad, with the length of the longest row allowed.

    Raises:
        LoaderError: a label that holds lists, or padding of a column that is no list feature.
    """
    for name in names.labels:
        if types[name].is_list:
            raise LoaderError(
                f"Expected the label {name!r} as one value a row. Received: {types[name]}."
            )
    for name in widths:
        if name not in names.features or not types[name].is_list:
            raise LoaderError(
                f"Expected sparse_names among the list features. Received: {name!r}. "
                f"The list features are: {[n for n in names.features if types[n].is_list]}."
            )
    return Layout(
        tuple(BatchColumn(name, types[name], widths.get(name)) for name in names.features),
        tuple(BatchColumn(name, types[name]) for name in names.labels),
    )


def padded_widths(
    sparse_names: Sequence[str] | None, sparse_max: Mapping[str, int] | None, as_dense: bool
) -> dict[str, int]:
    """The columns to pad, by `sparse_names` and `sparse_max`.

    Raises:
        LoaderError: a name without a maximum, a maximum below 1, or padding to sparse tensors.
    """
    names = _listed(sparse_names)
    if names and not as_dense:
        raise LoaderError(
            "Expected sparse_as_dense=True with sparse_names: tf.SparseTensor is not supported. "
            "Leave sparse_names out to get a pair of values and row lengths."
        )
    widths = {}
    for name in names:
        width = (sparse_max or {}).get(name)
        if not isinstance(width, int) or width < 1:
            raise LoaderError(
                f"Expected sparse_max[{name!r}] as a whole number of at least 1. "
                f"Received: {width!r}."
            )
        widths[name] = width
    return widths


def batch_schema(layout: Layout, names: Names, known: Schema | None) -> Schema:
    """The columns of a batch as a schema: the workflow's description where there is one."""
    tags = {
        **dict.fromkeys(names.cats, Tags.CATEGORICAL),
        **dict.fromkeys(names.conts, Tags.CONTINUOUS),
        **dict.fromkeys(names.labels, Tags.TARGET),
    }
    columns = []
    for column in layout.columns:
        name = column.name
        if known is not None and name in known:
            found = known[name].with_(dtype=column.type.dtype, is_list=column.type.is_list)
        else:
            found = ColumnSchema(
                name, column.type.dtype, is_list=column.type.is_list, nullable=False
            )
        tag = tags[name]
        columns.append(found if found.has_tag(tag) else found.with_(tags=(*found.tags, tag)))
    return Schema(columns)
