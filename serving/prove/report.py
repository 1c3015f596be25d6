"""The results of a parity check, as text and as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workflow.picture.markup import safe, table
from workflow.schema.own_names import OwnNames

# The greatest difference of a float feature that counts as equal: some ulp of float32.
FEATURE_TOLERANCE = 1e-6
_MOST_ROWS, _MOST_COLUMNS = 20, 8
_SIDE_BY_SIDE = ("output", "row", "raw", "offline", "served", "difference")
_RULES = [
    "difference of floats: |served - offline| / max(1, |offline|)",
    f"tolerance of float features: {FEATURE_TOLERANCE:g}",
]


@dataclass(frozen=True)
class ComparedRow(metaclass=OwnNames):
    """A row of one output, with the offline value and the server's.

    Attributes:
        row: its index.
        offline: the value of the offline pipeline, as text.
        served: the value from the server, as text.
        difference: as `OutputParity.max_difference`.
        equal: whether the difference is within the tolerance.
    """

    row: int
    offline: str
    served: str
    difference: float
    equal: bool


@dataclass(frozen=True)
class OutputParity(metaclass=OwnNames):
    """Comparison of one column from the server with the same column offline.

    Attributes:
        name: the column's name.
        kind: "feature" of the preprocessing step, or "prediction" of the ensemble.
        rows: the number of rows compared.
        mismatches: the number of rows that differ by more than the tolerance; integers and strings
            must be identical.
        max_difference: the greatest difference: for floats |served - offline| / max(1, |offline|),
            for integers |served - offline|, for strings 0. Infinite if only one side is null, NaN
            or infinite, or if a list has another length.
        first_mismatch: the index of the first row that differs, or None.
        undefined: the number of further rows with a NaN or an infinity among the features, for which only
            one side answers NaN: TensorFlow's answer to a NaN depends on the processor.
        worst: the rows with the largest differences, which may be 0; those beyond the tolerance
            first.
    """

    name: str
    kind: str
    rows: int
    mismatches: int
    max_difference: float
    first_mismatch: int | None
    undefined: int = 0
    worst: tuple[ComparedRow, ...] = ()


@dataclass(frozen=True, repr=False)
class ParityReport(metaclass=OwnNames):
    """The result of a parity check; printing it shows a table, and a notebook shows it as HTML.

    Attributes:
        model: the ensemble's name.
        generation: the generation of the export that the server has.
        rows: the number of rows compared.
        tolerance: the greatest `OutputParity.max_difference` of a float prediction that counts as
            equal.
        outputs: one entry for each feature and each prediction.
        raw: the raw values, as text, of the rows with the largest differences among all outputs.
        recall: of an index behind `NearestItems`, the share of the nearest items, by an exact search,
            that the served lists have, in the first rows, and how many rows these are; else None.
        nan_rows: the features that a network in TensorFlow takes and that are NaN or infinite in some
            rows, with the number of these rows. The answers to them may differ on another runtime or processor.
    """

    model: str
    generation: str
    rows: int
    tolerance: float
    outputs: tuple[OutputParity, ...]
    raw: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    recall: tuple[float, int] | None = None
    nan_rows: Mapping[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether every row of every output is equal, and at least one row was compared."""
        return self.rows > 0 and all(output.mismatches == 0 for output in self.outputs)

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        verdict = "passed" if self.passed else "FAILED"
        wrong = sum(output.mismatches > 0 for output in self.outputs)
        return (
            f"ParityReport({self.model!r}, {verdict}: {self.rows:,} rows, "
            f"{wrong} of {len(self.outputs)} outputs differ)"
        )

    def __str__(self) -> str:
        verdict = "passed" if self.passed else "FAILED"
        lines = [
            f"Parity {verdict}: {self.model}, {self.rows:,} rows, tolerance {self.tolerance:g}"
        ]
        width = max(len(output.name) for output in self.outputs)
        lines.append(
            f"  {'output':{width}}  {'kind':10}  {'mismatches':>10}  {'max difference':>14}"
        )
        lines += [
            f"  {o.name:{width}}  {o.kind:10}  {o.mismatches:>10,}  {o.max_difference:>14.2g}"
            + (f"  first at row {o.first_mismatch}" if o.first_mismatch is not None else "")
            for o in self.outputs
        ]
        return "\n".join([*lines, *(f"  {note}" for note in self._notes())])

    def _notes(self) -> list[str]:
        undefined = max((output.undefined for output in self.outputs), default=0)
        rules = [*_RULES]
        if self.recall is not None:
            rules.append(
                f"recall of the index: {self.recall[0]:.3f} of the exact lists, "
                f"first {self.recall[1]:,} rows"
            )
        if self.nan_rows:
            columns = ", ".join(f"{name} in {rows:,} rows" for name, rows in self.nan_rows.items())
            rules += [
                f"warning: NaN or infinity reaches the network: {columns}. Its answer",
                "  depends on the runtime and the processor. Clip or fill these columns.",
            ]
        if undefined:
            rules.append(
                f"{undefined:,} rows with a NaN or an infinity among the features were not compared"
            )
        return rules

    def to_html(self) -> str:
        """The report as an HTML fragment, including styles.

        `exporter.parity_page` is a whole page, with the model's picture, sizes and response times.
        """
        color = "#2a9d4a" if self.passed else "#e5484d"
        verdict = "passed" if self.passed else "failed"
        head = ("output", "kind", "mismatches", "max difference")
        cells = [
            (o.name, o.kind, f"{o.mismatches:,}", f"{o.max_difference:.2g}") for o in self.outputs
        ]
        failed = [number for number, output in enumerate(self.outputs) if output.mismatches]
        return (
            '<div class="parity" style="font:14px/1.5 system-ui,sans-serif">'
            "<style>.parity table{border-collapse:collapse}"
            ".parity td,.parity th{padding:4px 14px;text-align:right;border-bottom:1px solid #8885}"
            ".parity td:nth-child(-n+2),.parity th:nth-child(-n+2){text-align:left}"
            "@media(max-width:40rem){.parity td,.parity th{padding:4px 6px}}"
            ".parity .worst{overflow-x:auto}.parity .worst th{white-space:nowrap}"
            ".parity .worst td,.parity .worst th{text-align:left;"
            "vertical-align:top;max-width:22rem;overflow-wrap:anywhere}"
            ".parity .worst td:nth-child(n+3):nth-child(-n+5){min-width:6rem}</style>"
            f'<p><b style="color:{color}">Parity {verdict}</b>: {safe(self.model)}, {self.rows:,} rows, '
            f"tolerance {self.tolerance:g}, generation <code>{safe(self.generation)}</code></p>"
            f"{table(cells, head, failed)}<p>{'<br/>'.join(map(safe, self._notes()))}</p>{self._worst()}</div>"
        )

    def _worst(self) -> str:
        """The rows with the largest differences, each with its raw values and both answers."""
        rows = [
            _differing(output, case, self.raw[case.row])
            for output, case in worst_of_all(self.outputs)
            if case.row in self.raw
        ]
        if not rows:
            return ""
        head = "".join(f"<th>{title}</th>" for title in _SIDE_BY_SIDE)
        return (
            "<p><b>Rows with the largest differences</b>, in red beyond the tolerance</p>"
            f'<div class="worst"><table><tr>{head}</tr>{"".join(rows)}</table></div>'
        )

    def _repr_html_(self) -> str:
        return self.to_html()


