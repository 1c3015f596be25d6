"""Validation of operators' settings, from users and from files, against their annotations.

No library fits: pydantic and msgspec in strict mode refuse numpy's integers, arrays and series,
accept `numpy.True_` or NaN as numbers, and give no advice on what to pass instead
(docs/decisions/0019-what-libraries-do.md).
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any

import polars as pl

from workflow.errors import WorkflowError
from workflow.expressions.program.program import Program
from workflow.expressions.program.safetensors_file import FormatError
from workflow.schema.dtypes import DTYPES, SchemaError, dtype_of
from workflow.schema.python_number import python_number

from .feature import Selectable

if TYPE_CHECKING:
    from .operator import Operator

# Annotations of settings that name a dtype, by the allowed kinds: a user may pass any form that
# `dtype_of` knows, and the operator keeps the name.
AnyDType = Annotated[str, ("bool", "int", "uint", "float", "string")]
IntegerDType = Annotated[str, ("int", "uint")]
FloatDType = Annotated[str, ("float",)]

_SCALARS = (bool, int, float, str, NoneType)
# Words for one value of a type, and for several.
_WORDS: Mapping[Any, tuple[str, str]] = {
    bool: ("True or False", "booleans"),
    int: ("a whole number", "whole numbers"),
    float: ("a finite number", "finite numbers"),
    str: ("a text", "texts"),
    NoneType: ("None", "None"),
    Any: ("a value", "values"),
    Selectable: ("a node of the graph", "nodes of the graph"),
}


class _UnfitError(Exception):
    """A value does not match an annotation.

    Attributes:
        value: the value.
        place: its path in the given value: keys of mappings, and positions in lists.
    """

    def __init__(self, value: Any, place: tuple[Any, ...] = ()) -> None:
        super().__init__()
        self.value = value
        self.place = place


def settle(operator: Operator) -> None:
    """Validate the arguments of a constructor against the annotations of its fields.

    Scalars of numpy become Python objects, dtypes their names, and sequences and mappings new lists
    and dicts, so that later changes to the arguments have no effect. A dtype of None is the default
    dtype.

    Raises:
        WorkflowError: names the operator, the setting, its allowed values and the value received.

    Example:
        >>> from workflow import ops
        >>> ops.Clip(min_value="0")
        Traceback (most recent call last):
            ...
        workflow.errors.WorkflowError: Clip needs min_value as a finite number or None. Received: '0'.
    """
    hints = _hints(type(operator))
    for name in operator.settings():
        value = getattr(operator, name)
        if value is None and typing.get_origin(hints[name]) is Annotated:
            value = getattr(type(operator), name, None)
        setting = settled(operator.label, name, value, hints[name])
        object.__setattr__(operator, name, setting)


def settled(label: str, name: str, value: Any, hint: Any) -> Any:
    """One value from a user, validated against an annotation, in the operator's form.

    Args:
        label: the operator's name, for messages.
        name: the name of the value.
        value: the value.
        hint: the annotation.

    Raises:
        WorkflowError: the annotation does not allow it.

    Example:
        >>> import numpy as np
        >>> settled("Clip", "max_value", np.float32(0.5), float | None)
        0.5
    """
    try:
        return _kept(value, hint, stored=False)
    except _UnfitError as unfit:
        place = "".join(f"[{key!r}]" for key in unfit.place)
        raise WorkflowError(
            f"{label} needs {name} as {_described(hint)}. "
            f"Received: {unfit.value!r:.200}{place and f' as {name}{place}'}."
        ) from None


def check_config(operator: type[Operator], config: Any) -> None:
    """Validate a configuration from a file against the fields of its operator, before making one.

    Raises:
        FormatError: a field is missing, unknown or of another type.

    Example:
        >>> from workflow import ops
        >>> check_config(ops.LogOp, {"base": 10})
        Traceback (most recent call last):
            ...
        workflow.expressions.program.safetensors_file.FormatError: LogOp takes ...
    """
    fields = operator.saved_fields()
    if not isinstance(config, dict) or config.keys() != set(fields):
        raise FormatError(f"{operator.__name__} takes {', '.join(fields)} and nothing else.")
    for name, value in config.items():
        if not fits(value, _hints(operator)[name]):
            raise FormatError(f"{operator.__name__} does not take {name}={value!r:.200}.")


def fits(value: Any, hint: Any) -> bool:
    """Whether an annotation allows a JSON value.

    Example:
        >>> fits({"userId": 5}, int | Mapping[str, int])
        True
        >>> fits(True, int)
        False
    """
    try:
        _kept(value, hint, stored=True)
    except _UnfitError:
        return False
    return True


@cache
def _hints(operator: type[Operator]) -> dict[str, Any]:
    """The annotations of the fields, evaluated once; they come from code, never from a file."""
    return typing.get_type_hints(operator, include_extras=True)


def _kept(value: Any, hint: Any, *, stored: bool) -> Any:
    """A value in the operator's form.

    Args:
        value: from a user, or from JSON.
        hint: the annotation.
        stored: whether it is from a file, where programs are documents that are read and checked
            separately, and functions, tables and nodes of the graph are not allowed.

    Raises:
        _UnfitError: the annotation does not allow it.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (UnionType, typing.Union):
        return _first(value, arguments, stored=stored)
    if origin is Annotated:
        return _dtype_name(value, arguments[1])
    if origin in (Mapping, Sequence, AbstractSet):
        items = _items(value, origin)
        inner = {key: _nested(key, v, arguments[-1], stored=stored) for key, v in items}
        if origin is Mapping:
            return inner
        # A set has no order that a saved workflow could keep.
        return sorted(inner.values()) if origin is AbstractSet else list(inner.values())
    if hint in _SCALARS:
        return _scalar(value, hint)
    live = not stored and (hint is Any or isinstance(value, origin or hint))
    if not live and not (stored and hint is Program and type(value) is dict):
        raise _UnfitError(value)
    return value


