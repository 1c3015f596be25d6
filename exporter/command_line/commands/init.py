"""A new project."""

from __future__ import annotations

import shutil
import sys
from importlib.metadata import distribution
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from exporter.command_line.guard import CommandError
from exporter.command_line.lines import folded
from exporter.command_line.package import Package, installed_package, package_at
from exporter.command_line.places import filling
from exporter.command_line.words import Json, answer
from exporter.plan.model_name import expect_name
from workflow.first_use import NAME

# The files of `exporter/command_line/project`, and their places in the new folder.
FILES = {
    "features.py": "features.py",
    "sample_data.py": "sample_data.py",
    "Makefile": "Makefile",
    "docker-compose.yml": "docker-compose.yml",
    "gitignore": ".gitignore",
    "ci.yml": ".github/workflows/proof.yml",
}


def init(
    folder: Annotated[Path, typer.Argument(help="A new folder, or an empty one.")],
    name: Annotated[str, typer.Option(help="The ensemble's name.")] = "clicks",
    package: Annotated[
        str | None,
        typer.Option(
            help="Where the project's requirements get this package from: a wheel, which is copied "
            "into the project, a folder with the source, or a URL; by default where it was "
            "installed from here."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a project folder that works at once.

    It has the preprocessing (features.py), made-up clicks, a Makefile from raw data to the proof, a
    compose file and a workflow for GitHub, which installs requirements.txt. make takes the programs of the
    active environment, or of the project's own .venv, which `make env` makes from requirements.txt.

    Example: `ensemble init shop && make -C shop`
    """
    expect_name(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CommandError(f"Expected a new folder, or an empty one. Received: {str(folder)!r}.")
    needed = installed_package(distribution(NAME)) if package is None else package_at(package)
    with filling(folder):
        paths = _written(folder, name, needed)
    lines = [
        folded(f"made      {', '.join(str(path.relative_to(folder)) for path in paths)}"),
        f"installs  {needed.requirement}",
    ]
    if needed.only_here:
        lines.append("          which is on this machine alone: for CI give --package WHEEL or URL")
    lines.append(f"try       {_here()}make -C {quote(str(folder))}")
    answer(as_json, "\n".join(lines), folder=folder, files=paths, requirement=needed.requirement)


def _written(folder: Path, name: str, needed: Package) -> list[Path]:
    """Write the project's files."""
    source = files("exporter.command_line") / "project"
    paths = []
    for template, place in FILES.items():
        text = (source / template).read_text(encoding="utf-8")
        text = text.replace("NAME := clicks", f"NAME := {name}")
        text = text.replace("--load-model=clicks", f"--load-model={name}")
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    paths.append(folder / "requirements.txt")
    paths[-1].write_text(needed.text, encoding="utf-8")
    if needed.wheel is not None:
        paths.append(folder / "wheels" / needed.wheel.name)
        paths[-1].parent.mkdir()
        shutil.copyfile(needed.wheel, paths[-1])
    return paths


def _here() -> str:
    """The path that a shell needs to find this environment's programs, if it is not active."""
    programs = Path(sys.executable).parent
    path = shutil.which("ensemble", path=programs)
    return "" if path in (None, shutil.which("ensemble")) else f"PATH={quote(str(programs))}:$PATH "
