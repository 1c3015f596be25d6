"""A new project."""

from __future__ import annotations

import re
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from exporter.command_line.guard import CommandError
from exporter.command_line.words import Json, answer

# The files of `exporter/command_line/project`, and their places in the new folder.
FILES = {
    "features.py": "features.py",
    "sample_data.py": "sample_data.py",
    "Makefile": "Makefile",
    "docker-compose.yml": "docker-compose.yml",
    "requirements.txt": "requirements.txt",
    "gitignore": ".gitignore",
    "ci.yml": ".github/workflows/proof.yml",
}
# As `exporter.plan.model_spec.MODEL_NAME`, whose import takes a second.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def init(
    folder: Annotated[Path, typer.Argument(help="A new folder, or an empty one.")],
    name: Annotated[str, typer.Option(help="The ensemble's name.")] = "clicks",
    as_json: Json = False,
) -> None:
    """Make a project folder that works at once.

    It has the preprocessing (features.py), made-up clicks, a Makefile from raw data to the proof, a
    compose file and a workflow for GitHub.

    Example: `ensemble init shop && make -C shop`
    """
    if not _NAME.fullmatch(name):
        raise CommandError(f"Expected a name of letters, digits, _ and -. Received: {name!r}.")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CommandError(f"Expected a new folder, or an empty one. Received: {str(folder)!r}.")
    source = files("exporter.command_line") / "project"
    made = []
    for own, place in FILES.items():
        text = (source / own).read_text(encoding="utf-8")
        text = text.replace("NAME := clicks", f"NAME := {name}")
        text = text.replace("--load-model=clicks", f"--load-model={name}")
        text = text.replace("==0.1.0", f"=={version('parquet-to-triton')}")
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        made.append(path)
    text = "\n".join(["made      " + ", ".join(FILES.values()), f"try       make -C {folder}"])
    answer(as_json, text, folder=folder, files=made)