def _first(value: Any, hints: Iterable[Any], *, stored: bool) -> Any:
    """The value in the form of the first annotation that allows it."""
    unfit = _UnfitError(value)
    for hint in hints:
        try:
            return _kept(value, hint, stored=stored)
        except _UnfitError as error:
            # The annotation that allowed most of it is probably the intended one.
            unfit = max(unfit, error, key=lambda e: len(e.place))
    raise unfit


def _nested(key: Any, value: Any, hint: Any, *, stored: bool) -> Any:
    try:
        return _kept(value, hint, stored=stored)
    except _UnfitError as unfit:
        raise _UnfitError(unfit.value, (key, *unfit.place)) from None


def _items(value: Any, origin: Any) -> Iterable[tuple[Any, Any]]:
    """The values of a mapping by key, or of a sequence or a set by position."""
    if origin is Mapping:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
            raise _UnfitError(value)
        return ((_text(key), inner) for key, inner in value.items())
    # Also arrays, pandas' series and indexes, and iterators.
    array = getattr(value, "ndim", 0) == 1 and hasattr(value, "tolist")
    sequence = array or isinstance(value, list | tuple | range | pl.Series | Iterator)
    if not (isinstance(value, AbstractSet) if origin is AbstractSet else sequence):
        raise _UnfitError(value)
    return enumerate(typing.cast("Iterable[Any]", value))


def _scalar(value: Any, kind: type) -> Any:
    """A number, a text, a boolean or None, as a Python object."""
    value = python_number(value)
    if kind is str and isinstance(value, str):
        return _text(value)
    right = type(value) is kind or (kind is float and type(value) is int)
    # JSON has no NaN, and no column or float holds larger numbers.
    in_range = not isinstance(value, int) or -(2**63) <= value < 2**64
    if not right or not in_range or (isinstance(value, float) and not math.isfinite(value)):
        raise _UnfitError(value)
    return value


def _text(value: str) -> str:
    """A text that is valid as a column's name."""
    text = str(value.value if isinstance(value, Enum) else value)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate of UTF-16
        raise _UnfitError(value) from None
    return text


def _dtype_name(value: Any, kinds: Sequence[str]) -> str:
    try:
        dtype = dtype_of(value)
    except SchemaError:
        raise _UnfitError(value) from None
    if dtype.kind not in kinds:
        raise _UnfitError(value)
    return dtype.name


def _described(hint: Any, *, plural: bool = False) -> str:
    """The values that an annotation allows, in words."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (UnionType, typing.Union):
        # A finite number includes whole ones, and programs occur in files only.
        hints = [a for a in arguments if not (a is int and float in arguments)]
        words = [_described(a, plural=plural) for a in hints if Program not in typing.get_args(a)]
        return ", ".join(words[:-1]) + " or " * (len(words) > 1) + words[-1]
    if origin is Annotated:
        return "one of " + ", ".join(n for n, dtype in DTYPES.items() if dtype.kind in arguments[1])
    if origin is Mapping:
        inner = _described(arguments[1], plural=True)
        return f"mappings from texts to {inner}" if plural else f"a mapping from texts to {inner}"
    if origin in (Sequence, AbstractSet):
        kind = "list" if origin is Sequence else "set"
        inner = _described(arguments[0], plural=True)
        return f"{kind}s of {inner}" if plural else f"a {kind} of {inner}"
    if origin is Callable:
        return "a function"
    return _WORDS[hint][plural] if hint in _WORDS else f"a {getattr(hint, '__name__', hint)}"
