"""Serialised `tf.train.Example`s as tables."""

from __future__ import annotations

import operator
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import tensorflow as tf
from google.protobuf.message import DecodeError

from loader.errors import LoaderError

# TensorFlow's dtype of a feature, by the protobuf's name of its values, and a column's.
_DTYPES = {"int64_list": tf.int64, "float_list": tf.float32, "bytes_list": tf.string}
_NAMES = {tf.int64: "int64", tf.float32: "float32", tf.string: "string"}
_REMEDY = "Describe the columns in `features` as the records have them, for tf.io.parse_example."


@dataclass(frozen=True)
class RecordFeature:
    """A feature of the records as a column.

    Attributes:
        dtype: tf.int64, tf.float32 or tf.string.
        width: values of a record: 1 for a scalar, None for a list of any length, else its length.
        default: the values of a record that lacks the feature; None for null, in lists for none.
        index_key: the feature that has the index of each value, by which a record's are sorted.
        size: what the indices are below.
    """

    dtype: tf.DType
    width: int | None = None
    default: tuple[Any, ...] | None = None
    index_key: str | None = None
    size: int | None = None

    @property
    def is_list(self) -> bool:
        """Whether the column holds lists."""
        return self.width != 1

    @property
    def name_of_dtype(self) -> str:
        """The dtype's name in a schema."""
        return _NAMES[self.dtype]


class FeatureError(LoaderError):
    """Records that do not fit the features."""


def described(features: Mapping[str, Any]) -> dict[str, RecordFeature]:
    """Features from a description as `tf.io.parse_example` takes it.

    Raises:
        LoaderError: none, or one that no column can hold.
    """
    if not isinstance(features, Mapping) or not features:
        raise LoaderError(
            "Expected features as a dict of names and tf.io.FixedLenFeature, VarLenFeature, RaggedFeature, "
            f"FixedLenSequenceFeature or SparseFeature. Received: {features!r}."
        )
    fields: dict[str, RecordFeature] = {}
    for name, spec in features.items():
        for key, feature in _described(name, spec).items():
            if fields.setdefault(key, feature) != feature:
                raise LoaderError(
                    f"Expected one description of {key!r}. Received: another one in {name!r}. A SparseFeature "
                    "has columns of its index_key and value_key: leave them out elsewhere."
                )
    return fields


def _described(name: str, spec: Any) -> dict[str, RecordFeature]:
    """The columns of a feature: two if it is sparse."""
    is_sparse = isinstance(spec, tf.io.SparseFeature)
    try:
        found = _sparse(spec) if is_sparse else _dense(name, spec)
    except LoaderError:
        raise
    except (TypeError, ValueError):  # No dtype, shape or size.
        found = {}
    if not found or not all(key and isinstance(key, str) for key in [name, *found]):
        remedy = " Give its index_key and value_key as VarLenFeature each, which are lists."
        raise LoaderError(
            "Expected a feature as tf.io.FixedLenFeature of at most one dimension, of a known length, "
            "VarLenFeature, RaggedFeature without partitions and value_key, FixedLenSequenceFeature([], ..., "
            "allow_missing=True), or SparseFeature of one index_key and its size, of int64, float32 or "
            f"string, with a name. Received: {name!r} as {spec!r}.{remedy if is_sparse else ''}"
        )
    return found


def _sparse(spec: Any) -> dict[str, RecordFeature]:
    dtype: Any = tf.as_dtype(spec.dtype)
    keys, sizes = (x if isinstance(x, list | tuple) else [x] for x in (spec.index_key, spec.size))
    if dtype not in _NAMES or len(keys) != 1 or len(sizes) != 1 or keys[0] == spec.value_key:
        return {}
    return {
        keys[0]: RecordFeature(tf.int64, index_key=keys[0]),
        spec.value_key: RecordFeature(dtype, index_key=keys[0], size=operator.index(sizes[0])),
    }


