"""The options of a search for the nearest items behind a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

Items = Annotated[
    Path | None,
    typer.Option(
        help="Parquet of items with their vectors: answer with the items nearest to the network's "
        "output, a vector."
    ),
]
K = Annotated[int, typer.Option("--k", min=1, help="How many of the --items to answer with.")]


def with_items(model: Path, items: Path | None, k: int) -> Any:
    """The network that is exported: the path of a model, or a `NearestItems` of it."""
    if items is None:
        return model
    from exporter import NearestItems  # noqa: PLC0415 - so that help is shown at once

    return NearestItems(model, items, k)
