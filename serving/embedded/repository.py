"""Reading of a model repository's configs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from serving.errors import ServerError
from workflow.errors import in_a_line
from workflow.files.repository import CONFIG, expect_repository


def models_to_load(repository: Path, models: Sequence[str] | None) -> tuple[str, ...]:
    """The models that a server should load.

    Args:
        repository: the model repository.
        models: names; None for every model that clients use, which are ensembles and fused models
            of our exporter, or for every model if there are none of these.

    Raises:
        ServerError: the repository has no model, or not the named ones.
    """
    if isinstance(models, str):
        raise ServerError(
            f"Expected models as a list of names, such as [{models!r}]. Received: {models!r}."
        )
    expect_repository(repository, ServerError)
    # A killed publication may leave a folder that begins with a dot.
    names = sorted(path.parent.name for path in repository.glob(f"[!.]*/{CONFIG}"))
    if not names:
        raise ServerError(
            f"Expected models in {repository}, folders with a config.pbtxt. Received: none."
        )
    if models is None:
        return tuple([name for name in names if _is_published(repository / name)] or names)
    wanted = tuple(models)
    missing = [name for name in wanted if name not in names]
    if missing or not wanted:
        raise ServerError(
            f"Expected models among {', '.join(names)} in {repository}. "
            f"Received: {', '.join(missing) or 'no name'}."
        )
    return wanted


def steps_of(repository: Path, model: str) -> tuple[str, ...]:
    """The models inside an ensemble; none for another model, or without a config.

    Raises:
        ServerError: the config cannot be read.
    """
    if not (repository / model / CONFIG).is_file():
        return ()
    return steps_in(read_config(repository / model))


def steps_in(config: Any) -> tuple[str, ...]:
    """The models inside an ensemble, by its config."""
    return tuple(dict.fromkeys(step.model_name for step in config.ensemble_scheduling.step))


def read_config(folder: Path) -> Any:
    """The `ModelConfig` message of a model's folder.

    Raises:
        ServerError: the config cannot be read.
    """
    config = model_config_pb2.ModelConfig()
    try:
        return text_format.Parse((folder / CONFIG).read_text(encoding="utf-8"), config)
    except (text_format.ParseError, UnicodeDecodeError, OSError) as error:
        raise ServerError(
            f"Expected a model's config in {folder / CONFIG}. Received: {in_a_line(error)} Export the model again."
        ) from error


def _is_published(folder: Path) -> bool:
    config = read_config(folder)
    return bool(config.ensemble_scheduling.step) or "label_columns" in config.parameters
