"""Lists of a fixed width: what `sparse_max` says of them, and where they can be cut early."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from exporter.errors import ExportError
from workflow.expressions.language.verbs import ELEMENTWISE
from workflow.expressions.program.program import Program
from workflow.wire.format import WireColumn

_ALL = 2**63


def expect_widths(columns: Iterable[WireColumn], sparse_max: Mapping[str, int]) -> None:
    """Check that the network takes lists as `sparse_max` says.

    Args:
        columns: what the network takes.
        sparse_max: the width of a list, by the column's name.

    Raises:
        ExportError: a list that the network does not take, or takes in another form.
    """
    fixed = {column.name: column.width for column in columns if column.layout == "fixed"}
    for name, width in sparse_max.items():
        if name not in fixed:
            raise ExportError(
                f"Expected sparse_max of lists that the network takes as one input of a fixed width: "
                f"{', '.join(fixed) or 'there are none'}. Received: {name!r}. "
                "Leave it out, or give the network the input "
                f"keras.Input(({width!r},), name={name!r})."
            )
        if fixed[name] != width:
            raise ExportError(
                f"Expected sparse_max of {name!r} to be {fixed[name]}, the columns of the network's "
                f"input. Received: {width!r}."
            )


def cut_widths(program: Program, columns: Iterable[WireColumn]) -> dict[str, int]:
    """The widths at which a client's lists can be cut, since nothing beyond reaches the network.

    That is so where every step on the way keeps each value in its place, and the network takes
    a fixed width.

    Args:
        program: the preprocessing.
        columns: what the network takes.
    """
    widths = {column.name: column.width for column in columns}
    needed = dict.fromkeys(range(len(program.steps)), 0)
    for column, output in program.outputs:
        needed[output] = max(needed[output], widths[column.name] or _ALL)
    for number, step in reversed([*enumerate(program.steps)]):
        passed_on = needed[number] if step.verb in ELEMENTWISE else _ALL
        for operand in step.operands:
            needed[operand] = max(needed[operand], passed_on)
    return {
        step.parameters["name"]: needed[number]
        for number, step in enumerate(program.steps)
        if step.verb == "source" and step.type.is_list and needed[number] < _ALL
    }
