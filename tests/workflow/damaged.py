"""Parquet files with a sound footer whose rows cannot be read."""

from __future__ import annotations

from pathlib import Path


def damage_rows(file: Path) -> None:
    """Write over the beginning of the first row group."""
    raw = bytearray(file.read_bytes())
    raw[4:40] = b"\xff" * 36
    file.write_bytes(raw)
