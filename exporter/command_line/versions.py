"""Commands for an export's versions: `verify`, `rollback` and `recover`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from exporter.repository import verify as repository_verify
from exporter.repository import versions

Name = Annotated[str, typer.Argument(help="The ensemble's name.")]
Repository = Annotated[Path, typer.Option(help="The model repository.")]


def verify(
    name: Name,
    repository: Repository = Path("models"),
    version: Annotated[int | None, typer.Option(help="By default the published one.")] = None,
) -> None:
    """Compare every file of an ensemble with what its export wrote.

    Example: `ensemble verify movielens --repository models`
    """
    generation = repository_verify.verify(repository, name, version)
    typer.echo(f"{name} is what its export wrote: generation {generation}")


def rollback(
    name: Name,
    repository: Repository = Path("models"),
    version: Annotated[int | None, typer.Option(help="By default the one before.")] = None,
) -> None:
    """Publish an older version of an ensemble again.

    Example: `ensemble rollback movielens --repository models`
    """
    typer.echo(f"{name}: version {versions.rollback(repository, name, version)} is published")


def recover(name: Name, repository: Repository = Path("models")) -> None:
    """Remove the remains of a killed export, as the next export would.

    Example: `ensemble recover movielens --repository models`
    """
    published = versions.recover_repository(repository, name)
    typer.echo(f"{name}: {'nothing' if published is None else f'version {published}'} is published")