def _dense(name: str, spec: Any) -> dict[str, RecordFeature]:
    dtype: Any = tf.as_dtype(spec.dtype) if hasattr(spec, "dtype") else None
    shape = tf.TensorShape(getattr(spec, "shape", ()))
    is_ragged = isinstance(spec, tf.io.RaggedFeature) and not spec.partitions
    is_ragged = is_ragged and spec.value_key in (None, name)
    is_fixed = isinstance(spec, tf.io.FixedLenFeature) and len(shape) < 2
    is_fixed = is_fixed and shape.is_fully_defined()
    # In a batch `tf.io` pads such lists with the default value, which is no value of a record.
    is_sequence = isinstance(spec, tf.io.FixedLenSequenceFeature) and spec.allow_missing
    is_sequence = is_sequence and len(shape) == 0
    is_list = is_ragged or is_sequence or isinstance(spec, tf.io.VarLenFeature)
    if dtype not in _NAMES or not (is_list or is_fixed):
        return {}
    if not is_fixed:
        return {name: RecordFeature(dtype)}
    width = shape.num_elements()
    default = spec.default_value
    if default is None:
        return {name: RecordFeature(dtype, width)}
    try:
        values = tf.reshape(tf.convert_to_tensor(default, dtype), [width]).numpy()
    except (TypeError, ValueError, tf.errors.InvalidArgumentError):
        raise LoaderError(
            f"Expected {_counted(width)} of {dtype.name} as the default_value of {name!r}. "
            f"Received: {default!r:.200}."
        ) from None
    defaults = _values(name, RecordFeature(dtype), values)
    return {name: RecordFeature(dtype, width, tuple(defaults.to_pylist()))}


def example_of(record: bytes) -> tf.train.Example:
    """A record as a message.

    Raises:
        FeatureError: it is another message, or none.
    """
    expected = "Expected records of tf.train.Example. Received"
    try:
        # It has the features of an Example as its context.
        lists = tf.train.SequenceExample.FromString(record).feature_lists.feature_list
        example = tf.train.Example.FromString(record)
    except DecodeError:
        raise FeatureError(f"{expected}: {len(record)} other bytes.") from None
    if lists:
        raise FeatureError(
            f"{expected}: a tf.train.SequenceExample. Write its lists as features of an Example first."
        )
    return example


def inferred(records: Iterable[tf.train.Example]) -> dict[str, RecordFeature]:
    """Features as found in some records: a scalar where each record has at most one value.

    Raises:
        FeatureError: no features, or a feature of two types.
    """
    kinds: dict[str, set[str]] = defaultdict(set)
    widest: dict[str, int] = defaultdict(int)
    for record in records:
        for name, feature in record.features.feature.items():
            if count := _count(feature):
                kinds[name].add(feature.WhichOneof("kind"))
                widest[name] = max(widest[name], count)
    mixed = [name for name, types in kinds.items() if len(types) > 1]
    if mixed:
        types = " and ".join(sorted(kinds[mixed[0]]))
        raise FeatureError(f"Expected one type a feature. Received: {mixed[0]!r} as {types}.")
    if not kinds:
        raise FeatureError("Expected records with features. Received: none that has any.")
    return {
        name: RecordFeature(_DTYPES[min(kinds[name])], None if widest[name] > 1 else 1)
        for name in sorted(kinds)
    }


def names_of(record: tf.train.Example) -> set[str]:
    """The features of which a record has a value."""
    return {name for name, feature in record.features.feature.items() if _count(feature)}


def reason_of(error: Exception) -> str:
    """The first line of an error without the operation and the device that TensorFlow adds to it."""
    line = str(getattr(error, "message", error)).splitlines()[0]
    return re.sub(r"^\{\{.*?\}\}|\[Op:.*?\]( name:)?\s*$", "", line).strip(" .")


def _count(feature: Any) -> int:
    """The number of values of a feature of a record."""
    kind = feature.WhichOneof("kind")
    return len(getattr(feature, kind).value) if kind else 0


