"""Changes of the columns that clients send and get, from the published version to a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from exporter.plan.config_pbtxt import read_config
from exporter.plan.model_spec import ModelSpec
from workflow.files.repository import CONFIG
from workflow.schema.dtypes import SchemaError
from workflow.wire.format import WireColumn, parse_columns


def contract_changes(repository: Path, published: ModelSpec) -> tuple[str, ...]:
    """The columns to which clients of the published version have to be adapted, in words.

    The golden rows of the new version cannot show them, since they are in its own form. A tensor may
    stay the same: the microseconds of a time without a zone are other ones in a zone.

    Args:
        repository: the model repository, before the new version is published.
        published: the model that clients use, in the new version.
    """
    path = repository / published.name / CONFIG
    if not path.exists():
        return ()
    config = read_config(path)
    parameters: Any = config.parameters
    widths = {tensor.name: tensor.dims[-1] for tensor in config.output}
    changes: list[str] = []
    for kind in ("inputs", "outputs"):
        try:
            old = {c.name: c for c in parse_columns(parameters[kind].string_value)}
        except SchemaError:  # the published model is damaged, or another program's
            return ()
        new = {c.name: c for c in parse_columns(published.parameters[kind])}
        for name in [*old, *(name for name in new if name not in old)]:
            change = _change(old.get(name), new.get(name))
            changes += [f"{kind[:-1]} {name}: {change}"] if change else []
    for tensor in published.outputs:
        width = tensor.dims[-1]
        if (old_width := widths.get(tensor.name, width)) != width:
            changes.append(
                f"output {tensor.name}: {_values(width)} a row, was {_values(old_width)}"
            )
    return tuple(changes)


def _values(width: int) -> str:
    return "any number of values" if width < 0 else f"{width} value{'s' * (width != 1)}"


def _change(old: WireColumn | None, new: WireColumn | None) -> str:
    """The difference in words; none if clients may go on as they do."""
    if new is None or old is None:
        return "new" if old is None else "gone"
    if _type(old) != _type(new):
        return f"{_type(new)}, was {_type(old)}"
    if _form(old) != _form(new):
        return f"{_form(new)}, was {_form(old)}"
    return "takes no null any more" if old.nullable and not new.nullable else ""


def _form(column: WireColumn) -> str:
    """The tensors of a column in words: the same lists are other tensors when requests are joined."""
    width = f" of {column.width} elements" if column.width else ""
    return f"{column.layout}{' lists' * column.is_list}{width}"


def _type(column: WireColumn) -> str:
    return f"list[{column.element}]" if column.is_list else column.element