def worst_of_all(outputs: Sequence[OutputParity]) -> list[tuple[OutputParity, ComparedRow]]:
    """The rows with the largest differences, with their outputs, those beyond the tolerance first.

    Of equal differences each output has its first row before another has its second. Of an output
    without differences one row is enough.
    """
    every = [
        (case.equal, -case.difference, rank, output, case)
        for output in outputs
        for rank, case in enumerate(output.worst)
        if rank == 0 or case.difference or not case.equal
    ]
    every.sort(key=lambda entry: entry[:3])
    return [(output, case) for *_, output, case in every[:_MOST_ROWS]]


def _differing(output: OutputParity, case: ComparedRow, raw: Mapping[str, str]) -> str:
    # A text from right to left is a part of its own, which does not reorder the rest of the cell.
    values = "".join(
        f"<div><code>{safe(name)}</code> <bdi>{safe(value)}</bdi></div>"
        for name, value in raw.items()
    )
    if len(raw) > _MOST_COLUMNS:
        values = f"<details><summary>{len(raw):,} columns</summary>{values}</details>"
    answers = (case.offline, case.served, f"{case.difference:.2g}")
    cells = [safe(output.name), f"{case.row:,}", values, *map(safe, answers)]
    style = "" if case.equal else ' style="background:#cf222e33"'
    return f"<tr{style}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
