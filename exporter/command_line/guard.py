"""Errors as text or as JSON, and as an exit code."""

from __future__ import annotations

import inspect
import json
import os
import select
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

import typer

from exporter.command_line.groups import grouped, parameters_of
from exporter.command_line.lines import folded
from workflow.errors import OF_DISKS, cannot_write, in_a_line
from workflow.first_use import what_is_missing

PACKAGES = ("workflow", "loader", "training", "exporter", "serving")


class CommandError(Exception):
    """An invalid argument; the text says how to fix it."""


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command: print its errors, and exit with code 1.

    An error is one line of standard error, in a terminal wrapped at words. With `--json` it is an
    object on standard output, so that a script finds one object there in either case. With
    `--verbose` errors propagate to Python, which prints the traceback.
    """

    @wraps(command)
    def run(context: typer.Context, **arguments: Any) -> None:
        try:
            command(**grouped(command, arguments))
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        except BrokenPipeError:
            if not _is_output_closed():
                raise
            # The flush at the end of the process would fail as well, with a message.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            raise typer.Exit(141) from None  # as the shell says of a tool that SIGPIPE ended
        except (typer.Exit, typer.BadParameter):
            raise
        except Exception as error:
            if context.obj:
                raise
            print_error(error, as_json=arguments.get("as_json", False))
            raise typer.Exit(1) from None

    # Typer reads the parameters from both.
    first = inspect.Parameter(
        "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    parameters = [first, *parameters_of(command)]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def print_error(error: Exception, *, as_json: bool = False) -> None:
    """Print an error: a line of standard error, or an object of JSON on standard output.

    It is a line too if standard output cannot be written.
    """
    if as_json:
        fields = {"error": _line(error), "type": type(error).__name__}
        with suppress(OSError):  # nobody reads it, or its disk is full
            typer.echo(json.dumps(fields, indent=2))
            return
    # Not imported to succeed.
    from rich.console import Console  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    console, text = Console(stderr=True), f"error: {_line(error)}"
    if console.is_terminal:
        text = folded(text, console.width, indent="")
    styled = Text(text)
    styled.stylize("bold red", 0, len("error:"))
    console.print(styled, soft_wrap=True)


def _is_output_closed() -> bool:
    """Whether nobody reads standard output any longer, as after `| head`."""
    look = select.poll()
    look.register(1, 0)
    return any(event & select.POLLERR for _, event in look.poll(0))


def is_own(error: BaseException) -> bool:
    """Whether an error is one of this package's, or says how to install what it lacks."""
    is_missing = isinstance(error, ModuleNotFoundError) and what_is_missing(error) is not None
    return is_missing or type(error).__module__.split(".")[0] in PACKAGES


def _line(error: Exception) -> str:
    """Text of an error: ours in full, any other one in a line with its type."""
    if isinstance(error, ModuleNotFoundError) and (reason := what_is_missing(error)):
        return reason
    if isinstance(error, OSError) and error.errno in OF_DISKS:
        place = error.filename or "the command's files and its output"
        return cannot_write(place, error.strerror)
    text = str(error).strip()
    if is_own(error):
        return text
    reason = in_a_line(error) or "no message."
    return f"{type(error).__name__}: {reason} `ensemble --verbose ...` shows where."
