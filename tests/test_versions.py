"""The versions of this environment are among those that pyproject.toml admits, or the very floors."""

import os
import tomllib
from collections import defaultdict
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
EXTRAS = ("cpu", "serve", "onnx", "dask", "objects", "faiss")


def requirements():
    """The requirements of users, except on a GPU."""
    optional = PROJECT["optional-dependencies"]
    listed = [*PROJECT["dependencies"], *(text for name in EXTRAS for text in optional[name])]
    return [Requirement(text) for text in listed]


def floors():
    """The oldest admitted version of each package; an extra may repeat one with another range."""
    found = defaultdict(list)
    for requirement in requirements():
        limits = [one for one in requirement.specifier if one.operator in {">=", "=="}]
        found[requirement.name] += [Version(one.version.removesuffix(".*")) for one in limits]
    return {name: max(versions, default=None) for name, versions in found.items()}


def test_every_installed_version_is_admitted():
    refused = [str(r) for r in requirements() if not r.specifier.contains(version(r.name))]
    assert refused == []


def test_every_requirement_has_a_floor():
    """Without one a resolver may choose a release of ten years ago."""
    assert [name for name, oldest in floors().items() if oldest is None] == []


def test_the_floors_are_what_the_oldest_environment_has():
    """`make test-versions` installs it: a floor that others' floors raise would be untested."""
    if os.environ.get("RESOLUTION") == "lowest-direct":
        assert {name: Version(version(name)) for name in floors()} == floors()
