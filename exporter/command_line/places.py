"""Checks of a command's output files, before its work is done."""

from __future__ import annotations

from pathlib import Path

from exporter.command_line.guard import CommandError


def expect_place(path: Path | None) -> None:
    """Check that a file can be made at a path.

    Args:
        path: the file; None if there is none.

    Raises:
        CommandError: its folder does not exist, or it is a folder itself.
    """
    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise CommandError(f"Expected a file in a folder that exists. Received: {path}.")
