"""The options of a search for the nearest items behind a network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from exporter.command_line.guard import CommandError

Items = Annotated[
    Path | None,
    typer.Option(
        help="Parquet of items with their vectors: answer with the items nearest to the network's "
        "output, a vector."
    ),
]
K = Annotated[
    int | None,
    typer.Option("--k", min=1, help="How many of the --items to answer with; 10 by default."),
]

Index = Annotated[
    str | None,
    typer.Option(
        metavar="FACTORY|FILE",
        help="Search the --items in an index of FAISS, built by a factory string such as HNSW32 or "
        "IVF1024,Flat, or read from a file .faiss.",
    ),
]
Search = Annotated[
    str | None,
    typer.Option(help="Parameters of the --index, such as efSearch=64 or nprobe=16."),
]


def with_items(
    model: Path, items: Path | None, k: int | None, index: str | None, search: str | None
) -> Any:
    """The network that is exported: the path of a model, or a `NearestItems` of it."""
    if items is None:
        for option, value in (("--k", k), ("--index", index), ("--search", search)):
            if value is not None:
                raise CommandError(f"Expected {option} with --items FILE. Received: it alone.")
        return model
    from exporter import NearestItems  # noqa: PLC0415 - so that help is shown at once

    given = {} if k is None else {"k": k}
    return NearestItems(model, items, index=index, search=search, **given)
