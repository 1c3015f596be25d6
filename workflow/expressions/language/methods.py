"""Operators and methods of a column, one for each verb."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn, cast

import numpy as np

from workflow.schema.dtypes import dtype_of

from ...schema.column import Column
from ...schema.python_number import python_number
from .composed import is_in, power, rounded
from .types import ExpressionError, check_constant
from .verbs import VERBS

if TYPE_CHECKING:
    from .tree import Expression

# numpy's functions whose verb has another name.
_UFUNCS = {
    "true_divide": "divide",
    "remainder": "modulo",
    "negative": "negate",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "invert": "logical_not",
    "rint": "round",
}

# Names that users of pandas expect.
_MEANT = {
    "astype": "cast",
    "fillna": "fill_null",
    "isna": "is_null",
    "isnull": "is_null",
    "notna": "~column.is_null()",
    "notnull": "~column.is_null()",
    "is_in": "isin",
    "pow": "column ** exponent",
    "dt": "ops.DatePart",
}

Operand = Any  # an Expression, or a Python or numpy scalar


class Methods(ABC):
    """The verbs as operators and methods of a column."""

    @staticmethod
    @abstractmethod
    def _call(verb: str, *operands: Operand, **parameters: Any) -> Expression:
        """The expression that applies a verb."""

    # The verbs as operators.
    def __add__(self, other: Operand) -> Expression:
        return self._call("add", self, other)

    def __radd__(self, other: Operand) -> Expression:
        return self._call("add", other, self)

    def __sub__(self, other: Operand) -> Expression:
        return self._call("subtract", self, other)

    def __rsub__(self, other: Operand) -> Expression:
        return self._call("subtract", other, self)

    def __mul__(self, other: Operand) -> Expression:
        return self._call("multiply", self, other)

    def __rmul__(self, other: Operand) -> Expression:
        return self._call("multiply", other, self)

    def __truediv__(self, other: Operand) -> Expression:
        return self._call("divide", self, other)

    def __rtruediv__(self, other: Operand) -> Expression:
        return self._call("divide", other, self)

    def __floordiv__(self, other: Operand) -> Expression:
        return self._call("floor_divide", self, other)

    def __rfloordiv__(self, other: Operand) -> Expression:
        return self._call("floor_divide", other, self)

    def __mod__(self, other: Operand) -> Expression:
        return self._call("modulo", self, other)

    def __rmod__(self, other: Operand) -> Expression:
        return self._call("modulo", other, self)

    def __pow__(self, exponent: Operand) -> Expression:
        return power(cast("Expression", self), exponent)

    def __rpow__(self, base: Operand) -> Expression:
        return self._call("power", base, self)

    def __neg__(self) -> Expression:
        return self._call("negate", self)

    def __abs__(self) -> Expression:
        return self._call("absolute", self)

    def __round__(self, decimals: int = 0) -> Expression:
        return self.round(decimals)

    def __eq__(self, other: Operand) -> Expression:  # type: ignore[override]
        return self._call("equal", self, other)

    def __ne__(self, other: Operand) -> Expression:  # type: ignore[override]
        return self._call("not_equal", self, other)

    __hash__ = object.__hash__

    def __lt__(self, other: Operand) -> Expression:
        return self._call("less", self, other)

    def __le__(self, other: Operand) -> Expression:
        return self._call("less_equal", self, other)

    def __gt__(self, other: Operand) -> Expression:
        return self._call("greater", self, other)

    def __ge__(self, other: Operand) -> Expression:
        return self._call("greater_equal", self, other)

    def __and__(self, other: Operand) -> Expression:
        return self._call("logical_and", self, other)

    def __or__(self, other: Operand) -> Expression:
        return self._call("logical_or", self, other)

    def __xor__(self, other: Operand) -> Expression:
        return self._call("logical_xor", self, other)

    def __invert__(self) -> Expression:
        return self._call("logical_not", self)

    # The verbs as methods.
    def cast(self, dtype: Any) -> Expression:
        """Convert to a dtype: saturating at an integer type's limits, truncating, NaN to 0."""
        return self._call("cast", self, dtype=dtype_of(dtype).name)

    def abs(self) -> Expression:
        """The magnitude."""
        return self._call("absolute", self)

    def log1p(self) -> Expression:
        """log(1 + x)."""
        return self._call("log1p", self)

    def log(self) -> Expression:
        """The natural logarithm."""
        return self._call("log", self)

    def exp(self) -> Expression:
        """The exponential."""
        return self._call("exp", self)

    def sin(self) -> Expression:
        """The sine of an angle in radians."""
        return self._call("sin", self)

    def cos(self) -> Expression:
        """The cosine of an angle in radians."""
        return self._call("cos", self)

    def tanh(self) -> Expression:
        """The hyperbolic tangent."""
        return self._call("tanh", self)

    def sqrt(self) -> Expression:
        """The square root."""
        return self._call("sqrt", self)

    def floor(self) -> Expression:
        """The greatest integer that is not above the value."""
        return self._call("floor", self)

    def ceil(self) -> Expression:
        """The least integer that is not below the value."""
        return self._call("ceil", self)

    def round(self, decimals: int = 0) -> Expression:
        """The nearest number with as many decimal digits; ties go to an even last digit."""
        return rounded(cast("Expression", self), decimals)

    def isin(self, values: Iterable[Any]) -> Expression:
        """Whether the value is one of some values; null for null."""
        return is_in(cast("Expression", self), values)

    def clip(self, lower: float | None = None, upper: float | None = None) -> Expression:
        """Move values outside [lower, upper] to the nearer bound."""
        if isinstance(lower, Methods) or isinstance(upper, Methods):
            raise ExpressionError(
                "clip takes numbers as bounds. Received: a column. Write "
                "np.minimum(np.maximum(column, lower), upper), whose bounds may be columns."
            )
        return self._call("clip", self, lower=lower, upper=upper)

    def is_null(self) -> Expression:
        """True if the value is null (for a float: or was NaN on arrival)."""
        return self._call("is_null", self)

    def fill_null(self, value: Operand) -> Expression:
        """The value instead of null."""
        return self._call("fill_null", self, value)

    def hash(self, seed: int = 0) -> Expression:
        """A pseudo-random number from 0 to 2**63 - 1, int64; see `hashing`."""
        return self._call("hash", self, seed=seed)

    def hash_bucket(self, num_buckets: int, seed: int = 0) -> Expression:
        """A pseudo-random number from 0 to `num_buckets` - 1, int64."""
        num_buckets = python_number(num_buckets)
        check_constant(num_buckets, "int64")
        if num_buckets < 1:
            raise ExpressionError(f"Expected at least one bucket. Received: {num_buckets}.")
        return self.hash(seed) % num_buckets

    def fingerprint64(self) -> Expression:
        """TensorFlow's fingerprint of a text or of an integer's digits, uint64; see `fingerprints`."""
        return self._call("fingerprint64", self)

    def fingerprint_cat64(self, other: Operand) -> Expression:
        """TensorFlow's fingerprint of two fingerprints in their order, uint64."""
        return self._call("fingerprint_cat64", self, other)

    def list_length(self) -> Expression:
        """The number of elements in each row of a list column, int64."""
        return self._call("list_length", self)

    def list_slice(self, start: int, end: int | None = None) -> Expression:
        """The elements of each row of a list column in Python's `row[start:end]`."""
        return self._call("list_slice", self, start=start, end=end)

    def list_pad(self, length: int, value: Operand = 0) -> Expression:
        """Exactly `length` elements of each row of a list column: cut or padded at the end."""
        return self._call("list_pad", self, value, length=length)

    def repeat_as(self, lists: Operand) -> Expression:
        """The value of each row as often as the row of a list column has elements, as a list."""
        return self._call("repeat_as", self, lists)

    def bucketize(self, boundaries: Column) -> Expression:
        """The number of ascending boundaries that each value reaches, int64."""
        return self._call("bucketize", self, boundaries=boundaries)

    def lookup(self, keys: Column, first: int = 0, missing: int = -1) -> Expression:
        """`first` + the position of each value among the keys, or `missing`."""
        return self._call("lookup", self, keys=keys, first=first, missing=missing)

    def gather(self, table: Column) -> Expression:
        """The row of a table at each position."""
        return self._call("gather", self, table=table)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any
    ) -> Expression:
        verb = _UFUNCS.get(ufunc.__name__, ufunc.__name__)
        if method != "__call__" or options or verb not in VERBS:
            raise ExpressionError(f"numpy.{ufunc.__name__} has no counterpart here. {vocabulary()}")
        if verb == "power" and isinstance(inputs[0], Methods):
            return power(cast("Expression", inputs[0]), inputs[1])
        return self._call(verb, *inputs)

    def __bool__(self) -> NoReturn:
        raise ExpressionError(
            "A column has no single truth value: write where(condition, a, b) instead of `if`, "
            "and & | ~ instead of `and or not`."
        )

    def __iter__(self) -> NoReturn:
        raise ExpressionError(f"A column cannot be looped over. {vocabulary()}")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        hint = f" Did you mean {_MEANT[name]}?" if name in _MEANT else ""
        raise ExpressionError(f"A column has no method {name!r}.{hint} {vocabulary()}")


def vocabulary() -> str:
    """The operators and methods of a column, for error messages."""
    # Verbs with a table are for operators that learn.
    tables = {name for name, verb in VERBS.items() if verb.tables}
    methods = [name for name in vars(Methods) if not name.startswith("_") and name not in tables]
    return (
        "A column supports + - * / // % ** == != < <= > >= & | ^ ~, where(condition, a, b) and: "
        f"{', '.join(methods)}."
    )
