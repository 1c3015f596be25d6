"""Names of models, which become folders of the repository and never paths. Nothing heavy is imported."""

from __future__ import annotations

import re
from typing import Any

from exporter.errors import ExportError

MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def expect_name(name: Any) -> None:
    """Check the name of a model.

    Raises:
        ExportError: Triton would refuse the name, or it is a path.

    Example:
        >>> expect_name("movielens-2")
    """
    if not isinstance(name, str) or not MODEL_NAME.fullmatch(name):
        raise ExportError(
            "Expected a name of letters, digits, _ - and . that begins with a letter or digit, since "
            f"it names a folder of the server. Received: {name!r}."
        )
