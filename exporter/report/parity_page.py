"""The page of a parity check against any server."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from exporter.errors import ExportError
from exporter.plan.specs import CASTS
from exporter.report.ensemble_drawing import EnsembleDrawing
from exporter.report.latency import SIZES, measure_latency
from exporter.report.page import (
    heading,
    how_to_serve,
    in_styles,
    measured,
    picture,
    size_text,
    versions,
)
from workflow.picture.markup import table
from workflow.picture.page import as_page

if TYPE_CHECKING:
    from serving import EnsembleClient, ParityReport

# For each number of rows.
_SECONDS = 0.5


def parity_page(
    client: EnsembleClient,
    parity: ParityReport,
    rows: Any,
    repository: str | Path | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> str:
    """The report of `check_parity` with the model's picture, casts, sizes and response times.

    Args:
        client: connected to the model; it is asked for about two seconds.
        parity: the report.
        rows: raw rows, at least one, for the response times: of any kind that `check_parity` takes.
        repository: the model repository, if its files are on this machine, for the sizes.
        storage_options: how to connect to the object stores of paths with a scheme, as in `fit`.

    Returns:
        A page of HTML without other files, for light and dark screens.

    Raises:
        ClientError: the server does not answer, there are no rows, they cannot be read, or a column is
            missing.
        ExportError: the repository does not have the models.

    Example:
        >>> report = check_parity(client, workflow, model, rows)  # doctest: +SKIP
        >>> page = parity_page(client, report, rows, "models")  # doctest: +SKIP
        >>> _ = Path("parity.html").write_text(page)  # doctest: +SKIP
    """
    from serving.prove.parity import raw_rows  # noqa: PLC0415 - imports Polars and grpc

    frame = raw_rows(rows, client.contract.input_schema, storage_options)
    folder = None if repository is None else Path(repository)
    drawing = EnsembleDrawing.of_client(client)
    latency = [measure_latency(client, frame, 1, size, _SECONDS) for size in SIZES]
    return as_page(
        f"Parity of {parity.model}",
        in_styles(
            heading(parity.model, "served at", client.url),
            picture(drawing),
            f"<h2>Parity</h2>{parity.to_html()}",
            measured(latency, parity.model, str(folder)),
            *_models(drawing, folder),
            _casts(drawing),
            _served(drawing, folder),
            versions(),
        ),
    )


def _models(drawing: EnsembleDrawing, repository: Path | None) -> Sequence[str]:
    """The models of which the served one consists, with the sizes of their newest versions."""
    rows = []
    for config in (drawing.config, *drawing.steps):
        size = "" if repository is None else size_text(_bytes(repository / config.name))
        rows.append((config.name, str(config.platform or config.backend), size))
    content = table(rows, ("model", "backend", "" if repository is None else "size"))
    if repository is None:
        content += (
            "<p>The sizes are not known here, since the files are the server's: "
            "<code>--repository</code>, or the argument <code>repository</code>, names their folder.</p>"
        )
    return "<h2>Models</h2>", content


def _bytes(model: Path) -> int:
    """The bytes of the newest version of a model."""
    versions = [path for path in model.glob("*") if path.name.isdecimal()]
    if not versions:
        raise ExportError(
            f"Expected the models of the server. Received: {model}, without a version."
        )
    newest = max(versions, key=lambda path: int(path.name))
    return sum(file.stat().st_size for file in newest.rglob("*") if file.is_file())


def _casts(drawing: EnsembleDrawing) -> str:
    """The columns that the server computes in another dtype than the workflow."""
    record = drawing.config.parameters[CASTS].string_value
    if not record:
        text = "Not known: the model was not exported by this version."
    elif casts := json.loads(record):
        return f"<h2>Casts</h2>{table(casts, ('column', 'workflow', 'served'))}"
    else:
        text = "None: the network takes the workflow's dtypes."
    return f"<h2>Casts</h2><p>{text}</p>"


def _served(drawing: EnsembleDrawing, repository: Path | None) -> str:
    backends = {str(config.backend) for config in (drawing.config, *drawing.steps)}
    note = f"backends: {', '.join(sorted(filter(None, backends)))}"
    folder = "models" if repository is None else str(repository)
    return how_to_serve(drawing.config.name, folder, note)
