"""A drawing of an ensemble."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def show(
    name: Annotated[str, typer.Argument(help="The ensemble's name.")],
    repository: Annotated[Path, typer.Option(help="The model repository.")] = Path("models"),
    svg: Annotated[Path | None, typer.Option(help="Also draw it into an SVG file.")] = None,
) -> None:
    """Draw an ensemble, with the dtype and shape of every tensor.

    Example: `ensemble show movielens --repository models --svg movielens.svg`
    """
    # So that help is shown at once.
    from exporter.command_line.ensemble_diagram import EnsembleDrawing  # noqa: PLC0415

    drawing = EnsembleDrawing.read(repository, name)
    drawing.show()
    if svg is not None:
        svg.write_text(drawing.to_svg(), encoding="utf-8")
        typer.echo(f"{svg}: the picture")
