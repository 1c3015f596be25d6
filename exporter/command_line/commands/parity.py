"""The proof that a server's answers equal those of the offline pipeline."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exporter.command_line.connect import Repository, Url, connected
from exporter.command_line.items import Items, K, with_items
from exporter.command_line.places import expect_place
from exporter.command_line.quiet import import_tensorflow

if TYPE_CHECKING:
    from serving.prove.report import ParityReport

_HEAD = """<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">"""


def parity(
    name: Annotated[str, typer.Argument(help="The ensemble's name.")],
    data: Annotated[list[str], typer.Argument(help="Raw parquet files, as for `fit`.")],
    url: Url = None,
    repository: Repository = None,
    workflow: Annotated[Path, typer.Option(help="The saved workflow.")] = Path("workflow"),
    model: Annotated[
        Path,
        typer.Option(help="The network: a .keras or .onnx file, or the folder of a SavedModel."),
    ] = Path("model.keras"),
    items: Items = None,
    k: K = 10,
    rows: Annotated[
        int, typer.Option(min=1, help="Compare this many rows, the first ones.")
    ] = 10_000,
    tolerance: Annotated[
        float,
        typer.Option(
            min=0,
            help="Predictions are equal where |served - offline| <= tolerance * max(1, |offline|).",
        ),
    ] = 1e-5,
    html: Annotated[Path | None, typer.Option(help="Also write the report as HTML.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON, with null for infinity.")
    ] = False,
) -> None:
    """Compare a server's answers with those of the offline pipeline.

    Integers and strings must be identical, floats nearly so, with NaN equal to NaN. The exit code
    is 1 if any value differs.

    Example: `ensemble parity movielens "raw/valid/*.parquet" --url 127.0.0.1:8001`
    """
    expect_place(html)
    import_tensorflow()
    # So that help is shown at once.
    from exporter.network.load import load_network  # noqa: PLC0415
    from serving import check_parity  # noqa: PLC0415
    from workflow import Workflow  # noqa: PLC0415
    from workflow.data.sources import as_lazy_frame  # noqa: PLC0415

    fitted, network = Workflow.load(workflow), load_network(with_items(model, items, k))
    frame = as_lazy_frame(data).head(rows)
    with connected(name, url, repository) as client:
        report = check_parity(client, fitted, network, frame, tolerance=tolerance)
    if html is not None:
        html.write_text(f"{_HEAD}<title>Parity of {name}</title>{report.to_html()}")
    typer.echo(_json(report) if as_json else str(report))
    if not report.passed:
        raise typer.Exit(1)


def _json(report: ParityReport) -> str:
    fields = asdict(report) | {"passed": report.passed}
    for output in fields["outputs"]:
        if math.isinf(output["max_difference"]):
            output["max_difference"] = None
    return json.dumps(fields, allow_nan=False, indent=2)
