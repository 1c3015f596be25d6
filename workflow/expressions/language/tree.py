"""Expressions: the results of lowering operators and of tracing Python functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from workflow.schema.dtypes import DTYPES

from ...schema.column import Column
from ...schema.python_number import python_number
from .composed import compared
from .methods import Methods, Operand, vocabulary
from .types import ExpressionError, Root, Type
from .verbs import VERBS, element_root


@dataclass(frozen=True, eq=False, repr=False)
class Expression(Methods):
    """A symbolic column. Arithmetic, comparison and methods make further expressions.

    `LambdaOp` passes these to the user's function, so the methods have the names that users know
    from Polars.

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
        """The list that the elements belong to; see `verbs.element_root`."""
        if self.verb == "constant":
            return None
        types, roots = [o.type for o in self.operands], [o.root for o in self.operands]
        return element_root(self.verb, self.type, types, roots, id(self))

    def __array_function__(
        self, function: Callable[..., Any], _: Any, args: Any, options: Any
    ) -> Expression:
        if function not in _FUNCTIONS:
            raise ExpressionError(
                f"numpy.{function.__name__} has no counterpart here. {vocabulary()}"
            )
        return _FUNCTIONS[function](*args, **options)

    @staticmethod
    def _call(verb: str, *operands: Operand, **parameters: Any) -> Expression:
        return call(verb, *operands, **parameters)

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
    """A value that is the same in every row; a number takes the type of the column beside it, if it fits.

    Raises:
        ExpressionError: a value that is not a bool, a number or a string.
    """
    value = python_number(value)
    if not isinstance(value, bool | int | float | str):
        raise ExpressionError(
            f"Expected a column, a number, a bool or a string. Received: {value!r:.200}."
        )
    dtype = _literal_dtype(value, like.dtype if like else None)
    if DTYPES[dtype].kind == "float":
        value = _as_float(value)
    return Expression("constant", (), {"value": value}, Type.of_constant(value, dtype))


def _as_float(value: float | str) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise ExpressionError(
            f"Expected a number that a float64 can hold. Received: {value!r:.60}..."
        ) from error


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
    """An expression that applies a verb, after a check of types.

    Where elements of lists meet a column of one value a row, that is repeated for them.

    Raises:
        ExpressionError: operands that the verb does not support, or from different lists.
    """
    like = next((o.type for o in operands if isinstance(o, Expression)), None)
    arguments = tuple(o if isinstance(o, Expression) else constant(o, like) for o in operands)
    lists = next((a for a in arguments if a.type.is_list), None)
    if VERBS[verb].elementwise and lists is not None:
        arguments = tuple(
            a if a.type.is_list or a.root is None else call("repeat_as", a, lists)
            for a in arguments
        )
    if VERBS[verb].mirrored and (exact := compared(verb, *arguments)) is not None:
        return exact
    parameters = {name: python_number(value) for name, value in parameters.items()}
    type_ = VERBS[verb].type_of([a.type for a in arguments], parameters)
    made = Expression(verb, arguments, parameters, type_)
    _ = made.root  # refuses lists that do not belong together here, where the caller is known
    return made


def where(condition: Expression, then: Operand, otherwise: Operand) -> Expression:
    """`then` in the rows that meet the condition, `otherwise` in the others.

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


# numpy's functions whose method has another name, or that are not universal functions.
_FUNCTIONS: Mapping[Callable[..., Any], Callable[..., Expression]] = {
    np.where: where,
    np.clip: lambda column, a_min=None, a_max=None: column.clip(a_min, a_max),
    np.isin: Methods.isin,
    np.round: Methods.round,
    np.around: Methods.round,
}
