"""A drawing of an ensemble."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exporter.command_line.places import expect_place, write_text
from exporter.command_line.words import answer

if TYPE_CHECKING:
    from rich.table import Table

    from workflow.picture import Diagram


def show(
    name: Annotated[str, typer.Argument(help="The ensemble's name.")],
    repository: Annotated[Path, typer.Option(help="The model repository.")] = Path("models"),
    svg: Annotated[Path | None, typer.Option(help="Also draw it into an SVG file.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the tensors as JSON instead.")
    ] = False,
) -> None:
    """Draw an ensemble, with the dtype and shape of every tensor.

    Example: `ensemble show movielens --repository models --svg movielens.svg`
    """
    # So that help is shown at once.
    from rich.console import Console  # noqa: PLC0415

    from exporter.report.ensemble_drawing import EnsembleDrawing  # noqa: PLC0415

    expect_place(svg)
    drawing = EnsembleDrawing.read(repository, name)
    if svg is not None:
        write_text(svg, drawing.to_svg())
    if as_json:
        answer(as_json, "", model=name, tensors=_tensors(drawing.diagram()))
        return
    drawing.show()
    Console().print(_table(drawing.diagram()))
    if svg is not None:
        typer.echo(f"{svg}: the picture")


def _tensors(diagram: Diagram) -> list[dict[str, str]]:
    """All tensors, with the models between which they travel."""
    return [
        {
            "from": diagram.boxes[arrow.start].title,
            "to": diagram.boxes[arrow.end].title,
            "name": item.name,
            "type": item.type,
            "note": item.note,
        }
        for arrow in diagram.arrows
        for item in arrow.items
    ]


def _table(diagram: Diagram) -> Table:
    """All tensors, since a line of the picture has space for only a few."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - so that help is shown at once
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(
        box=SIMPLE_HEAD,
        pad_edge=False,
        caption="N: rows, V: values of all rows, L: a width that a request chooses",
        caption_justify="left",
    )
    # A name or a note may be wrapped, a type may not.
    for title, whole in (("from → to", False), ("tensor", False), ("type", True), ("", False)):
        table.add_column(title, overflow="fold", no_wrap=whole)
    for arrow in diagram.arrows:
        ends = f"{diagram.boxes[arrow.start].title} → {diagram.boxes[arrow.end].title}"
        for number, item in enumerate(arrow.items):
            table.add_row(*map(Text, ("" if number else ends, item.name, item.type, item.note)))
    return table
