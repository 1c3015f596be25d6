"""Columns from the names of folders, as in day=2024-01-01/shop=7/part.parquet."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import date
from typing import Any
from urllib.parse import unquote

import polars as pl

# A column's name and its value, None for null.
Key = tuple[str, str | None]

# Hive's, Spark's and pyarrow's name for null.
_NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# Polars parses other names differently.
_PLAIN = re.compile(r"[\w.-]+=[\w .:,+-]+")


def keys_in(folders: Iterable[str]) -> tuple[Key, ...]:
    """The keys in the names of folders, percent-decoded.

    Example:
        >>> keys_in(["raw", "day=2024-01-01", "shop=a%2Fb"])
        (('day', '2024-01-01'), ('shop', 'a/b'))
    """
    split = [name.partition("=") for name in folders]
    return tuple(
        {unquote(name): _value(text) for name, equals, text in split if name and equals}.items()
    )


def _value(text: str) -> str | None:
    return None if text == _NULL else unquote(text)


def key_type(texts: Iterable[str | None]) -> pl.DataType:
    """The type of a key: integers or dates where all values are, else strings.

    Example:
        >>> key_type(["1", "02", None]), key_type(["1", "x"])
        (Int64, String)
    """
    values = {text for text in texts if text is not None}
    if values and all(map(_is_integer, values)):
        return pl.Int64()
    return pl.Date() if values and all(map(_is_date, values)) else pl.String()


def _is_integer(text: str) -> bool:
    return bool(_INTEGER.fullmatch(text)) and -(2**63) <= int(text) < 2**63


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.fullmatch(text) and date.fromisoformat(text))
    except ValueError:
        return False


def key_literal(text: str | None, dtype: pl.DataType) -> pl.Expr:
    """A key's value with a type from `key_type`."""
    value: Any = text
    if text is not None and dtype == pl.Int64:
        value = int(text)
    elif text is not None and dtype == pl.Date:
        value = date.fromisoformat(text)
    return pl.lit(value, dtype)


def names_for_polars(paths: Collection[Sequence[str]]) -> list[str] | None:
    """The names of all keys in paths, if one scan of Polars reads them as `keys_in` does.

    Polars requires the same keys in each path, from its beginning on.

    Args:
        paths: the parts of each path.
    """
    kinds = {tuple(name for name in parts[:-1] if "=" in name) for parts in paths}
    folders = next(iter(kinds), ())
    names = [folder.partition("=")[0] for folder in folders]
    same = {tuple(folder.partition("=")[0] for folder in kind) for kind in kinds} == {tuple(names)}
    plain = all(_PLAIN.fullmatch(folder) for kind in kinds for folder in kind)
    return names if same and plain and len(set(names)) == len(names) else None
