"""The report of a proof against any server, as one page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from exporter.report.ensemble_drawing import EnsembleDrawing
from exporter.report.latency import SIZES, measure_latency
from exporter.report.page import (
    as_page,
    heading,
    how_to_serve,
    in_styles,
    measured,
    picture,
    size_text,
    versions,
)
from workflow.picture.markup import table

if TYPE_CHECKING:
    import polars as pl

    from serving import EnsembleClient, ParityReport
    from workflow import Workflow

# For each number of rows.
_SECONDS = 0.5


def proof_page(
    client: EnsembleClient,
    parity: ParityReport,
    workflow: Workflow,
    rows: pl.DataFrame,
    repository: Path | None = None,
) -> str:
    """The proof with the model's picture, its casts, sizes and response times, as one page.

    Args:
        client: connected to the model; it is asked for about two seconds.
        parity: the proof.
        workflow: the workflow that was exported.
        rows: raw rows, at least one, for the response times.
        repository: the model repository, if it is on this machine.

    Raises:
        ClientError: the server does not answer.
    """
    drawing = EnsembleDrawing.of_client(client)
    latency = [measure_latency(client, rows, 1, size, _SECONDS) for size in SIZES]
    return as_page(
        f"Parity of {parity.model}",
        in_styles(
            heading(parity.model, "served at", client.url),
            picture(drawing),
            f"<h2>Parity</h2>{parity.to_html()}",
            measured(latency, parity.model, str(repository)),
            *_models(drawing, repository),
            _casts(client, workflow),
            _served(drawing, repository),
            versions(),
        ),
    )


def _models(drawing: EnsembleDrawing, repository: Path | None) -> Sequence[str]:
    """The models of which the served one consists, with the sizes of their newest versions."""
    rows = []
    for config in (drawing.config, *drawing.steps):
        size = "" if repository is None else size_text(_bytes(repository / config.name))
        rows.append((config.name, str(config.platform or config.backend), size))
    return "<h2>Models</h2>", table(
        rows, ("model", "backend", "" if repository is None else "size")
    )


def _bytes(model: Path) -> int:
    """The bytes of the newest version of a model."""
    versions = [path for path in model.iterdir() if path.name.isdecimal()]
    newest = max(versions, key=lambda path: int(path.name))
    return sum(file.stat().st_size for file in newest.rglob("*") if file.is_file())


def _casts(client: EnsembleClient, workflow: Workflow) -> str:
    """The columns that the server computes in another dtype than the workflow."""
    step = client.contract.preprocessing
    if not step:
        text = "In one model with the network: the report of its export lists them."
        return f"<h2>Casts</h2><p>{text}</p>"
    made = workflow.output_schema
    columns = client.for_model(step).contract.outputs
    casts = [
        (column.name, made[column.name].dtype, column.dtype)
        for column in columns
        if column.name in made.names and made[column.name].dtype != column.dtype
    ]
    if not casts:
        return "<h2>Casts</h2><p>None: the network takes the workflow's dtypes.</p>"
    return f"<h2>Casts</h2>{table(casts, ('column', 'workflow', 'served'))}"


def _served(drawing: EnsembleDrawing, repository: Path | None) -> str:
    backends = {str(config.backend) for config in (drawing.config, *drawing.steps)}
    note = f"backends: {', '.join(sorted(filter(None, backends)))}"
    folder = "models" if repository is None else str(repository)
    return how_to_serve(drawing.config.name, folder, note)
