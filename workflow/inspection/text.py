"""An inspection as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from workflow.picture.diagram import cut, printable, width_of

from .column import ColumnInspection
from .suggestion import suggestion

_WIDTH, _NAME, _TYPE, _RANGE = 80, 18, 13, 17
# A line has one word of code, or of a name, that is longer than the terminal is wide.
_LONGEST = 200
# The reason why a column of the type null is not inspected.
NO_VALUES = "Every row is null, or an empty list. Leave the column out, or cast it to its type."
_HEAD = ("column", "type", "missing", "distinct", "top", "zipf", "range")


def to_text(rows: int, columns: Sequence[ColumnInspection], unreadable: Mapping[str, str]) -> str:
    """Two lines for each column: its facts, and a suggestion.

    Args:
        rows: the number of rows.
        columns: the facts.
        unreadable: reasons why columns cannot be read, by name.
    """
    lines = [f"{rows:,} rows, {len(columns) + len(unreadable):,} columns", "", _line(_HEAD)]
    for column in columns:
        lines += _lines(rows, column)
    for name, reason in unreadable.items():
        title = "no values" if reason == NO_VALUES else "not readable"
        lines += [f"{_padded(name, _NAME)}  {title}", *_folded(reason)]
    lines += ["", *_LEGEND]
    return "\n".join(line.rstrip() for line in lines)


_LEGEND = (
    "missing: null, NaN or infinite; of lists, null ones. top: share of the",
    "commonest value. zipf: exponent s of frequency ~ rank^-s. range: least and",
    "greatest number, of strings their length. ~: estimated. Lines with ->",
    "suggest operators, a guess by the facts alone.",
)


def missing(rows: int, column: ColumnInspection) -> float:
    """The share of rows without a finite value; of a list column, of null lists."""
    count = column.nulls + (0 if column.is_list else column.nans + column.infinities)
    return count / rows if rows else 0.0


def facts_of(rows: int, column: ColumnInspection) -> tuple[str, ...]:
    """The facts of a column as texts: missing, distinct, top, zipf and range."""
    about = "~" if column.is_estimated else ""
    ends = [column.readable(end) for end in (column.minimum, column.maximum)]
    return (
        percent(missing(rows, column)),
        f"{about}{column.distinct:,}",
        percent(column.commonest),
        "" if column.zipf is None else f"{column.zipf:.2f}",
        f"{ends[0]} .. {ends[1]}" if ends[0] else "",
    )


def percent(share: float) -> str:
    """A share that is 0% or 100% only if it is so exactly.

    Example:
        >>> percent(0.00001), percent(0.5), percent(1)
        ('<0.1%', '50.0%', '100%')
    """
    if share in (0, 1):
        return f"{share:.0%}"
    return "<0.1%" if share < 0.001 else ">99.9%" if share > 0.999 else f"{share:.1%}"


def details(column: ColumnInspection) -> list[str]:
    """Further facts, in words: lengths of lists, missing elements, and quantiles."""
    texts = []
    if column.lengths:
        least, middle, most = (column.lengths[n] for n in (0, 50, 100))
        texts.append(f"lists of {least} to {most} values, median length {middle}")
    counts = {"null elements": column.null_elements, "NaN": column.nans}
    counts["infinite"] = column.infinities
    texts += [f"{count:,} {name}" for name, count in counts.items() if count]
    if column.quantiles and column.dtype != "string" and column.distinct > 2:
        half, high = (column.readable(column.quantiles[n]) for n in (50, 99))
        texts.append(f"median {half}, 99% up to {high}")
    return texts


def _lines(rows: int, column: ColumnInspection) -> Iterator[str]:
    *facts, ends = facts_of(rows, column)
    notes = details(column)
    # A fact that is too long for the line goes below it.
    if width_of(ends) > _RANGE:
        notes, ends = [f"from {ends.replace(' .. ', ' to ')}", *notes], ""
    if width_of(column.type) > _TYPE:
        notes = [column.type, *notes]
    name = printable(column.name)
    if width_of(name) > _NAME:
        yield cut(name, _WIDTH)
        name = ""
    yield _line((name, column.type, *facts, ends))
    if notes:
        yield from _folded(", ".join(notes))
    yield from _folded(f"-> {suggestion(column)}")


def _line(texts: Sequence[str]) -> str:
    name, type_, gone, distinct, top, zipf, ends = texts
    start = f"{_padded(name, _NAME)} {_padded(type_, _TYPE)}"
    return f"{start}{gone:>7} {distinct:>9} {top:>6} {zipf:>4}  {cut(ends, _RANGE)}"


def _padded(text: str, width: int) -> str:
    text = cut(printable(text), width)
    return text + " " * (width - width_of(text))


def _folded(text: str) -> Iterator[str]:
    """A text in indented lines, broken between words, but not inside of code's texts, which is to be copied."""
    quoted = printable(text).replace("\0", " ").split('"')
    quoted[1::2] = [inner.replace(" ", "\0") for inner in quoted[1::2]]
    line = "   "
    for word in '"'.join(quoted).split(" "):
        whole = word.replace("\0", " ")
        if width_of(line) + 1 + width_of(whole) > _WIDTH and line.strip():
            yield line
            line = "     "
        line = cut(f"{line} {whole}", _LONGEST)
    yield line
