"""Number columns of equal form, processed together: calls dominate the time of small requests.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..schema.column import Array, Column
from ..schema.dtypes import DTYPES
from .format import WireColumn, encode, expect_no_nan, present

Group = tuple[WireColumn, tuple[str, ...]]


def groups_of(columns: Iterable[WireColumn]) -> tuple[Group, ...]:
    """The scalar columns of numbers by form: one of each group, and the names of all.

    Example:
        >>> groups_of([WireColumn("a", "int64"), WireColumn("b", "int64")])[0][1]
        ('a', 'b')
    """
    alike: dict[tuple[str, bool], list[WireColumn]] = {}
    for column in columns:
        is_number = DTYPES[column.dtype].kind in ("int", "uint", "float")
        if column.layout == "scalar" and is_number:
            alike.setdefault((column.dtype, column.nullable), []).append(column)
    return tuple((same[0], tuple(c.name for c in same)) for same in alike.values())


def decode_group(group: Group, requests: Sequence[Mapping[str, Array]]) -> dict[str, Column]:
    """The columns of a group, concatenated over many requests; null codes become nulls.

    Args:
        group: one of `groups_of`.
        requests: the tensors (N, 1) of each request, with one N for all tensors of a request.

    Raises:
        SchemaError: a NaN in one of the columns, if no null can be sent.

    Example:
        >>> group = (WireColumn("a", "int32", nullable=True), ("a",))
        >>> decode_group(group, [{"a": np.array([[7], [-(2**31)]], np.int32)}])["a"].valid
        array([ True, False])
    """
    column, names = group
    joint = np.concatenate([request[name] for name in names for request in requests])
    values = joint.reshape(len(names), -1)
    expect_no_nan(column, values)
    valid = present(column, values)
    if valid is None:
        return dict(zip(names, map(Column, values), strict=True))
    masks = [None if mask.all() else mask for mask in valid]
    return dict(zip(names, map(Column, values, masks), strict=True))


def encode_group(group: Group, columns: Mapping[str, Column]) -> dict[str, Array]:
    """The tensors (N, 1) that carry the columns of a group, all of N rows.

    Raises:
        SchemaError: as in `encode`.

    Example:
        >>> group = (WireColumn("a", "int32"), ("a", "b"))
        >>> columns = {"a": Column(np.array([7, 8])), "b": Column(np.array([1, 2]))}
        >>> encode_group(group, columns)["b"].tolist()
        [[1], [2]]
    """
    column, names = group
    given = [columns[name] for name in names]
    if column.nullable or any(each.valid is not None for each in given):
        return {
            name: tensor
            for name, each in zip(names, given, strict=True)
            for name, tensor in encode(replace(column, name=name), each).items()
        }
    joint = np.concatenate([each.array for each in given])
    tensors = joint.astype(DTYPES[column.dtype].numpy, copy=False).reshape(len(names), -1, 1)
    return dict(zip(names, tensors, strict=True))
