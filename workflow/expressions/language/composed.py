"""Combinations of several verbs: powers, rounding to digits, comparisons, membership and crosses."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from workflow.schema.dtypes import DTYPES

from ...schema.column import Column, Strings
from ...schema.python_number import python_number
from .fingerprints import CROSS_KEY
from .types import ExpressionError
from .verbs import VERBS

if TYPE_CHECKING:
    from .tree import Expression

# The largest power of ten that a float64 holds exactly.
_MOST_DIGITS = 22
# From these on every float is an integer.
_WHOLE = {"float32": 2.0**23, "float64": 2.0**52}


def power(base: Expression, exponent: Any) -> Expression:
    """A column to the power of an exponent.

    A product where this is exact: for integers with an exponent from 0 on, which stay integers and
    overflow by wrapping around, and for squares. Else the verb `power`, which makes floats.
    """
    exponent = python_number(exponent)
    if base.type.kind in ("int", "uint") and type(exponent) is int and exponent >= 0:
        return _product(base, exponent)
    if base.type.kind == "float" and isinstance(exponent, int | float) and exponent == 2:
        return base * base
    return base._call("power", base, exponent)  # noqa: SLF001


def _product(base: Expression, exponent: int) -> Expression:
    """Integers by repeated squaring; exponent 0 gives 1, and null for null."""
    made, square = None, base
    while exponent:
        if exponent & 1:
            made = square if made is None else made * square
        exponent >>= 1
        square = square * square if exponent else square
    return base * 0 + 1 if made is None else made


def rounded(column: Expression, decimals: int) -> Expression:
    """A column rounded to decimal digits as in numpy; integers stay integers.

    Raises:
        ExpressionError: an invalid number of digits.
    """
    decimals = python_number(decimals)
    if type(decimals) is not int or abs(decimals) > _MOST_DIGITS:
        raise ExpressionError(
            f"round takes from {-_MOST_DIGITS} to {_MOST_DIGITS} digits. Received: {decimals!r:.200}."
        )
    if column.type.kind in ("int", "uint"):
        whole = column if decimals >= 0 else rounded(column.cast("float64"), decimals)
        return whole.cast(column.type.dtype)
    if decimals == 0:
        return column._call("round", column)  # noqa: SLF001
    scale = 10.0 ** abs(decimals)
    if decimals < 0:
        return (column / scale).round() * scale
    scaled = column * scale
    fraction = abs(scaled) < _WHOLE[scaled.type.dtype]
    return column._call("where", fraction, scaled.round() / scale, column)  # noqa: SLF001


def compared(verb: str, first: Expression, second: Expression) -> Expression | None:
    """A column of uint64 beside one of signed integers, compared exactly; None for others.

    Their common dtype is float64, which rounds both from 2**53 on.
    """
    if second.type.dtype == "uint64":
        verb, first, second = VERBS[verb].mirrored, second, first
    if first.type.dtype != "uint64" or second.type.kind != "int":
        return None
    most = int(np.iinfo(np.int64).max)
    # As int64 the larger ones are `most`, which is the answer unless `most` is what they meet.
    made = first._call(verb, first.cast("int64"), second)  # noqa: SLF001
    changed = (first > most) & (second == most)
    return made if verb in ("less", "greater_equal") else made ^ changed


def crossed(columns: Sequence[Expression], num_buckets: int, key: int | None = None) -> Expression:
    """TensorFlow's hashed cross of the values of several columns, uint64 below `num_buckets`.

    As `tf.sparse.cross_hashed`: the fingerprints of strings, and integers and booleans as they are,
    joined to the key in the order of the columns. Null if one of the values is.

    Args:
        columns: integers, booleans or strings.
        num_buckets: the number of ids.
        key: 64 bits; None or 0 for TensorFlow's own key.
    """
    made: Any = key or CROSS_KEY
    for column in columns:
        value = column.cast("int64") if column.type.kind == "bool" else column
        value = column.fingerprint64() if column.type.kind == "string" else value
        made = column._call("fingerprint_cat64", made, value)  # noqa: SLF001
    whole: Expression = made % num_buckets
    return whole


def is_in(column: Expression, values: Iterable[Any]) -> Expression:
    """Whether each value of a column is one of some values.

    Raises:
        ExpressionError: not a list, a null in it, or texts for a column of numbers.
    """
    wanted = _values(values)
    texts = [isinstance(value, str) for value in wanted]
    if any(text != (column.type.kind == "string") for text in texts):
        raise ExpressionError(
            f"isin needs values of the column's kind, {column.type}. Received: {wanted!r:.200}."
        )
    reals = [value for value in wanted if column.type.kind == "float" or type(value) is float]
    others = [] if column.type.kind == "float" else [v for v in wanted if type(v) is not float]
    found, keys = _any_number(column, reals), _keys(others, column.type.dtype)
    if keys is not None:
        found.append(column.lookup(keys) >= 0)
    # False, and null for null, if no value can match.
    return reduce(operator.or_, found or [column < column])  # noqa: PLR0124


def _values(values: Iterable[Any]) -> list[Any]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise ExpressionError(f"isin takes a list of values. Received: {values!r:.200}.")
    plain = [python_number(value) for value in values]
    wrong = [v for v in plain if not isinstance(v, bool | int | float | str) or v != v]  # noqa: PLR0124 - NaN
    if wrong:
        raise ExpressionError(
            "isin takes numbers, booleans or texts; for null write `column.isin(values) | "
            f"column.is_null()`. Received: {wrong[0]!r:.200}."
        )
    return list(dict.fromkeys(plain))


def _any_number(column: Expression, wanted: list[float]) -> list[Expression]:
    """Conditions, one of which holds if a value equals one of some numbers, compared as floats.

    For a value among the numbers, the count of numbers up to it and the count of numbers from it on
    add up to one more than their total; NaN is counted in neither. So two searches are enough,
    however many numbers there are.
    """
    if not wanted:
        return []
    reals = column if column.type.kind == "float" else column.cast("float64")
    dtype = DTYPES[reals.type.dtype].numpy
    # A number beyond the dtype's largest equals none of its values.
    held = [float(v) for v in wanted if abs(v) == math.inf or abs(v) <= float(np.finfo(dtype).max)]
    numbers = np.unique(np.array(held, dtype))
    found = [reals == value for value in numbers[np.isinf(numbers)]]
    finite = numbers[np.isfinite(numbers)]
    if len(finite):
        up_to, onwards = (
            side.bucketize(Column(edges))
            for side, edges in ((reals, finite), (-reals, -finite[::-1]))
        )
        found.append(up_to + onwards > len(finite))
    return found


def _keys(wanted: list[Any], dtype: str) -> Column | None:
    """The values that a column of a dtype can hold, as a table; None if there are none."""
    if dtype in ("string", "bool"):
        known = [value for value in wanted if isinstance(value, str) or value in (0, 1)]
        keys = Strings.of(known) if dtype == "string" else np.array(known, bool)
    else:
        limits = np.iinfo(np.uint64 if dtype == "uint64" else np.int64)
        known = [int(value) for value in wanted if limits.min <= value <= limits.max]
        keys = np.array(known, limits.dtype)
    return Column(keys) if known else None
