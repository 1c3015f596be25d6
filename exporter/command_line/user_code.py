"""Definitions in a user's Python file or module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from exporter.command_line.guard import CommandError


def load_object(place: str, attribute: str) -> Any:
    """Load an object that the user's own code defines, by running that code.

    Args:
        place: "file.py", "file.py:attribute" or "module:attribute".
        attribute: the attribute if the place names none.

    Raises:
        CommandError: there is no such file, module or attribute.
    """
    where, _, named = place.partition(":")
    module = _run_file(Path(where)) if where.endswith(".py") else _import(where)
    try:
        return getattr(module, named or attribute)
    except AttributeError:
        raise CommandError(
            f"Expected {where} to define `{named or attribute}`. Received: "
            f"{', '.join(n for n in vars(module) if not n.startswith('_')) or 'nothing'}. "
            f"Name another one: {where}:name."
        ) from None


def _run_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise CommandError(f"Expected a Python file. Received: {path}, no such file.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise CommandError(f"Expected a Python file. Received: {path}.")
    module = importlib.util.module_from_spec(spec)
    # It may import modules beside it, as when Python runs it.
    sys.path.insert(0, str(path.parent.absolute()))
    spec.loader.exec_module(module)
    return module


def _import(name: str) -> ModuleType:
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        raise CommandError(
            f"Expected a Python file, or module:attribute. Received: {name!r}, no such module."
        ) from None
