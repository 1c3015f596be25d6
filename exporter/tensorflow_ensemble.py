"""export_tensorflow_ensemble: `export_ensemble` with the arguments of NVTabular's function."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from exporter.errors import ExportError
from exporter.export import export_ensemble
from exporter.plan.options import ServingOptions
from exporter.report.report import ExportReport
from workflow import Workflow


def export_tensorflow_ensemble(
    model: Any,
    workflow: Workflow,
    name: str,
    model_path: str | os.PathLike[str],
    label_columns: Sequence[str] | None = None,
    sparse_max: Mapping[str, int] | None = None,
    version: int | None = None,
    nvtabular_backend: str = "python",
    cats: Sequence[str] | None = None,
    conts: Sequence[str] | None = None,
    *,
    serving: ServingOptions | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> ExportReport:
    """Write a Triton ensemble, with the arguments of NVTabular's function: see `export_ensemble`.

    By default preprocessing is `<name>_nvt`, the network `<name>_tf`, and both are `<name>`.

    Args:
        model: the network.
        workflow: a fitted workflow.
        name: the ensemble's name.
        model_path: the model repository; made if missing. Or a folder of an object store.
        label_columns: columns of the training data that requests lack.
        sparse_max: the width of each list that the network takes as one input.
        version: the version folder of all models.
        nvtabular_backend: "python", the only remaining one.
        cats: no longer needed: the network's inputs name the columns it takes.
        conts: likewise.
        serving: how to serve it.
        storage_options: how to connect to the object store of `model_path`.

    Returns:
        A report.

    Raises:
        ExportError: as `export_ensemble`.

    Example:
        >>> report = export_tensorflow_ensemble(
        ...     model, workflow, "movielens", "models", ["rating"]
        ... )  # doctest: +SKIP
    """
    _expect_known_arguments(nvtabular_backend, cats, conts)
    return export_ensemble(
        model,
        workflow,
        name,
        model_path,
        label_columns,
        sparse_max=sparse_max,
        version=version,
        serving=serving,
        storage_options=storage_options,
    )


def _expect_known_arguments(backend: str, cats: Any, conts: Any) -> None:
    if backend != "python":
        raise ExportError(f'Expected nvtabular_backend="python". Received: {backend!r}.')
    if cats is not None or conts is not None:
        raise ExportError(
            "cats and conts are not needed: the network's inputs name the columns that it takes."
        )
