"""CONTRIBUTING.md names places that exist, and every folder of the way of the data."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
PLACE = re.compile(
    r"\b(?:(?:workflow|loader|training|exporter|serving|triton_models|tests|docs)/[\w/.-]*\w)"
)


def test_every_file_and_folder_that_it_names_is_there():
    named = set(PLACE.findall(TEXT))
    assert len(named) > 40
    assert not [place for place in sorted(named) if not (ROOT / place).exists()]


def test_every_folder_has_a_docstring_that_says_what_belongs_there():
    for package in ("workflow", "loader", "exporter"):
        for file in (ROOT / package).rglob("__init__.py"):
            assert re.match(r'"""[A-Z][^"]+\.', file.read_text()), file
