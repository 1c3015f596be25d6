"""Columns that a model takes, and the inputs that the loader feeds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from training.errors import TrainingError
from workflow.embedding_sizes import embedding_dimension
from workflow.schema.dtypes import DTYPES
from workflow.schema.names import did_you_mean, listed
from workflow.schema.python_number import whole_number
from workflow.schema.schema import ColumnSchema, Schema, Tags
from workflow.schema.tags import facts_of, fits_of
from workflow.wire.request_rules import NNZS, VALUES

EmbeddingSizes = Mapping[str, tuple[int, int]]
Features = Schema | EmbeddingSizes | Sequence[EmbeddingSizes]
IdDtype = str | tuple[str, str]

SCALAR_DTYPE = "int32"
LIST_DTYPES = ("int64", "int64")


@dataclass(frozen=True)
class Columns:
    """The columns that a model takes.

    Attributes:
        scalars: columns with one id a row: name -> (cardinality, width).
        lists: columns with any number of ids a row, likewise.
        continuous: columns of float32 numbers.
        dtypes: dtypes of ids other than "int32", or for lists other than ("int64", "int64").
        fits: the digests of the columns' fits, if the schema has them.
    """

    scalars: EmbeddingSizes
    lists: EmbeddingSizes
    continuous: tuple[str, ...]
    dtypes: Mapping[str, IdDtype]
    fits: Mapping[str, str]

    @property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """Scalars and lists: name -> (cardinality, width)."""
        return {**self.scalars, **self.lists}

    @property
    def cardinalities(self) -> dict[str, int]:
        """Scalars and lists: name -> cardinality."""
        return {name: rows for name, (rows, _) in self.sizes.items()}

    def capped(self, limit: int | None) -> dict[str, tuple[int, int]]:
        """The sizes, no width above the limit."""
        wide = self.sizes
        if limit is None:
            return wide
        most = whole_number("max_embedding_dim", limit, 1, TrainingError)
        return {name: (rows, min(width, most)) for name, (rows, width) in wide.items()}

    def of_width(self, width: int) -> dict[str, tuple[int, int]]:
        """The sizes with the same width for all columns."""
        return {name: (rows, width) for name, rows in self.cardinalities.items()}

    def only(self, names: Iterable[str]) -> Columns:
        """The named columns alone.

        Raises:
            TrainingError: an unknown column.
        """
        selection = list(names)
        columns = [*self.sizes, *self.continuous]
        unknown = [name for name in selection if name not in columns]
        if unknown:
            raise TrainingError(
                f"Expected columns among {listed(columns)}. Received: {listed(unknown)}."
                + did_you_mean(unknown, columns)
            )
        return Columns(
            {name: size for name, size in self.scalars.items() if name in selection},
            {name: size for name, size in self.lists.items() if name in selection},
            tuple(name for name in self.continuous if name in selection),
            {name: dtype for name, dtype in self.dtypes.items() if name in selection},
            {name: fit for name, fit in self.fits.items() if name in selection},
        )

    def inputs(self) -> dict[str, Any]:
        """Keras inputs in the loader's nested structure: a list is a pair."""
        scalars = {
            name: _scalar_input(name, self.dtypes.get(name, SCALAR_DTYPE)) for name in self.scalars
        }
        lists = {name: _list_input(name, self.dtypes.get(name, LIST_DTYPES)) for name in self.lists}
        return scalars | lists | {name: _scalar_input(name, "float32") for name in self.continuous}


