"""Layout of a batch: its columns, their order and their form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from loader.errors import LoaderError
from loader.files.parquet_files import ColumnType
from workflow.schema.names import listed
from workflow.schema.python_number import python_number
from workflow.schema.schema import ColumnSchema, Schema, Tags
from workflow.schema.tags import part_of


@dataclass(frozen=True)
class BatchColumn:
    """One column of a batch.

    Attributes:
        name: the column's name.
        type: element dtype, and whether the file holds lists.
        width: for a list of fixed width, the longest row allowed; None otherwise.
        is_sparse: whether a list of fixed width becomes a `tf.SparseTensor`.
    """

    name: str
    type: ColumnType
    width: int | None = None
    is_sparse: bool = False

    @cached_property
    def is_ragged(self) -> bool:
        """Whether the column is read as a pair of values and row lengths."""
        return self.type.is_list and not self.is_padded

    @cached_property
    def is_padded(self) -> bool:
        """Whether the column is read as a dense tensor of shape (N, width)."""
        return self.width is not None and not self.is_sparse


@dataclass(frozen=True)
class Names:
    """The columns of a loader by role; one of weights, or none."""

    cats: tuple[str, ...]
    conts: tuple[str, ...]
    labels: tuple[str, ...]
    weight: tuple[str, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """The model's inputs, in the order of the batch."""
        return self.cats + self.conts

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns in the order of the batch."""
        return self.features + self.labels + self.weight


@dataclass(frozen=True)
class BatchLayout:
    """The columns of a batch: features first, then labels, then the weight of the rows, if there is one."""

    features: tuple[BatchColumn, ...]
    labels: tuple[BatchColumn, ...]
    weight: tuple[BatchColumn, ...] = ()

    @property
    def columns(self) -> tuple[BatchColumn, ...]:
        """All columns in order."""
        return self.features + self.labels + self.weight

    @property
    def names(self) -> list[str]:
        """All column names in order."""
        return [column.name for column in self.columns]

    def pack(self, items: Iterable[Any]) -> Any:
        """Arrange items, one for each tensor, as a batch: `(x, y)`, `(x, y, weight)`, or `x` without labels.

        `x` maps names to tensors, a list feature to a pair; `y` is the tensor of one label, or a
        dict of several.

        Args:
            items: in the order of the columns, two for a ragged column.
        """
        rest = iter(items)
        x = {c.name: (next(rest), next(rest)) if c.is_ragged else next(rest) for c in self.features}
        y = {column.name: next(rest) for column in self.labels}
        if not y:
            return x
        return (x, y if len(y) > 1 else next(iter(y.values())), *rest)


def resolve_names(
    cat_names: Sequence[str] | None,
    cont_names: Sequence[str] | None,
    label_names: Sequence[str] | None,
    sample_weight: str | None,
    feature_columns: Sequence[Any] | None,
    schema: Schema | None,
) -> Names:
    """Roles of columns (categorical, continuous, label, weight) as named, or else as the schema tags them.

    Tags determine the features only if neither names nor feature columns are given, and the labels only
    if `label_names` is None; `label_names=[]` means no labels. A label is never a feature, and a weight
    neither, whatever its tags say.

    Raises:
        LoaderError: names and feature columns together, neither names nor tags, a name twice, or a weight
            without a label.
    """
    if not isinstance(sample_weight, str | None):
        raise LoaderError(
            f"Expected sample_weight as the name of a column. Received: {sample_weight!r:.200}. "
            "Make the weights a column of the data."
        )
    weight = () if sample_weight is None else (sample_weight,)

    def tagged(tag: Tags) -> list[str]:
        names = schema.tagged(tag).names if schema is not None else []
        return [name for name in names if name not in weight]

    if feature_columns is not None:
        if cat_names is not None or cont_names is not None:
            raise LoaderError(
                "Expected either feature_columns or cat_names and cont_names. Received: both."
            )
        cat_names, cont_names = _unwrap(feature_columns)
    are_tagged = cat_names is None and cont_names is None
    if are_tagged:
        cat_names, cont_names = tagged(Tags.CATEGORICAL), tagged(Tags.CONTINUOUS)
    labels = tagged(Tags.TARGET) if label_names is None else _listed(label_names)
    exclusions = labels if are_tagged or label_names is None else ()
    cats, conts = (
        tuple(name for name in _listed(names) if name not in exclusions)
        for names in (cat_names, cont_names)
    )
    return _checked(Names(cats, conts, tuple(labels), weight))


def _checked(names: Names) -> Names:
    if not names.features:
        raise LoaderError(
            "Expected names of the features: cat_names, cont_names, or a schema that tags columns "
            "as categorical or continuous. Received: none of them."
        )
    if names.weight and not names.labels:
        raise LoaderError(
            f"Expected label_names beside sample_weight={names.weight[0]!r}, as a batch is (x, y, weight). "
            "Received: no label. Name one, or leave sample_weight out."
        )
    counts = Counter(names.columns)
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise LoaderError(
            "Expected each column once among cat_names, cont_names, label_names and sample_weight. "
            f"Received twice: {listed(sorted(twice))}. For a second role make a copy with another name, as "
            "ops.Rename does in the workflow."
        )
    return names


def _listed(names: Any) -> list[str]:
    values = [names] if isinstance(names, str) else names or ()
    if not isinstance(values, Iterable) or not all(isinstance(name, str) for name in values):
        raise LoaderError(f"Expected names of columns as a list of str. Received: {names!r}.")
    return list(values)


def _unwrap(feature_columns: Iterable[Any]) -> tuple[list[str], list[str]]:
    """Source columns of `tf.feature_column` objects: categorical ones, then numeric ones."""
    sources: dict[str, bool] = {}
    for column in feature_columns:
        for name, is_numeric in _sources(column):
            sources.setdefault(name, is_numeric)
    cats = [name for name, is_numeric in sources.items() if not is_numeric]
    return cats, [name for name, is_numeric in sources.items() if is_numeric]


def _sources(column: Any) -> Iterator[tuple[str, bool]]:
    """The names at the roots of a feature column, each with whether it is numeric."""
    parents = getattr(column, "parents", None)
    if not isinstance(parents, (list, tuple)):
        raise LoaderError(
            f"Expected objects of tf.feature_column. Received: {column!r}. "
            "Use cat_names and cont_names instead."
        )
    # A name is numeric if its column normalises it, or if it weights a categorical column.
    is_numeric = hasattr(column, "normalizer_fn") or hasattr(column, "weight_feature_key")
    for parent in parents:
        if isinstance(parent, str):
            yield parent, is_numeric
        else:
            yield from _sources(parent)


def refuse_strings(layout: BatchLayout, framework: str) -> None:
    """Refuse columns that a framework has no tensors for.

    Raises:
        LoaderError: a column of strings.
    """
    for column in layout.columns:
        if column.type.dtype == "string":
            raise LoaderError(
                f"Expected columns of numbers, since {framework} has no tensors of others. Received: "
                f"{column.name!r}, of {column.type}. Encode it with Categorify, or leave it out."
            )


def make_layout(
    names: Names,
    types: Mapping[str, ColumnType],
    widths: Mapping[str, int],
    *,
    sparse: bool = False,
) -> BatchLayout:
    """Combine names and types.

    Args:
        names: the columns by role.
        types: types of the columns in the files.
        widths: columns of fixed width, with the length of the longest row allowed.
        sparse: whether columns of fixed width become `tf.SparseTensor`s.

    Raises:
        LoaderError: a label that holds lists, weights that are not numbers, or a width for a column that is
            not a list feature.
    """
    for name in names.labels:
        if types[name].is_list:
            raise LoaderError(
                f"Expected the label {name!r} as one value a row. Received: {types[name]}. Read a list as a "
                "feature, with cont_names and sparse_names, and make it the label in loader.map."
            )
    for name in names.weight:
        if types[name].is_list or types[name].dtype == "string":
            raise LoaderError(
                f"Expected sample_weight={name!r} as one number a row. Received: {types[name]}. Make it a "
                "number in the workflow, or name another column."
            )
    for name in widths:
        if name not in names.features or not types[name].is_list:
            raise LoaderError(
                f"Expected sparse_names among the list features. Received: {name!r}. "
                f"The list features are: {[n for n in names.features if types[n].is_list]}."
            )
    return BatchLayout(
        tuple(
            BatchColumn(name, types[name], widths.get(name), sparse and name in widths)
            for name in names.features
        ),
        tuple(BatchColumn(name, types[name]) for name in names.labels),
        tuple(BatchColumn(name, types[name]) for name in names.weight),
    )


def fixed_widths(
    sparse_names: Sequence[str] | None,
    sparse_max: Mapping[str, int] | None,
    schema: Schema | None = None,
) -> dict[str, int]:
    """The columns of fixed width: `sparse_names`, each with its maximum.

    Args:
        sparse_names: the columns.
        sparse_max: the longest row allowed in each.
        schema: its `value_count` applies where `sparse_max` has no entry.

    Raises:
        LoaderError: a name without a maximum, a maximum below 1, or a maximum without a name.
    """
    if not isinstance(sparse_max, Mapping | None):
        raise LoaderError(f"Expected sparse_max as a dict, by column. Received: {sparse_max!r}.")
    names = _listed(sparse_names)
    extras = [name for name in sparse_max or () if name not in names]
    if extras:
        raise LoaderError(
            f"Expected sparse_max for columns of sparse_names only, which is {names}. Received: "
            f"{extras[0]!r} as well. Add it to sparse_names, or leave it out of both."
        )
    widths = {}
    for name in names:
        column = None if schema is None else schema.get(name)
        default = None if column is None else part_of(column, "value_count", "max")
        width = python_number((sparse_max or {}).get(name, default))
        if type(width) is not int or width < 1:
            raise LoaderError(
                f"Expected sparse_max[{name!r}] as a whole number of at least 1, or a value_count "
                f"in the schema. Received: {width!r}."
            )
        widths[name] = width
    return widths


def batch_schema(layout: BatchLayout, names: Names, known: Schema | None) -> Schema:
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
            entry = known[name].with_(dtype=column.type.dtype, is_list=column.type.is_list)
        else:
            entry = ColumnSchema(
                name, column.type.dtype, is_list=column.type.is_list, nullable=False
            )
        tag = tags.get(name)
        if tag is None:  # a weight, which no model takes for a feature
            entry = entry.with_(tags=())
        elif not entry.has_tag(tag):
            entry = entry.with_(tags=(*entry.tags, tag))
        columns.append(entry)
    return Schema(columns)
