"""The line of a project's requirements.txt that names this package, and where to get it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from exporter.command_line.guard import CommandError
from workflow.first_use import NAME, installed_from

# What the targets of the project's Makefile need.
_EXTRAS = "cpu,serve,onnx"
_WHEEL = re.compile(r"parquet_to_triton-[^/]+\.whl")


@dataclass(frozen=True)
class Package:
    """The source of this package for pip.

    Attributes:
        requirement: the line of requirements.txt.
        wheel: a file that goes into the project's folder `wheels`; None for another source.
        only_here: whether the source exists on this machine alone.
    """

    requirement: str
    wheel: Path | None = None
    only_here: bool = False

    @property
    def text(self) -> str:
        """The content of requirements.txt."""
        if not self.only_here:
            return f"{self.requirement}\n"
        return (
            "# This folder exists on one machine. For CI and for others write a wheel that is in the project\n"
            f"# (./wheels/NAME.whl[{_EXTRAS}]) or a URL ({NAME}[{_EXTRAS}] @ https://...).\n"
            f"{self.requirement}\n"
        )


def package_at(place: str) -> Package:
    """The package at a place that the user names.

    Args:
        place: a wheel, a folder with the source, or a URL as pip takes it.

    Raises:
        CommandError: there is no such file or folder, or it is not this package's.
    """
    if "://" in place and not place.startswith("file://"):
        return Package(f"{NAME}[{_EXTRAS}] @ {place}")
    path = Path(url2pathname(urlsplit(place).path) if "://" in place else place)
    if path.is_file() and _WHEEL.fullmatch(path.name):
        return Package(f"./wheels/{path.name}[{_EXTRAS}]", wheel=path)
    if _is_source(path):
        return Package(f"{NAME}[{_EXTRAS}] @ {path.absolute().as_uri()}", only_here=True)
    raise CommandError(
        f"Expected --package as a wheel of {NAME}, a folder with its source, or a URL such as "
        f"https://host/parquet_to_triton-1.0.0-py3-none-any.whl. Received: {place!r}."
    )


def installed_package(distribution: Distribution) -> Package:
    """The package as it is installed here.

    Raises:
        CommandError: it came from a file or folder that is gone.
    """
    url = installed_from(distribution)
    if url is None:  # from an index
        return Package(f"{NAME}[{_EXTRAS}]=={distribution.version}")
    try:
        return package_at(url)
    except CommandError:
        raise CommandError(
            f"Expected --package, a wheel of {NAME} or a URL, since the place that it was installed "
            f"from is gone. Received: no --package, and {url}."
        ) from None


def _is_source(folder: Path) -> bool:
    project = folder / "pyproject.toml"
    return project.is_file() and f'name = "{NAME}"' in project.read_text(encoding="utf-8")
