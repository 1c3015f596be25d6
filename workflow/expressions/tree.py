"""Expressions: what an operator lowers to, and what a traced Python function writes down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from workflow.schema import DTYPES, dtype_of

from .column import Column
from .verbs import VERBS, ExpressionError, Root, Type, check_constant, element_root

# numpy's functions that are a verb of another name.
_UFUNCS = {
    "true_divide": "divide",
    "negative": "negate",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "bitwise_xor": "logical_xor",
    "invert": "logical_not",
}

Operand = Any  # an Expression, or a Python or numpy scalar


@dataclass(frozen=True, eq=False, repr=False)
class Expression:
    """A column yet to be computed. Arithmetic, comparison and methods make further ones.

    `LambdaOp` hands these to the user's function, so the methods are the ones people know from
    Polars.

    Example:
        >>> rating = source("rating", Type("float64"))
        >>> (rating > 3).cast("int8")
        cast(greater(rating, 3.0), dtype='int8')
    """

    verb: str
    operands: tuple[Expression, ...]
    parameters: Mapping[str, Any]
    type: Type

    @cached_property
    def root(self) -> Root:
        """Which list the elements stand beside; see `verbs.element_root`."""
        if self.verb == "constant":
            return None
        types, roots = [o.type for o in self.operands], [o.root for o in self.operands]
        return element_root(self.verb, self.type, types, roots, id(self))

    # The vocabulary as operators.
    def __add__(self, other: Operand) -> Expression:
        return call("add", self, other)

    def __radd__(self, other: Operand) -> Expression:
        return call("add", other, self)

    def __sub__(self, other: Operand) -> Expression:
        return call("subtract", self, other)

    def __rsub__(self, other: Operand) -> Expression:
        return call("subtract", other, self)

    def __mul__(self, other: Operand) -> Expression:
        return call("multiply", self, other)

    def __rmul__(self, other: Operand) -> Expression:
        return call("multiply", other, self)

    def __truediv__(self, other: Operand) -> Expression:
        return call("divide", self, other)

    def __rtruediv__(self, other: Operand) -> Expression:
        return call("divide", other, self)

    def __neg__(self) -> Expression:
        return call("negate", self)

    def __abs__(self) -> Expression:
        return call("absolute", self)

    def __eq__(self, other: Operand) -> Expression:  # type: ignore[override]
        return call("equal", self, other)

    def __ne__(self, other: Operand) -> Expression:  # type: ignore[override]
        return call("not_equal", self, other)

    __hash__ = object.__hash__

    def __lt__(self, other: Operand) -> Expression:
        return call("less", self, other)

    def __le__(self, other: Operand) -> Expression:
        return call("less_equal", self, other)

    def __gt__(self, other: Operand) -> Expression:
        return call("greater", self, other)

    def __ge__(self, other: Operand) -> Expression:
        return call("greater_equal", self, other)

    def __and__(self, other: Operand) -> Expression:
        return call("logical_and", self, other)

    def __or__(self, other: Operand) -> Expression:
        return call("logical_or", self, other)

    def __xor__(self, other: Operand) -> Expression:
        return call("logical_xor", self, other)

    def __invert__(self) -> Expression:
        return call("logical_not", self)

    # The vocabulary as methods.
    def cast(self, dtype: Any) -> Expression:
        """Convert to a dtype: saturating at an integer's ends, fractions dropped, NaN to 0."""
        return call("cast", self, dtype=dtype_of(dtype).name)

    def abs(self) -> Expression:
        """The magnitude."""
        return call("absolute", self)

    def log1p(self) -> Expression:
        """log(1 + x)."""
        return call("log1p", self)

    def log(self) -> Expression:
        """The natural logarithm."""
        return call("log", self)

    def exp(self) -> Expression:
        """The exponential."""
        return call("exp", self)

    def sqrt(self) -> Expression:
        """The square root."""
        return call("sqrt", self)

    def floor(self) -> Expression:
        """The nearest whole number below."""
        return call("floor", self)

    def ceil(self) -> Expression:
        """The nearest whole number above."""
        return call("ceil", self)

    def clip(self, lower: float | None = None, upper: float | None = None) -> Expression:
        """Move values outside [lower, upper] to the nearer bound."""
        return call("clip", self, lower=lower, upper=upper)

    def is_null(self) -> Expression:
        """True where the value is null (for a float: or arrived as NaN)."""
        return call("is_null", self)

    def fill_null(self, value: Operand) -> Expression:
        """The value instead of null."""
        return call("fill_null", self, value)

    def list_length(self) -> Expression:
        """How many elements each row of a list column holds, int64."""
        return call("list_length", self)

    def lookup(self, keys: Column, first: int = 0, missing: int = -1) -> Expression:
        """`first` + the position of each value among the keys, or `missing`."""
        return call("lookup", self, keys=keys, first=first, missing=missing)

    def gather(self, table: Column) -> Expression:
        """The row of a table at each position."""
        return call("gather", self, table=table)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any
    ) -> Expression:
        verb = _UFUNCS.get(ufunc.__name__, ufunc.__name__)
        if method != "__call__" or options or verb not in VERBS:
            raise ExpressionError(f"numpy.{ufunc.__name__} has no counterpart here. {vocabulary()}")
        return call(verb, *inputs)

    def __bool__(self) -> NoReturn:
        raise ExpressionError(
            "A column is not one truth value: write where(condition, a, b) instead of `if`, "
            "and & | ~ instead of `and or not`."
        )

    def __iter__(self) -> NoReturn:
        raise ExpressionError(f"A column cannot be looped over. {vocabulary()}")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        hint = " Did you mean cast?" if name == "astype" else ""
        raise ExpressionError(f"A column has no method {name!r}.{hint} {vocabulary()}")

    def __repr__(self) -> str:
        if self.verb == "source":
            return str(self.parameters["name"])
        if self.verb == "constant":
            return repr(self.parameters["value"])
        parts = [repr(operand) for operand in self.operands]
        parts += [
            f"{k}={'...' if isinstance(v, Column) else repr(v)}" for k, v in self.parameters.items()
        ]
        return f"{self.verb}({', '.join(parts)})"


