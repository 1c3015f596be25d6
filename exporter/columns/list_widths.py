"""Lists of a fixed width: checks against `sparse_max`, and widths to which clients can cut them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from exporter.errors import ExportError
from workflow.expressions.language.verbs import VERBS
from workflow.expressions.program.program import Program
from workflow.schema.names import listed
from workflow.wire.format import WireColumn

_ALL = 2**63


def expect_widths(columns: Iterable[WireColumn], sparse_max: Mapping[str, int]) -> None:
    """Check that the network's inputs have the widths in `sparse_max`.

    Args:
        columns: the columns that the network takes.
        sparse_max: the width of a list, by the column's name.

    Raises:
        ExportError: the network does not take a list, or takes it in another form.
    """
    fixed = {column.name: column.width for column in columns if column.layout == "fixed"}
    for name, width in sparse_max.items():
        if name not in fixed:
            raise ExportError(
                f"Expected sparse_max for lists that the network takes as one input of a fixed width: "
                f"{listed(fixed) or 'there are none'}. Received: {name!r}. "
                "Leave it out, or give the network the input "
                f"keras.Input(({width!r},), name={name!r})."
            )
        if fixed[name] != width:
            raise ExportError(
                f"Expected sparse_max of {name!r} to be {fixed[name]}, the columns of the network's "
                f"input. Received: {width!r}."
            )


def cut_widths(program: Program, columns: Iterable[WireColumn]) -> dict[str, int]:
    """The widths to which a client can cut lists, since the rest does not reach the network.

    This holds if every step in between keeps each value at its position, and the network takes a
    fixed width.

    Args:
        program: the preprocessing.
        columns: the columns that the network takes.
    """
    widths = {column.name: column.width for column in columns}
    needed = dict.fromkeys(range(len(program.steps)), 0)
    for column, output in program.outputs:
        needed[output] = max(needed[output], widths[column.name] or _ALL)
    for number, step in reversed([*enumerate(program.steps)]):
        verb = VERBS.get(step.verb)
        passed_on = needed[number] if verb and (verb.elementwise or verb.repeats) else _ALL
        for operand in step.operands:
            needed[operand] = max(needed[operand], passed_on)
    return {
        step.parameters["name"]: needed[number]
        for number, step in enumerate(program.steps)
        if step.verb == "source" and step.type.is_list and needed[number] < _ALL
    }
