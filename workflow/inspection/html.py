"""An inspection as HTML for a notebook or a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workflow.picture.markup import image, safe, table

from .column import ColumnInspection
from .suggestion import suggestion
from .text import details, facts_of

_NUMBERS = ("missing", "distinct", "top", "zipf", "range")
_HEAD = {
    **dict.fromkeys(("column", "type"), ""),
    **dict.fromkeys(_NUMBERS, "number"),
    **dict.fromkeys(("values", "suggestion"), "wide"),
}
_BARS, _WIDTH, _HEIGHT = 20, 120, 24
_STYLE = (
    "<style>.inspection { font: 13px/1.35 sans-serif } .inspection table { border-collapse: collapse; font: inherit }"
    ".inspection td, .inspection th { text-align: left; padding: 3px 12px 3px 0; vertical-align: top;"
    "border-bottom: 1px solid #8884 } .inspection .number.number { text-align: right; white-space: nowrap }"
    # In a narrow page the table scrolls, in lines that are not a word wide.
    ".inspection .wide { min-width: 14em }"
    ".inspection small { opacity: .75 } .inspection code { white-space: pre-wrap }</style>"
)
_LEGEND = (
    "missing: null, NaN or infinite; of lists, null ones. top: share of the commonest value. zipf: "
    "exponent s of frequency ~ rank^-s. range: least and greatest number, of strings their length. "
    "Bars: the share of values in equal steps of the range from the 1st to the 99th percentile, or "
    "that of the commonest values. A suggestion is a guess by the facts alone."
)


def to_html(rows: int, columns: Sequence[ColumnInspection], unreadable: Mapping[str, str]) -> str:
    """A table with a row for each column.

    Args:
        rows: the number of rows.
        columns: the facts.
        unreadable: reasons why columns cannot be read, by name.
    """
    head = "".join(f'<th class="{kind}">{title}</th>' for title, kind in _HEAD.items())
    body = "".join(_row(rows, column) for column in columns)
    title = f"{rows:,} rows, {len(columns) + len(unreadable):,} columns"
    lost = table(unreadable.items(), ("not inspected", "reason")) if unreadable else ""
    return (
        f'{_STYLE}<div class="inspection"><p><b>{title}</b></p><div style="overflow-x: auto">'
        f"<table><tr>{head}</tr>{body}</table></div>{lost}<p><small>{_LEGEND}</small></p></div>"
    )


def _row(rows: int, column: ColumnInspection) -> str:
    facts = "".join(f'<td class="number">{safe(fact)}</td>' for fact in facts_of(rows, column))
    common = ", ".join(_shown(column, value) for value, _ in column.common[:3])
    more = safe("; ".join([*details(column), *([f"commonest: {common}"] if common else [])]))
    advice = suggestion(column)
    code = f"<code>{safe(advice.operators or 'leave it out')}</code>"
    if advice.embedding:
        code += f"<br>embedding {advice.embedding[0]:,} x {advice.embedding[1]}"
    return (
        f"<tr><td><b>{safe(column.name)}</b></td><td>{safe(column.type)}</td>{facts}"
        f"<td>{_bars(column)}<br><small>{more}</small></td>"
        f"<td>{code}<br><small>{safe(advice.reason)}</small></td></tr>"
    )


def _shown(column: ColumnInspection, value: float | str) -> str:
    if isinstance(value, str):
        return f"{value!r:.30}"
    return column.readable(value) if column.time else f"{value}"


def _bars(column: ColumnInspection) -> str:
    """A small histogram of numbers, or of the commonest values."""
    shares = _histogram(column) or [
        int(count) / max(column.count, 1) for _, count in column.common[:_BARS]
    ]
    if not shares:
        return ""
    most, step = max(shares), _WIDTH / _BARS
    bars = "".join(
        f'<rect x="{n * step:.0f}" y="{_HEIGHT * (1 - share / most):.1f}" width="{step - 1:.0f}" '
        f'height="{_HEIGHT * share / most:.1f}" fill="#1f77b4"/>'
        for n, share in enumerate(shares)
    )
    return image(_WIDTH, _HEIGHT, f"shares of values of {column.name}", bars)


def _histogram(column: ColumnInspection) -> list[float]:
    """Shares of the values in equal steps, from percentiles; none for strings and few values."""
    if column.dtype in ("string", "bool") or column.distinct <= _BARS:
        return []
    inner = column.quantiles[1:-1]
    low, high = inner[0], inner[-1]
    if high <= low:
        return []
    shares = [0.0] * _BARS
    for number in inner:
        shares[min(int((number - low) / (high - low) * _BARS), _BARS - 1)] += 1 / len(inner)
    return shares