def source(name: str, type_: Type) -> Expression:
    """A column of the data."""
    return Expression("source", (), {"name": name}, type_)


def constant(value: Any, like: Type | None = None) -> Expression:
    """A value that every row has; a number takes the type of the column it meets, if it fits.

    Raises:
        ExpressionError: a value that is not a bool, a number or a string.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if not isinstance(value, bool | int | float | str):
        raise ExpressionError(
            f"Expected a column, a number, a bool or a string. Received: {value!r:.200}."
        )
    dtype = _literal_dtype(value, like.dtype if like else None)
    if DTYPES[dtype].kind == "float":
        value = float(value)
    check_constant(value, dtype)
    return Expression("constant", (), {"value": value}, Type(dtype, nullable=False))


def _literal_dtype(value: bool | float | str, like: str | None) -> str:
    own = {bool: "bool", int: "int64", float: "float64", str: "string"}[type(value)]
    if like is None or isinstance(value, bool | str):
        return own
    info = DTYPES[like]
    if info.kind == "float":
        too_large = float(np.finfo(info.numpy).max) < abs(value) < float("inf")
        return "float64" if too_large else like
    if isinstance(value, int) and info.is_integer:
        limits = np.iinfo(info.numpy)
        return like if limits.min <= value <= limits.max else own
    return own


def call(verb: str, *operands: Operand, **parameters: Any) -> Expression:
    """An expression that applies a verb, its type checked.

    Raises:
        ExpressionError: operands that the verb does not take, or of different lists.
    """
    like = next((o.type for o in operands if isinstance(o, Expression)), None)
    arguments = tuple(o if isinstance(o, Expression) else constant(o, like) for o in operands)
    type_ = VERBS[verb].infer([a.type for a in arguments], parameters)
    made = Expression(verb, arguments, parameters, type_)
    _ = made.root  # lists that do not belong together are refused here, where the caller is known
    return made


def where(condition: Expression, then: Operand, otherwise: Operand) -> Expression:
    """`then` in the rows where the condition holds, `otherwise` in the rest.

    Example:
        >>> age = source("age", Type("int32"))
        >>> where(age > 100, 100, age)
        where(greater(age, 100), 100, age)
    """
    branches = [b for b in (then, otherwise) if isinstance(b, Expression)]
    like = branches[0].type if branches else None
    then, otherwise = (
        b if isinstance(b, Expression) else constant(b, like) for b in (then, otherwise)
    )
    return call("where", condition, then, otherwise)


def vocabulary() -> str:
    """What a column knows, for error messages."""
    methods = "cast, clip, fill_null, is_null, abs, log, log1p, exp, sqrt, floor, ceil, list_length"
    return f"A column knows + - * / == != < <= > >= & | ^ ~, where(condition, a, b) and: {methods}."
