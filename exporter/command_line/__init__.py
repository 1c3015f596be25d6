"""The command `ensemble`: each subcommand is one file, a thin layer over the public functions."""

from exporter.command_line.app import main

__all__ = ["main"]