@dataclass(frozen=True)
class Parser:
    """A parser of records into tables.

    Attributes:
        features: the columns.
        is_complete: whether a feature that is not among them is an error.
    """

    features: Mapping[str, RecordFeature]
    is_complete: bool

    def parse(self, records: tf.Tensor) -> pl.DataFrame:
        """A table of serialised records.

        Args:
            records: strings of shape (N,).

        Raises:
            FeatureError: they do not fit the features.
        """
        spec = {name: tf.io.RaggedFeature(f.dtype) for name, f in self.features.items()}
        try:
            parsed = tf.io.parse_example(records, spec)
        except tf.errors.InvalidArgumentError as error:
            raise FeatureError(
                f"Expected records of tf.train.Example with {_listed(self.features)}. Received: "
                f"{reason_of(error)}. {_REMEDY}"
            ) from None
        offsets = {name: ragged.row_splits.numpy() for name, ragged in parsed.items()}
        if self.is_complete and len(records):
            self._expect_no_others(records, offsets)
        flat = {name: ragged.flat_values.numpy() for name, ragged in parsed.items()}
        flat |= {name: flat[name][order] for name, order in self._orders(flat, offsets)}
        columns = {
            name: _column(name, feature, flat[name], offsets[name])
            for name, feature in self.features.items()
        }
        return pl.DataFrame(pl.from_arrow(pa.table(columns)))

    def _orders(
        self, flat: Mapping[str, Any], offsets: Mapping[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        """The order of the values of each sparse feature, by record and index."""
        for name, feature in self.features.items():
            if feature.index_key is None:
                continue
            indices, lengths = flat[feature.index_key], np.diff(offsets[name])
            _expect_indices(name, feature, indices, np.diff(offsets[feature.index_key]), lengths)
            yield name, np.lexsort((indices, np.repeat(np.arange(len(lengths)), lengths)))

    def _expect_no_others(self, records: tf.Tensor, offsets: Mapping[str, Any]) -> None:
        """Compare the number of features of each record with that of those that were parsed."""
        present = np.sum([found[1:] > found[:-1] for found in offsets.values()], axis=0)
        # A feature without values is in no column: those records are looked into.
        for record in np.flatnonzero(_counts(records) > present):
            found = tf.train.Example.FromString(records[int(record)].numpy())
            extras = sorted(names_of(found) - self.features.keys())
            if extras:
                raise FeatureError(
                    f"Expected records with {_listed(self.features)}, as the first ones have. "
                    f"Received: {extras[0]!r} as well. {_REMEDY}"
                )


def _counts(records: tf.Tensor) -> Any:
    """The number of features of each record."""
    _, (features,) = tf.io.decode_proto(records, "tensorflow.Example", ["features"], [tf.string])
    merged = tf.strings.reduce_join(features, axis=1)
    sizes, _ = tf.io.decode_proto(merged, "tensorflow.Features", ["feature"], [tf.string])
    return sizes.numpy()[:, 0]


def _listed(features: Mapping[str, RecordFeature]) -> str:
    names = list(features)
    return f"{', '.join(names[:8])}{' and others' if len(names) > 8 else ''}"


def _expect_indices(
    name: str, feature: RecordFeature, indices: Any, counts: Any, lengths: Any
) -> None:
    key = feature.index_key
    remedy = (
        f"Correct the records, or give {key!r} and {name!r} as VarLenFeature each, which are lists."
    )
    unlike = np.flatnonzero(counts != lengths)
    if unlike.size:
        raise FeatureError(
            f"Expected an index in {key!r} for each value of {name!r}. Received: {counts[unlike[0]]} for "
            f"{lengths[unlike[0]]}. {remedy}"
        )
    if feature.size is None:
        return
    outside = indices[(indices < 0) | (indices >= feature.size)]
    if outside.size:
        raise FeatureError(
            f"Expected indices of {name!r} below its size, {feature.size}, in {key!r}. Received: "
            f"{outside[0]}. {remedy}"
        )


def _column(name: str, feature: RecordFeature, flat: Any, offsets: Any) -> pa.Array:
    values = _values(name, feature, flat)
    lengths = np.diff(offsets)
    if feature.width is not None:
        is_wrong = lengths != feature.width
        if feature.width == 1 or feature.default is not None:
            is_wrong &= lengths > 0
        if is_wrong.any():
            wrong = np.flatnonzero(is_wrong)
            raise FeatureError(
                f"Expected {_counted(feature.width)} of {name!r} a record. Received: {lengths[wrong[0]]}. "
                "Describe it in `features` as tf.io.VarLenFeature if records differ."
            )
    if feature.default is not None and not lengths.all():
        return _with_defaults(feature, values, lengths)
    if feature.is_list:
        return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)
    return values if lengths.all() else values.take(pa.array(offsets[:-1], mask=lengths == 0))


def _counted(width: int) -> str:
    return "one value" if width == 1 else f"{width} values"


def _values(name: str, feature: RecordFeature, values: Sequence[Any]) -> pa.Array:
    if feature.dtype != tf.string:
        return pa.array(values)
    try:
        return pa.array(values, pa.large_binary()).cast(pa.large_string())
    except pa.ArrowInvalid:
        raise FeatureError(
            f"Expected UTF-8 in {name!r}. Received: other bytes. Decode them before they are written, "
            "or leave the feature out of `features`."
        ) from None


def _with_defaults(feature: RecordFeature, values: pa.Array, lengths: Any) -> pa.Array:
    """Records without values have the default ones."""
    width = feature.width or 0
    default = pa.array(list(feature.default or ()), values.type)
    both = pa.concat_arrays([values, default])
    starts = np.where(lengths > 0, np.cumsum(lengths) - lengths, len(values))
    elements = both.take(pa.array((starts[:, None] + np.arange(width)).ravel()))
    if not feature.is_list:
        return elements
    return pa.LargeListArray.from_arrays(pa.array(np.arange(len(lengths) + 1) * width), elements)