def columns_of(
    features: Features,
    continuous: Iterable[str] = (),
    id_dtypes: Mapping[str, IdDtype] | None = None,
) -> Columns:
    """The columns of a schema, or of embedding sizes and names.

    Columns of the schema that are tagged categorical are embedded, by their properties
    `cardinality` and, if present, `embedding_size` (else by the rule of
    `workflow.get_embedding_sizes`); columns tagged continuous are taken unchanged. Other columns,
    the target among them, are not inputs.

    Args:
        features: a workflow's output schema; or the result of `workflow.get_embedding_sizes`: a
            dictionary when all columns hold single values, else a pair of dictionaries, for single
            values and for lists.
        continuous: names of float32 columns (N, 1), in addition to the schema's.
        id_dtypes: dtypes of inputs that differ from the schema's, or without a schema from "int32"
            (single values) or ("int64", "int64") (values and row lengths of a list).

    Raises:
        TrainingError: no columns, `continuous` as one text, a name that Keras takes for no input, a
            column without a cardinality, lists of numbers, invalid sizes, or a dtype of id_dtypes that is
            too small for the column's ids.

    Example:
        >>> columns_of({"userId": (1000, 16)}, ["age"]).cardinalities
        {'userId': 1000}
    """
    dtypes: dict[str, IdDtype] = {}
    fits: dict[str, str] = {}
    if isinstance(continuous, str):
        raise TrainingError(
            "Expected continuous as a list of names of columns. "
            f"Received: {continuous!r}. For one column: [{continuous!r}]."
        )
    continuous = list(continuous)  # An iterator gives its names once.
    if isinstance(features, Schema):
        inputs = features.without(features.tagged(Tags.TARGET).names)
        categorical = inputs.tagged(Tags.CATEGORICAL).columns
        scalars = {column.name: _size(column) for column in categorical if not column.is_list}
        lists = {column.name: _size(column) for column in categorical if column.is_list}
        numbers = inputs.tagged(Tags.CONTINUOUS)
        if lists_of_numbers := [column.name for column in numbers.columns if column.is_list]:
            raise TrainingError(
                f"Expected lists of ids alone. Received: numbers in {listed(lists_of_numbers)}. "
                f"Leave them out, schema.without({lists_of_numbers}), or give them to a network of "
                "your own, as keras.Input((width,)) or as values and row lengths."
            )
        continuous = [*numbers.names, *continuous]
        dtypes |= {name: features[name].dtype for name in scalars}
        dtypes |= {name: (features[name].dtype, LIST_DTYPES[1]) for name in lists}
        all_fits, names = fits_of(inputs.columns), {*scalars, *lists, *continuous}
        fits = {name: fit for name, fit in all_fits.items() if name in names}
    else:
        scalars, lists = (dict(part) for part in _split(features))
    if not (scalars or lists or continuous):
        raise TrainingError("Expected features with at least one column. Received: none.")
    _check_names([*scalars, *lists, *continuous])
    input_dtypes = dict(id_dtypes or {})
    _check_known(input_dtypes, {**scalars, **lists})
    _check_hold_ids(input_dtypes, {**scalars, **lists})
    return Columns(scalars, lists, tuple(continuous), dtypes | input_dtypes, fits)


def _size(column: ColumnSchema) -> tuple[int, int]:
    facts = facts_of(column)
    rows = facts.get("cardinality")
    if rows is None:
        raise TrainingError(
            f"Expected the categorical column {column.name!r} to have the property cardinality. "
            f"Received: {dict(column.properties)!r}. ops.Categorify sets it."
        )
    return rows, facts.get("embedding_size", embedding_dimension(rows))


def _split(sizes: Any) -> Sequence[EmbeddingSizes]:
    if isinstance(sizes, Mapping):
        return sizes, {}
    pair = sizes if isinstance(sizes, Sequence) else ()
    if len(pair) != 2 or not all(isinstance(part, Mapping) for part in pair):
        raise TrainingError(
            "Expected a workflow's output_schema, or embedding sizes as a dictionary, or as a pair "
            f"of them (single values, lists). Received: {sizes!r}."
        )
    return pair[0], pair[1]


def _check_names(names: Iterable[str]) -> None:
    refused = [name for name in names if not name or "/" in name]
    if refused:
        raise TrainingError(
            "Expected names of columns that are not empty and without '/', since Keras names inputs "
            f"by them. Received: {listed(map(repr, refused))}. Rename them in the workflow: "
            "columns >> ops.Rename(lambda name: name.replace('/', '_'))."
        )


def _check_known(dtypes: Mapping[str, IdDtype], names: Collection[str]) -> None:
    unknown = [name for name in dtypes if name not in names]
    if unknown:
        raise TrainingError(
            f"Expected id_dtypes of embedded columns: {listed(names)}. Received: {listed(unknown)}."
        )


def _check_hold_ids(dtypes: Mapping[str, IdDtype], sizes: EmbeddingSizes) -> None:
    """Raise TrainingError for a dtype to which Keras would cast an id as another one, without an error."""
    for name, id_dtype in dtypes.items():
        dtype, rows = id_dtype if isinstance(id_dtype, str) else id_dtype[0], sizes[name][0]
        info = DTYPES.get(dtype)
        if info and info.is_integer and (most := np.iinfo(info.numpy).max) < rows - 1:
            raise TrainingError(
                f"Expected a dtype in id_dtypes that holds the ids of {name!r}, 0 to {rows - 1}. "
                f"Received: {dtype!r}, up to {most}."
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
