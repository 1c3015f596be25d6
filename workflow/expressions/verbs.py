"""The closed vocabulary: every verb's arguments, parameters and result type.

An interpreter is a table with one entry for each verb here. The rules that they all keep:

- Null in, null out, unless the verb's line says otherwise. `logical_and` and `logical_or` are
  Kleene's: False and null is False.
- A float that arrives as NaN is null from the start. NaN that arithmetic makes follows IEEE 754.
- Operands are converted to the common type (numpy's promotion) before arithmetic and comparison.
- A verb over a list column works on its elements; every list operand comes from the same rows.
- `cast` saturates at the ends of an integer type, drops fractions and makes NaN 0.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..schema import DTYPES, DType, dtype_of  # noqa: TID252 - the exported copy has no package `workflow`
from .column import Column, Strings


class ExpressionError(TypeError):
    """A verb was given operands or parameters that it does not take."""


@dataclass(frozen=True)
class Type:
    """The static type of an expression."""

    dtype: str
    is_list: bool = False
    nullable: bool = True

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


# What a value stands beside: a number for each list that elements come from and for the rows,
# None for a constant, which stands beside all.
Root = int | None


def element_root(
    verb: str, result: Type, types: Sequence[Type], roots: Sequence[Root], own: Root
) -> Root:
    """Which list the elements of a result stand beside.

    Args:
        verb: for the message.
        result: the result's type.
        types: the operands' types.
        roots: the operands' roots.
        own: the root of a result that begins anew: a source, a table's lists, a scalar.

    Raises:
        ExpressionError: elements of a list would meet a scalar column or another list.
    """
    if types and all(root is None for root in roots):
        return None
    if not (result.is_list and any(t.is_list for t in types)):
        return own
    shared = {root for root in roots if root is not None}
    if len(shared) > 1:
        raise ExpressionError(
            f"{verb} over a list works on its elements, which can meet constants and what is made of "
            f"the same elements. Received: {', '.join(map(str, types))}."
        )
    return shared.pop()


def check_constant(value: Any, dtype: str) -> None:
    """Hold a constant to its dtype.

    Raises:
        ExpressionError: the value is of another type, or does not fit.
    """
    info = DTYPES[dtype]
    fits = type(value) is {"bool": bool, "float": float, "string": str}.get(info.kind, int)
    if fits and info.is_integer:
        limits = np.iinfo(info.numpy)
        fits = bool(limits.min <= value <= limits.max)
    elif fits and dtype == "float32":
        fits = not float(np.finfo(np.float32).max) < abs(value) < np.inf
    if not fits:
        raise ExpressionError(f"Expected a constant of {dtype}. Received: {value!r:.200}.")


Infer = Callable[[Sequence[Type], Mapping[str, Any]], Type]


@dataclass(frozen=True)
class Verb:
    """A verb: its name, what it takes and what type comes out.

    Attributes:
        name: as it stands in saved programs.
        arity: the number of operands.
        parameters: names and Python types of the static parameters.
        infer: the result type from the operands' types and the parameters.
    """

    name: str
    arity: int
    parameters: Mapping[str, type | tuple[type, ...]]
    infer: Infer


def promote(verb: str, types: Sequence[Type]) -> str:
    """The dtype in which a verb meets its operands.

    Raises:
        ExpressionError: operands of kinds that do not mix, such as a string and a number.
    """
    first, *rest = types
    dtype = first.dtype
    for other in rest:
        if dtype != other.dtype:
            if "string" in (dtype, other.dtype):
                raise ExpressionError(f"{verb} cannot mix {dtype} and {other.dtype}.")
            dtype = np.result_type(DTYPES[dtype].numpy, DTYPES[other.dtype].numpy).name
    return dtype_of(dtype).name


def _joint(types: Sequence[Type], dtype: str) -> Type:
    return Type(dtype, any(t.is_list for t in types), any(t.nullable for t in types))


def _numbers(verb: str, types: Sequence[Type]) -> None:
    for operand in types:
        if not operand.is_number:
            raise ExpressionError(f"{verb} is defined for numbers. Received: {operand}.")


def _arithmetic(verb: str) -> Infer:
    def infer(types: Sequence[Type], _: Mapping[str, Any]) -> Type:
        _numbers(verb, types)
        return _joint(types, promote(verb, types))

    return infer


def _real(verb: str) -> Infer:
    """Float32 stays float32; every other number is computed in float64."""

    def infer(types: Sequence[Type], _: Mapping[str, Any]) -> Type:
        _numbers(verb, types)
        return _joint(types, "float32" if all(t.dtype == "float32" for t in types) else "float64")

    return infer


def _comparison(verb: str) -> Infer:
    def infer(types: Sequence[Type], _: Mapping[str, Any]) -> Type:
        promote(verb, types)
        return _joint(types, "bool")

    return infer


def _logic(verb: str) -> Infer:
    def infer(types: Sequence[Type], _: Mapping[str, Any]) -> Type:
        if any(t.kind != "bool" for t in types):
            raise ExpressionError(
                f"{verb} is defined for booleans. Received: {', '.join(map(str, types))}."
            )
        return _joint(types, "bool")

    return infer


def _cast(types: Sequence[Type], parameters: Mapping[str, Any]) -> Type:
    target = dtype_of(parameters["dtype"])
    if (types[0].kind == "string") != (target.kind == "string"):
        raise ExpressionError(
            f"cast does not go from {types[0]} to {target.name}. Use Categorify for strings."
        )
    return replace(types[0], dtype=target.name)


def _where(types: Sequence[Type], _: Mapping[str, Any]) -> Type:
    if types[0].kind != "bool":
        raise ExpressionError(f"where needs a boolean condition. Received: {types[0]}.")
    return _joint(types, promote("where", types[1:]))


def _fill_null(types: Sequence[Type], _: Mapping[str, Any]) -> Type:
    return replace(_joint(types, promote("fill_null", types)), nullable=types[1].nullable)


def _clip(types: Sequence[Type], parameters: Mapping[str, Any]) -> Type:
    _numbers("clip", types)
    lower, upper = parameters["lower"], parameters["upper"]
    given = [bound for bound in (lower, upper) if bound is not None]
    if not given or not all(bound == bound for bound in given) or given[0] > given[-1]:  # noqa: PLR0124 - NaN
        raise ExpressionError(
            f"clip needs a lower or an upper bound, in this order. Received: lower={lower!r}, upper={upper!r}."
        )
    return types[0]


def _lookup(types: Sequence[Type], parameters: Mapping[str, Any]) -> Type:
    keys: Column = parameters["keys"]
    have, want = types[0].kind, table_dtype(keys).kind
    if keys.is_list or keys.valid is not None or "float" in (have, want):
        raise ExpressionError(
            f"lookup needs plain keys, of integers, booleans or strings. Received: {types[0]}."
        )
    if have != want and {have, want} != {"int", "uint"}:
        raise ExpressionError(
            f"lookup cannot find {types[0]} among keys that are {table_dtype(keys).name}."
        )
    first, missing = parameters["first"], parameters["missing"]
    if not -(2**62) <= min(first, missing) <= max(first, missing) <= 2**62:
        raise ExpressionError(
            f"lookup makes int64 positions. Received: first={first}, missing={missing}."
        )
    return replace(types[0], dtype="int64")


def table_dtype(table: Column) -> DType:
    """The element type of a table that is a parameter."""
    return dtype_of("string" if isinstance(table.values, Strings) else table.values.dtype)


def _gather(types: Sequence[Type], parameters: Mapping[str, Any]) -> Type:
    table: Column = parameters["table"]
    if not DTYPES[types[0].dtype].is_integer:
        raise ExpressionError(f"gather needs integer positions. Received: {types[0]}.")
    if table.is_list and types[0].is_list:
        raise ExpressionError("gather cannot put lists into lists.")
    # A missing row of a table of lists is an empty list, not a null.
    nullable = table.valid is not None if table.is_list else True
    return Type(table_dtype(table).name, table.is_list or types[0].is_list, nullable)


def _list_length(types: Sequence[Type], _: Mapping[str, Any]) -> Type:
    if not types[0].is_list:
        raise ExpressionError(f"list_length needs a list column. Received: {types[0]}.")
    return Type("int64", nullable=False)


def _table() -> dict[str, Verb]:
    number = (int, float, type(None))
    verbs = [
        *(
            Verb(n, 2, {}, _arithmetic(n))
            for n in ("add", "subtract", "multiply", "minimum", "maximum")
        ),
        Verb("divide", 2, {}, _real("divide")),
        *(Verb(n, 1, {}, _arithmetic(n)) for n in ("negate", "absolute")),
        *(Verb(n, 1, {}, _real(n)) for n in ("log1p", "log", "exp", "sqrt", "floor", "ceil")),
        *(
            Verb(n, 2, {}, _comparison(n))
            for n in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
        ),
        *(Verb(n, 2, {}, _logic(n)) for n in ("logical_and", "logical_or", "logical_xor")),
        Verb("logical_not", 1, {}, _logic("logical_not")),
        # True where the operand is null; never null itself.
        Verb("is_null", 1, {}, lambda types, _: replace(types[0], dtype="bool", nullable=False)),
        # The first operand, or the second where the first is null.
        Verb("fill_null", 2, {}, _fill_null),
        # The second operand where the first is true, else the third; null where the first is null.
        Verb("where", 3, {}, _where),
        Verb("cast", 1, {"dtype": str}, _cast),
        Verb("clip", 1, {"lower": number, "upper": number}, _clip),
        # `first` + the position among the keys, or `missing` for a value that is no key.
        Verb("lookup", 1, {"keys": Column, "first": int, "missing": int}, _lookup),
        # The row of a table at a position; null (a list: empty) where that is negative or null.
        Verb("gather", 1, {"table": Column}, _gather),
        # How many elements each row holds.
        Verb("list_length", 1, {}, _list_length),
    ]
    return {verb.name: verb for verb in verbs}


VERBS: Mapping[str, Verb] = _table()
