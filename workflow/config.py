"""Operators' configurations held to the annotations of their fields, before one is made."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from types import NoneType, UnionType
from typing import Any

from .expressions.arrays import FormatError
from .expressions.program import Program
from .operator import Operator

# What JSON holds in place of a type; a program is a document that is read and checked by itself.
_JSON: Mapping[Any, tuple[type, ...]] = {
    bool: (bool,),
    int: (int,),
    float: (float, int),
    str: (str,),
    NoneType: (NoneType,),
    Program: (dict,),
}


def check_config(operator: type[Operator], config: Any) -> None:
    """Hold a configuration from a file to the fields of its operator.

    Raises:
        FormatError: a field is missing, unknown or of another type.

    Example:
        >>> from workflow import ops
        >>> check_config(ops.LogOp, {"base": 10})
        Traceback (most recent call last):
            ...
        workflow.expressions.arrays.FormatError: LogOp takes ...
    """
    fields = operator.saved_fields()
    if not isinstance(config, dict) or config.keys() != set(fields):
        raise FormatError(f"{operator.__name__} takes {', '.join(fields)} and nothing else.")
    hints = _hints(operator)
    for name, value in config.items():
        if not fits(value, hints[name]):
            raise FormatError(f"{operator.__name__} does not take {name}={value!r:.200}.")


@cache
def _hints(operator: type[Operator]) -> dict[str, Any]:
    """The annotations of the fields, evaluated once; they are code, and nothing of a file's."""
    return typing.get_type_hints(operator)


def fits(value: Any, hint: Any) -> bool:
    """Whether a JSON value is what an annotation allows.

    Example:
        >>> fits({"userId": 5}, int | Mapping[str, int])
        True
        >>> fits(True, int)
        False
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (UnionType, typing.Union):
        return any(fits(value, argument) for argument in arguments)
    if origin is Mapping:
        return type(value) is dict and all(fits(v, arguments[1]) for v in value.values())
    if origin in (Sequence, Iterable):
        return type(value) is list and all(fits(v, arguments[0]) for v in value)
    if origin is Callable:
        return False
    if type(value) is int and not -(2**63) <= value < 2**64:
        return False  # JSON holds numbers that no column and no float does.
    # What else an annotation allows, such as a node of the graph, no file holds.
    return type(value) in _JSON.get(hint, ())
