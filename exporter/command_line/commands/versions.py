"""Commands for an export's versions: `verify`, `rollback` and `recover`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from exporter.command_line.words import Json, answer

# Others are imported by the commands that need them, so that help is shown at once.
Name = Annotated[str, typer.Argument(help="The ensemble's name.")]
Repository = Annotated[Path, typer.Option(help="The model repository.")]
OldVersion = Annotated[int | None, typer.Option(help="By default the one before.")]


def verify(
    name: Name,
    repository: Repository = Path("models"),
    version: Annotated[int | None, typer.Option(help="By default the published one.")] = None,
    as_json: Json = False,
) -> None:
    """Compare every file of an ensemble with what its export wrote.

    Example: `ensemble verify movielens --repository models`
    """
    from exporter.repository import verify as repository_verify  # noqa: PLC0415

    generation = repository_verify.verify(repository, name, version)
    text = f"{name} is what its export wrote: generation {generation}"
    answer(as_json, text, model=name, generation=generation)


def rollback(
    name: Name,
    repository: Repository = Path("models"),
    version: OldVersion = None,
    as_json: Json = False,
) -> None:
    """Publish an older version of an ensemble again.

    Example: `ensemble rollback movielens --repository models`
    """
    from exporter.repository import versions  # noqa: PLC0415

    published = versions.rollback(repository, name, version)
    answer(as_json, f"{name}: version {published} is published", model=name, version=published)


def recover(name: Name, repository: Repository = Path("models"), as_json: Json = False) -> None:
    """Remove the remains of a killed export or rollback.

    Example: `ensemble recover movielens --repository models`
    """
    from exporter.repository import versions  # noqa: PLC0415

    published = versions.recover_repository(repository, name)
    text = f"{name}: {'nothing' if published is None else f'version {published}'} is published"
    answer(as_json, text, model=name, version=published)
