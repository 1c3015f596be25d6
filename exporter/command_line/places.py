"""Checks of a command's output files, before its work is done."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from exporter.command_line.guard import CommandError
from exporter.plan.model_name import expect_name
from workflow.files.durable import expect_room


def expect_place(path: Path | None) -> None:
    """Check that a file can be made at a path.

    Args:
        path: the file; None if there is none.

    Raises:
        CommandError: its folder does not exist or is in an object store, or it is a folder itself.
        WorkflowError: it cannot be written, such as on a read-only disk.
    """
    if path is None:
        return
    if path.is_dir() or not path.absolute().parent.is_dir():
        from workflow.data.object_stores import expect_local  # noqa: PLC0415 - help is shown at once

        expect_local(path, CommandError)
        raise CommandError(f"Expected a file in a folder that exists. Received: {str(path)!r}.")
    from workflow.files.write_errors import write_errors  # noqa: PLC0415 - imports Polars

    with write_errors(path):
        if path.is_file():
            path.open("ab").close()
        elif not path.exists():
            expect_room(path.absolute().parent, 1)


def write_text(path: Path, text: str) -> None:
    """Write a text, in UTF-8.

    Raises:
        WorkflowError: it cannot be written, such as on a full disk.
    """
    from workflow.files.write_errors import write_errors  # noqa: PLC0415 - so that help is shown at once

    with write_errors(path):
        path.write_text(text, encoding="utf-8")


def expect_savable(model: Any, path: Path) -> None:
    """Check, before a model is trained, that it can be saved at a path.

    Raises:
        TrainingError: a SavedModel cannot have it.
    """
    if path.suffix != ".keras":
        from training import model_signature  # noqa: PLC0415 - so that help is shown at once

        model_signature(model)


def save_network(model: Any, path: Path) -> None:
    """Write a Keras model to a .keras file, replaced by one rename, or to a new folder as a SavedModel.

    Raises:
        WorkflowError: it cannot be written, such as on a full disk.
        TrainingError: a SavedModel cannot have it, or cannot be written.
    """
    if path.suffix != ".keras":
        from training import save_model  # noqa: PLC0415 - so that help is shown at once

        save_model(model, path)
        return
    from workflow.files.durable import replacing  # noqa: PLC0415 - so that help is shown at once
    from workflow.files.write_errors import write_errors  # noqa: PLC0415

    with write_errors(path), replacing(path, path.suffix) as draft:
        model.save(draft)


@contextmanager
def filling(folder: Path) -> Iterator[None]:
    """Fill a new folder, or an empty one. If it fails, the disk is as it was before.

    Args:
        folder: the folder, made here if it is missing.

    Raises:
        CommandError: the folder is in an object store.
        WorkflowError: something cannot be written, such as on a full disk.
    """
    from workflow.data.object_stores import expect_local  # noqa: PLC0415 - so that help is shown at once
    from workflow.files.durable import removed_if_empty  # noqa: PLC0415 - so that help is shown at once
    from workflow.files.write_errors import write_errors  # noqa: PLC0415

    expect_local(folder, CommandError)
    with removed_if_empty(folder):
        try:
            with write_errors(folder):
                folder.mkdir(parents=True, exist_ok=True)
                yield
        except BaseException:
            for path in folder.iterdir() if folder.is_dir() else ():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            raise


Html = Annotated[
    Path | None,
    typer.Option(help="The page to write; by default one named after the model, in this folder."),
]
NoHtml = Annotated[bool, typer.Option("--no-html", help="Write no page.")]


def page_place(html: Path | None, no_html: bool, name: str, report: str) -> Path | None:
    """The file of a report's page, or None for no page.

    Args:
        html: the place that a user wants; by default named after the model and the report.
        no_html: whether the user wants no page.
        name: the model.
        report: the kind of the report, such as "parity".

    Raises:
        CommandError: both options are given, or the file cannot be made.
        ExportError: no model can have the name.
    """
    expect_name(name)
    if html is not None and no_html:
        raise CommandError("Expected --html or --no-html. Received: both.")
    path = None if no_html else html or Path(f"{name}.{report}.html")
    expect_place(path)
    return path
