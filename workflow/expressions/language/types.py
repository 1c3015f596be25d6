"""Static types of expressions: the type of each step, known without data.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...schema.column import Column, Strings
from ...schema.dtypes import DTYPES, DType, dtype_of


class ExpressionError(TypeError):
    """A verb was given operands or parameters that it does not support."""


@dataclass(frozen=True)
class Type:
    """The static type of an expression.

    Attributes:
        dtype: the element type.
        is_list: whether each row holds a list.
        nullable: whether a row, or an element of a list, may be null.
        value: the value of every row, if the expression is a constant.
    """

    dtype: str
    is_list: bool = False
    nullable: bool = True
    # Not part of the type, and not inherited by expressions that use the constant.
    value: Any = field(default=None, init=False, compare=False)

    @classmethod
    def of_constant(cls, value: Any, dtype: str) -> Type:
        """The type of a constant, whose value is checked against the dtype.

        Raises:
            ExpressionError: the value is of another type, or does not fit.
        """
        check_constant(value, dtype)
        made = cls(dtype, nullable=False)
        object.__setattr__(made, "value", value)
        return made

    @property
    def kind(self) -> str:
        """The kind of the element type: "bool", "int", "uint", "float" or "string"."""
        return DTYPES[self.dtype].kind

    @property
    def is_number(self) -> bool:
        """Whether arithmetic is defined."""
        return self.kind in ("int", "uint", "float")

    def __str__(self) -> str:
        return (f"list[{self.dtype}]" if self.is_list else self.dtype) + (
            "?" if self.nullable else ""
        )


# The set of values that a value is aligned with: a number for the rows or for the elements of a
# list; None for a constant, which is aligned with all.
Root = int | None


def check_constant(value: Any, dtype: str) -> None:
    """Check a constant against its dtype.

    Raises:
        ExpressionError: the value is of another type, or does not fit.
    """
    info = DTYPES[dtype]
    fits = type(value) is {"bool": bool, "float": float, "string": str}.get(info.kind, int)
    if fits and info.is_integer:
        limits = np.iinfo(info.numpy)
        fits = bool(limits.min <= value <= limits.max)
    elif fits and info.kind == "float":
        fits = not float(np.finfo(info.numpy).max) < abs(value) < np.inf
    elif fits and info.kind == "string":
        fits = not any("\ud800" <= letter <= "\udfff" for letter in value)  # half a character
    if not fits:
        raise ExpressionError(f"Expected a constant of {dtype}. Received: {value!r:.200}.")


def promote(verb: str, types: Sequence[Type]) -> str:
    """The common dtype of a verb's operands.

    Raises:
        ExpressionError: operands of kinds that cannot be mixed, such as a string and a number.
    """
    first, *rest = types
    dtype = first.dtype
    for other in rest:
        if dtype != other.dtype:
            if "string" in (dtype, other.dtype):
                raise ExpressionError(
                    f"{verb} cannot mix {dtype} and {other.dtype}. "
                    "Make numbers of strings with Categorify first."
                )
            dtype = np.result_type(DTYPES[dtype].numpy, DTYPES[other.dtype].numpy).name
    return dtype_of(dtype).name


def table_dtype(table: Column) -> DType:
    """The element type of a table that is a parameter."""
    return dtype_of("string" if isinstance(table.values, Strings) else table.values.dtype)
