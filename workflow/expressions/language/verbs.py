"""The closed set of verbs: each verb's arguments, parameters and result type.

An interpreter is a table with one entry for each verb here. All of them follow these rules:

- Null in, null out, unless the verb's line says otherwise. `logical_and` and `logical_or` are
  Kleene's: False and null is False.
- A float that is NaN on arrival is null. NaN made by arithmetic follows IEEE 754.
- Operands are converted to the common type (numpy's promotion) before arithmetic and comparison.
- A verb over a list column works on its elements; every list operand comes from the same rows.
  A column of one value a row meets elements after `repeat_as`, which `tree.call` puts in.
  Verbs named `list_` work on whole lists.
- Integer overflow wraps around.
- `cast` saturates at the limits of an integer type, truncates fractions and turns NaN into 0.

Copied into exported models: numpy and the standard library only, Python 3.10.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from ...schema.column import Column
from ...schema.dtypes import DTYPES, dtype_of
from .limits import (
    LONGEST_LIST,
    Limits,
    between,
    hull,
    of_bucketize,
    of_clip,
    of_ends,
    of_gather,
    of_lookup,
    of_modulo,
)
from .types import ExpressionError, Root, Type, promote, table_dtype

# A saved program may be hostile, and a padded batch has this many values for each row.
LONGEST_PADDING = 100_000
# The largest float64.
LARGEST = float(np.finfo(np.float64).max)
# The greatest difference between libraries in an inexact verb, in float64 units of the last place.
MOST_ULPS = 4

Entry = TypeVar("Entry")
Infer = Callable[[Sequence[Type], Mapping[str, Any]], Type]


@dataclass(frozen=True)
class Verb:
    """A verb: its name, its operands and parameters, and its result type.

    Attributes:
        name: its name in saved programs.
        arity: the number of operands.
        parameters: names and Python types of the static parameters.
        infer: computes the result type from the operands' types and the parameters.
        elementwise: whether it works on each value of a list separately.
        lenient: whether the result can be a value although an operand is null.
        exact: whether every interpreter gives the same numbers. Else each computes them in float64
            with its own library, which may be off by `MOST_ULPS`, and rounds them once to the
            result's dtype.
        near_zero: the absolute difference between libraries that is allowed in any case, in units
            of the last place of 1: near a zero of the sine, the rounding of the operand determines
            how many digits are known.
        signed_zero: whether every interpreter gives a zero the same sign. Else it is unspecified:
            of two equal operands numpy and TensorFlow take either as the larger one, Polars
            simplifies x + 0.0 to x, and onnxruntime's Where turns -0.0 into 0.0.
        hands_on: whether each value is an unchanged value of the first operand, or a filling.
        keeps_time: whether the result is a time if one operand is; a difference of two is not.
        converts: whether each value is the first operand's in another dtype.
        reshapes: whether it makes other lists from a list.
        keeps_empty: whether it makes an empty list of an empty list, if it reshapes.
        repeats: whether it repeats the first operand's value of each row for each element of the
            second operand's list.
        limits: computes the least and the greatest integer that it makes, from the parameters and
            the ranges of the operands; None if only the result's dtype limits it.
        reexpressed_on: the engines on which an interpreter's expression is replaced by another one;
            "cudf" is the only one.
        mirrored: the verb that gives the same for operands that have changed places, of a comparison.
        bytes_of: the kinds of operands whose bytes it reads, of a string or of an integer's digits.
            ONNX has no operators for them, and on cuDF they are read between two queries.
        examples: parameters with which the tests and benchmarks try it, without its tables.
    """

    name: str
    arity: int
    parameters: Mapping[str, type | tuple[type, ...]]
    infer: Infer
    elementwise: bool = field(kw_only=True)
    lenient: bool = field(kw_only=True)
    exact: bool = True
    near_zero: int = 0
    signed_zero: bool = True
    hands_on: bool = False
    keeps_time: bool = False
    converts: bool = False
    reshapes: bool = False
    keeps_empty: bool = False
    repeats: bool = False
    limits: Limits | None = None
    reexpressed_on: tuple[str, ...] = ()
    mirrored: str = ""
    bytes_of: tuple[str, ...] = ()
    examples: tuple[Mapping[str, Any], ...] = ({},)

    def type_of(self, types: Sequence[Type], parameters: Mapping[str, Any]) -> Type:
        """The result's type, after a check of the parameters' own types.

        Raises:
            ExpressionError: operands or parameters that the verb does not support.
        """
        for name, value in parameters.items():
            kind = self.parameters[name]
            if isinstance(value, bool) or not isinstance(value, kind):
                kinds = kind if isinstance(kind, tuple) else (kind,)
                names = " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
                raise ExpressionError(
                    f"{self.name} takes {name} as {names}. Received: {value!r:.200}."
                )
        return self.infer(types, parameters)

    @property
    def tables(self) -> tuple[str, ...]:
        """The parameters that are tables, of values or of keys."""
        return tuple(name for name, kind in self.parameters.items() if kind is Column)


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


def _whole_division(verb: str) -> Infer:
    """Nullable because a divisor may be 0, unless it is a constant other than 0."""

    def infer(types: Sequence[Type], _: Mapping[str, Any]) -> Type:
        made = _arithmetic(verb)(types, {})
        if not DTYPES[made.dtype].is_integer:
            raise ExpressionError(
                f"{verb} is defined for integers of a common type. "
                f"Received: {', '.join(map(str, types))}. Cast the column, or take (a / b).floor()."
            )
        return made if types[1].value else replace(made, nullable=True)

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
    # No NaN, and no integer that no float holds.
    known = all(abs(bound) <= LARGEST or abs(bound) == math.inf for bound in given)
    if not given or not known or given[0] > given[-1]:
        raise ExpressionError(
            "clip needs a lower or an upper bound, or both in this order. "
            f"Received: lower={lower!r}, upper={upper!r}."
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
            f"lookup needs first and missing from -2**62 to 2**62. Received: first={first}, missing={missing}."
        )
    return replace(types[0], dtype="int64")


def _gather(types: Sequence[Type], parameters: Mapping[str, Any]) -> Type:
    table: Column = parameters["table"]
    if not DTYPES[types[0].dtype].is_integer:
        raise ExpressionError(f"gather needs integer positions. Received: {types[0]}.")
    if table.is_list and types[0].is_list:
        raise ExpressionError("gather cannot put lists into lists.")
    # A missing row of a table of lists is an empty list, not a null.
    nullable = table.valid is not None if table.is_list else True
    return Type(table_dtype(table).name, table.is_list or types[0].is_list, nullable)


def _hash(types: Sequence[Type], parameters: Mapping[str, Any]) -> Type:
    if types[0].kind == "float":
        raise ExpressionError(
            f"hash is defined for integers, booleans and strings. Received: {types[0]}. "
            "Cast it to integers first."
        )
    seed = parameters["seed"]
    if not 0 <= seed < 2**63:
        raise ExpressionError(f"Expected a seed from 0 to 2**63 - 1. Received: {seed}.")
    return replace(types[0], dtype="int64")


def _fingerprint(types: Sequence[Type], _: Mapping[str, Any]) -> Type:
    if types[0].kind not in ("int", "uint", "string"):
        raise ExpressionError(
            f"fingerprint64 is defined for integers and strings. Received: {types[0]}. "
            "Cast it to integers first."
        )
    return replace(types[0], dtype="uint64")


def _fingerprint_cat(types: Sequence[Type], _: Mapping[str, Any]) -> Type:
    if any(t.kind not in ("int", "uint") for t in types):
        raise ExpressionError(
            "fingerprint_cat64 is defined for integers, such as fingerprints. "
            f"Received: {', '.join(map(str, types))}."
        )
    return _joint(types, "uint64")


def _bucketize(types: Sequence[Type], parameters: Mapping[str, Any]) -> Type:
    _numbers("bucketize", types)
    boundaries: Column = parameters["boundaries"]
    plain = not boundaries.is_list and boundaries.valid is None
    if not plain or table_dtype(boundaries).kind not in ("int", "uint", "float"):
        raise ExpressionError("bucketize needs boundaries that are numbers and not null.")
    if not np.all(boundaries.array[:-1] < boundaries.array[1:]) or np.any(
        boundaries.array != boundaries.array
    ):
        raise ExpressionError(
            f"bucketize needs boundaries that ascend. Received: {boundaries.array[:20].tolist()}."
        )
    return replace(types[0], dtype="int64")


def _lists(verb: str, type_: Type) -> None:
    if not type_.is_list:
        raise ExpressionError(f"{verb} needs a list column. Received: {type_}.")


def _list_length(types: Sequence[Type], _: Mapping[str, Any]) -> Type:
    _lists("list_length", types[0])
    return Type("int64", nullable=False)


def _list_slice(types: Sequence[Type], parameters: Mapping[str, Any]) -> Type:
    _lists("list_slice", types[0])
    bounds = [parameters["start"], parameters["end"] or 0]
    if not all(-(2**62) <= bound <= 2**62 for bound in bounds):
        raise ExpressionError(f"list_slice takes positions in a list. Received: {bounds}.")
    return types[0]


def _list_pad(types: Sequence[Type], parameters: Mapping[str, Any]) -> Type:
    _lists("list_pad", types[0])
    if types[1].value is None:
        raise ExpressionError(f"list_pad pads with a constant. Received: {types[1]}.")
    if not 1 <= parameters["length"] <= LONGEST_PADDING:
        raise ExpressionError(
            f"list_pad makes lists of 1 to {LONGEST_PADDING} elements. "
            f"Received: {parameters['length']}."
        )
    return replace(types[0], dtype=promote("list_pad", types))


def _repeat_as(types: Sequence[Type], _: Mapping[str, Any]) -> Type:
    _lists("repeat_as", types[1])
    if types[0].is_list:
        raise ExpressionError(
            f"repeat_as repeats a column of one value a row. Received: {types[0]}."
        )
    return replace(types[0], is_list=True)


def _is_null(types: Sequence[Type], _: Mapping[str, Any]) -> Type:
    return replace(types[0], dtype="bool", nullable=False)


def _table() -> dict[str, Verb]:
    number = (int, float, type(None))
    bounds = [(0, None), (None, 100), (-1.5, 1.5), (0, 2**40)]
    places = [(-2, None), (0, 2), (1, None), (-3, -1), (2, -1), (0, -1), (5, 2), (2**62, -(2**62))]
    # Of each value, or of each element; null if an operand is.
    strict: Any = {"elementwise": True, "lenient": False}
    lenient: Any = {"elementwise": True, "lenient": True}
    over_lists: Any = {"elementwise": False, "lenient": False}
    verbs = [
        *(
            Verb(
                n,
                2,
                {},
                _arithmetic(n),
                **strict,
                signed_zero=False,
                keeps_time=True,
                limits=limits,
            )
            for n, limits in (
                ("add", of_ends(lambda a, b: a + b)),
                ("subtract", of_ends(lambda a, b: a - b)),
                ("minimum", hull()),
                ("maximum", hull()),
            )
        ),
        Verb(
            "multiply", 2, {}, _arithmetic("multiply"), **strict, limits=of_ends(lambda a, b: a * b)
        ),
        Verb("divide", 2, {}, _real("divide"), **strict, reexpressed_on=("cudf",)),
        # As in Python: rounded down, the remainder with the divisor's sign. Division by 0 gives
        # null.
        Verb("floor_divide", 2, {}, _whole_division("floor_divide"), **strict),
        Verb(
            "modulo",
            2,
            {},
            _whole_division("modulo"),
            **strict,
            limits=of_modulo,
            reexpressed_on=("cudf",),
        ),
        Verb("negate", 1, {}, _arithmetic("negate"), **strict, limits=of_ends(lambda a: -a)),
        Verb("absolute", 1, {}, _arithmetic("absolute"), **strict),
        Verb("log1p", 1, {}, _real("log1p"), **strict, exact=False, reexpressed_on=("cudf",)),
        *(Verb(n, 1, {}, _real(n), **strict, exact=False) for n in ("log", "exp", "tanh")),
        *(Verb(n, 1, {}, _real(n), **strict, exact=False, near_zero=8) for n in ("sin", "cos")),
        # IEEE 754's pow: anything to the power 0 is 1, even NaN; a negative base to a fraction is
        # NaN.
        Verb("power", 2, {}, _real("power"), **strict, exact=False),
        # `round` rounds half to even.
        *(Verb(n, 1, {}, _real(n), **strict) for n in ("sqrt", "floor", "ceil", "round")),
        *(
            Verb(n, 2, {}, _comparison(n), **strict, mirrored=mirrored)
            for n, mirrored in {
                "equal": "equal",
                "not_equal": "not_equal",
                "less": "greater",
                "less_equal": "greater_equal",
                "greater": "less",
                "greater_equal": "less_equal",
            }.items()
        ),
        *(Verb(n, 2, {}, _logic(n), **lenient) for n in ("logical_and", "logical_or")),
        Verb("logical_xor", 2, {}, _logic("logical_xor"), **strict),
        Verb("logical_not", 1, {}, _logic("logical_not"), **strict),
        # True where the operand is null; never null itself.
        Verb("is_null", 1, {}, _is_null, **lenient),
        # The first operand, or the second where the first is null.
        Verb(
            "fill_null",
            2,
            {},
            _fill_null,
            **lenient,
            signed_zero=False,
            hands_on=True,
            keeps_time=True,
            limits=hull(),
        ),
        # The second operand where the first is true, else the third; null where the first is null.
        Verb("where", 3, {}, _where, **lenient, signed_zero=False, keeps_time=True, limits=hull(1)),
        Verb(
            "cast",
            1,
            {"dtype": str},
            _cast,
            **strict,
            converts=True,
            limits=hull(),
            examples=tuple({"dtype": n} for n in DTYPES),
        ),
        Verb(
            "clip",
            1,
            {"lower": number, "upper": number},
            _clip,
            **strict,
            signed_zero=False,
            keeps_time=True,
            limits=of_clip,
            examples=tuple({"lower": lower, "upper": upper} for lower, upper in bounds),
        ),
        # From 0 to 2**63 - 1, equal for equal integers of any type; see hashing.py.
        Verb(
            "hash",
            1,
            {"seed": int},
            _hash,
            **strict,
            limits=between(0, 2**63 - 1),
            bytes_of=("string",),
            examples=tuple({"seed": n} for n in (0, 7, 2**63 - 1)),
        ),
        # TensorFlow's fingerprint of a text, or of an integer's decimal digits; see fingerprints.py.
        Verb("fingerprint64", 1, {}, _fingerprint, **strict, bytes_of=("string", "int", "uint")),
        # TensorFlow's fingerprint of two fingerprints, taken as their 64 bits, in their order.
        Verb("fingerprint_cat64", 2, {}, _fingerprint_cat, **strict),
        # `first` + the position among the keys, or `missing` for a value that is not a key.
        Verb(
            "lookup",
            1,
            {"keys": Column, "first": int, "missing": int},
            _lookup,
            **strict,
            limits=of_lookup,
            reexpressed_on=("cudf",),
            examples=({"first": 3, "missing": 2},),
        ),
        # The row of a table at a position; null (a list: empty) if that is negative or null.
        Verb(
            "gather",
            1,
            {"table": Column},
            _gather,
            **strict,
            limits=of_gather,
            reexpressed_on=("cudf",),
        ),
        # The number of ascending boundaries that are less than or equal to the value.
        Verb(
            "bucketize",
            1,
            {"boundaries": Column},
            _bucketize,
            **strict,
            limits=of_bucketize,
            reexpressed_on=("cudf",),
        ),
        # The number of elements in each row.
        Verb(
            "list_length",
            1,
            {},
            _list_length,
            **over_lists,
            limits=between(0, LONGEST_LIST),
        ),
        # The elements of Python's row[start:end].
        Verb(
            "list_slice",
            1,
            {"start": int, "end": (int, type(None))},
            _list_slice,
            **over_lists,
            hands_on=True,
            keeps_time=True,
            reshapes=True,
            keeps_empty=True,
            limits=hull(),
            examples=tuple({"start": start, "end": end} for start, end in places),
        ),
        # Exactly `length` elements: a longer row is cut, a shorter one padded at its end.
        Verb(
            "list_pad",
            2,
            {"length": int},
            _list_pad,
            **over_lists,
            hands_on=True,
            keeps_time=True,
            reshapes=True,
            limits=hull(),
            examples=tuple({"length": length} for length in (3, 1, 40)),
        ),
        # The value of each row as often as the row of a list column has elements.
        Verb(
            "repeat_as",
            2,
            {},
            _repeat_as,
            **over_lists,
            hands_on=True,
            keeps_time=True,
            repeats=True,
            limits=lambda _, operands: operands[0],
        ),
    ]
    return {verb.name: verb for verb in verbs}


VERBS: Mapping[str, Verb] = _table()
ELEMENTWISE = {name for name, verb in VERBS.items() if verb.elementwise}


def reads_bytes(verb: str, operands: Iterable[Type]) -> bool:
    """Whether a verb reads the bytes of one of its operands, see `Verb.bytes_of`."""
    return verb in VERBS and any(operand.kind in VERBS[verb].bytes_of for operand in operands)


def of_every_verb(
    interpreter: str, entries: Mapping[str, Entry], engine: str | None = None
) -> Mapping[str, Entry]:
    """Check that the table of an interpreter has an entry for each verb and no other.

    Args:
        interpreter: its name, for the message.
        entries: its table.
        engine: the engine on which the table replaces another interpreter's entries; then it has one
            for each verb that is re-expressed there.

    Raises:
        NotImplementedError: names the interpreter, and the verbs.

    Example:
        >>> of_every_verb("mine", {name: None for name in VERBS if name != "tanh"})
        Traceback (most recent call last):
            ...
        NotImplementedError: The interpreter mine has no entry for tanh.
    """
    verbs = {n for n, verb in VERBS.items() if engine is None or engine in verb.reexpressed_on}
    if missing := verbs - entries.keys():
        names = ", ".join(sorted(missing))
        raise NotImplementedError(f"The interpreter {interpreter} has no entry for {names}.")
    if unknown := entries.keys() - verbs:
        names = ", ".join(sorted(unknown))
        kind = "a verb" if engine is None else "a verb that is re-expressed there"
        raise NotImplementedError(
            f"The interpreter {interpreter} has {names}, which is not {kind}."
        )
    return entries


def element_root(
    verb: str, result: Type, types: Sequence[Type], roots: Sequence[Root], own: Root
) -> Root:
    """The list that the elements of a result belong to.

    Args:
        verb: for the message.
        result: the result's type.
        types: the operands' types.
        roots: the operands' roots.
        own: the root of a result with a new root: a source, a table's lists, a scalar, a slice.

    Raises:
        ExpressionError: elements of a list would meet a scalar column or another list, or a constant
            would be repeated.
    """
    if types and all(root is None for root in roots):
        return None
    if not (result.is_list and any(t.is_list for t in types)) or VERBS[verb].reshapes:
        return own
    if VERBS[verb].repeats:
        if roots[0] is None:
            raise ExpressionError(f"{verb} repeats a column. Received: a constant, {types[0]}.")
        return roots[1]
    shared = {root for root in roots if root is not None}
    if len(shared) > 1:
        raise ExpressionError(
            f"{verb} over a list works on its elements, which can meet constants, columns of one value "
            f"a row and what is made of the same elements. Received: {', '.join(map(str, types))}."
        )
    return shared.pop()
