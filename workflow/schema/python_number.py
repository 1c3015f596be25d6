"""Numbers of numpy in settings, such as scikit-learn's class weights and maxima of pandas."""

from __future__ import annotations

from typing import Any

import numpy as np


def python_number(value: Any) -> Any:
    """A scalar of numpy as Python's, which checks of types and JSON take; anything else as it is.

    Example:
        >>> python_number(np.int64(7)), python_number("7")
        (7, '7')
    """
    return value.item() if isinstance(value, np.generic) else value
