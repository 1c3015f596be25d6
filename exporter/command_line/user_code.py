"""Definitions in a user's Python file or module."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from exporter.command_line.guard import CommandError, is_own
from workflow.errors import in_a_line


def load_object(place: str, attribute: str) -> Any:
    """Load an object that the user's own code defines, by running that code.

    Args:
        place: "file.py", "file.py:attribute" or "module:attribute".
        attribute: the attribute if the place names none.

    Raises:
        CommandError: there is no such file, module or attribute, or running it raises an error that is
            none of this package's.
    """
    where, _, named = place.partition(":")
    try:
        module = _run_file(Path(where)) if where.endswith(".py") else _import(where)
    # At an exit of the file's the command would end as if it were done.
    except (Exception, SystemExit) as error:
        if is_own(error):
            raise
        raise CommandError(
            f"Expected {where} to run. Received: {type(error).__name__}: {in_a_line(error).rstrip('.')}"
            f"{_line_of(Path(where), error)}. `ensemble --verbose ...` shows where."
        ) from error
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
    # Dataclasses look up the module that defines them. Not for longer: pickle would take the file's own
    # classes for ones that other processes can import.
    registered = sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    finally:
        if registered is module:
            sys.modules.pop(path.stem, None)
    return module


def _line_of(path: Path, error: BaseException) -> str:
    """The last line of a file that an error has passed, in words; empty if none was run."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f.lineno for f in frames if Path(f.filename).absolute() == path.absolute()]
    return f", in line {lines[-1]}" if lines else ""


def _import(name: str) -> ModuleType:
    missing = CommandError(
        f"Expected a Python file, or module:attribute. Received: {name!r}, no such module."
    )
    if not name or name.startswith("."):  # a path, such as ./raw.parquet
        raise missing
    sys.path.insert(0, "")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise missing from None
