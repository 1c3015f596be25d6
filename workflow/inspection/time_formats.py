"""Formats of dates and times that are written as text."""

from __future__ import annotations

import polars as pl

_DAYS = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y"),
    *("%b %d %Y", "%b %d, %Y", "%d %b %Y", "%d-%b-%Y"),
)
_CLOCKS = tuple(f"{mark}{clock}" for clock in ("%H:%M", "%H:%M:%S%.f") for mark in " T")
# With the offset of a zone as well, of which Z is one.
_HOURS = ("", *_CLOCKS, *(f"{clock}%#z" for clock in _CLOCKS))
FORMATS = tuple(f"{day}{hour}" for hour in _HOURS for day in _DAYS)
# A format of four digits reads 12 as the year 12.
_FIRST_YEAR = 1000


def time_formats(texts: pl.Series) -> list[str]:
    """The known formats that read all of some texts, with years of four digits.

    Args:
        texts: some texts, of which white space at the ends is ignored.

    Example:
        >>> time_formats(pl.Series(["2012/01/31", "2012/02/01"]))
        ['%Y/%m/%d']
    """
    stripped = texts.str.strip_chars()
    # A hundred formats are many for each column of texts, most of which contain no year.
    if texts.is_empty() or not stripped.str.contains(r"\d{4}").all():
        return []
    return [text for text in FORMATS if _is_read(stripped, text)]


def has_hours(text: str) -> bool:
    """Whether a format is one of times, not of dates alone."""
    return "%H" in text


def _is_read(texts: pl.Series, text: str) -> bool:
    years = texts.str.to_datetime(text, strict=False).dt.year()
    return bool((years.fill_null(0) >= _FIRST_YEAR).all())
