"""Numbers in settings, also those of numpy, such as scikit-learn's class weights and maxima of pandas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np

_P = ParamSpec("_P")
_R = TypeVar("_R")


def python_number(value: Any) -> Any:
    """A scalar of numpy as Python's, which checks of types and JSON take; anything else as it is.

    Beside a comparison's left operand numpy makes an array without dimensions of a scalar.

    Example:
        >>> python_number(np.int64(7)), python_number("7")
        (7, '7')
    """
    return value.item() if isinstance(value, np.generic | np.ndarray) and not value.shape else value


def whole_number(name: str, given: Any, least: int, error: type[Exception]) -> int:
    """A setting as an integer.

    Args:
        name: of the setting.
        given: its value; a scalar of numpy too.
        least: the smallest value.
        error: what to raise if it is smaller, or no whole number.

    Example:
        >>> whole_number("epochs", np.int64(3), 1, ValueError)
        3
    """
    number = python_number(given)
    if type(number) is not int or number < least:
        raise error(f"Expected {name} as a whole number from {least}. Received: {given!r:.100}.")
    return number


def takes_numpy_numbers(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function whose arguments are settings, not data: scalars of numpy arrive as Python's.

    So do those inside of dictionaries, tuples and lists. Keras' layers cannot be decorated, since Keras
    reads their arguments' names.

    Example:
        >>> takes_numpy_numbers(lambda *given: given)(np.int64(7), {"user": (np.int64(50), 8)}, "7")
        (7, {'user': (50, 8)}, '7')
    """

    @wraps(function)
    def taking(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        given = [plain(value) for value in args]
        return function(*given, **{name: plain(value) for name, value in kwargs.items()})

    return taking


def make_fields_plain(settings: Any) -> None:
    """Turn scalars of numpy in the fields of a frozen dataclass into Python's, before they are checked."""
    for each in fields(settings):
        object.__setattr__(settings, each.name, plain(getattr(settings, each.name)))


def plain(value: Any) -> Any:
    """Convert values as `python_number` does, also inside dictionaries, tuples and lists.

    Example:
        >>> plain({"user": (np.int64(50), 8)})
        {'user': (50, 8)}
    """
    # Of these types alone: a subclass, such as a named tuple, could not be made anew.
    if type(value) is dict:
        return {key: plain(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain, value))
    return python_number(value)
