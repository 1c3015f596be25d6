"""All subcommands in one program."""

from __future__ import annotations

import logging
import os
import signal
import sys
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated

import typer

from exporter.command_line.commands.bench import bench
from exporter.command_line.commands.demo import demo
from exporter.command_line.commands.export import export
from exporter.command_line.commands.fit import fit
from exporter.command_line.commands.init import init
from exporter.command_line.commands.inspect import inspect
from exporter.command_line.commands.openapi import openapi
from exporter.command_line.commands.parity import parity
from exporter.command_line.commands.predict import predict
from exporter.command_line.commands.publish import publish
from exporter.command_line.commands.serve import serve
from exporter.command_line.commands.show import show
from exporter.command_line.commands.train import train
from exporter.command_line.commands.transform import transform
from exporter.command_line.commands.versions import recover, rollback, verify
from exporter.command_line.commands.watch import watch
from exporter.command_line.guard import CommandError, guarded, print_error
from workflow.errors import OF_DISKS

COMMANDS = (
    *(
        demo,
        init,
        inspect,
        fit,
        transform,
        train,
        export,
        serve,
        predict,
        parity,
        show,
        bench,
        watch,
    ),
    *(verify, publish, rollback, recover, openapi),
)


def make_app() -> typer.Typer:
    """The program with all its subcommands.

    Example:
        >>> len(make_app().registered_commands)
        18
    """
    app = typer.Typer(
        name="ensemble",
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(options)
    for command in COMMANDS:
        app.command()(guarded(command))
    return app


def show_version(wanted: bool) -> None:
    """Print the version that is installed, and end."""
    if wanted:
        typer.echo(f"parquet-to-triton {version('parquet-to-triton')}")
        raise typer.Exit


def options(
    context: typer.Context,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show the traceback of an error.")
    ] = False,
    progress: Annotated[
        bool, typer.Option(help="Show progress on standard error, after a second.")
    ] = True,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Take a recommender model from parquet to a served Triton ensemble with proven answers.

    The commands in order of use: `init`, `inspect`, `fit`, `transform`, `train`, `export`, `serve`, then `predict`,
    `parity`, `bench`, `show` and `watch`. `demo` runs all of them in a new folder. `verify`, `publish`,
    `rollback` and `recover` maintain a model repository and the server that reads it. `openapi` writes
    what generators of clients need.
    Exit codes: 0 done, 1 failed, 2 wrong usage.
    """
    context.obj = verbose
    if not progress:
        os.environ["ENSEMBLE_PROGRESS"] = "0"


def main() -> None:
    """Run the program with the arguments of the process."""
    _open_closed_streams()
    # TensorFlow's messages hide the command's own output. It logs as errors what processors lack,
    # and raises those that fail.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if os.path.expanduser("~") == "~":  # noqa: PTH111 - Path raises an error for a user without a home
        # TensorFlow would make a folder ~ here; Keras itself takes this one.
        os.environ.setdefault("KERAS_HOME", "/tmp/.keras")  # noqa: S108
    # As of standard error: a name that the terminal's encoding lacks would end a command.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    _log_progress()
    if os.getpid() == 1:  # a container's first process, which SIGTERM would not end
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        make_app()()
    except (OSError, RuntimeError) as error:  # the second of a user without a home
        shown: Exception = error
        if "--install-completion" in sys.argv:
            shown = CommandError(
                "Expected to be able to write the completion of your shell to your home folder. "
                f"Received: {error}. Set HOME to a folder that you can write to, or put what "
                "`ensemble --show-completion` prints into the file that your shell reads at its start."
            )
        elif getattr(error, "errno", None) not in OF_DISKS:  # a help that is written to a full disk
            raise
        print_error(shown)
        sys.exit(1)


def _open_closed_streams() -> None:
    """Open what the caller has closed: a file would get the number to which libraries write their messages."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - for the rest of the process


def _log_progress() -> None:
    """Print progress as lines of standard error where that is no terminal."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger = logging.getLogger("workflow.progress")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    # A library's root handler, such as absl's, would print them again.
    logger.propagate = False
