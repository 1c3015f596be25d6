"""Concatenation of the columns of nodes, and selection among them."""

from __future__ import annotations

from collections.abc import Iterable

from workflow.errors import WorkflowError
from workflow.operator.feature import Features

from .row_set import Resolved
from .selection import Selection, names_of


def join(labels: Iterable[str], inputs: Iterable[Resolved]) -> Features:
    """All columns; a name may come twice only for the same column.

    Args:
        labels: names of the inputs, for messages.
        inputs: the columns of some nodes.

    Raises:
        WorkflowError: two columns have one name.

    Example:
        >>> from workflow import ColumnSchema, Schema
        >>> from workflow.graph.node import as_node
        >>> from workflow.graph.resolution import Resolution
        >>> data = Resolution(Schema([ColumnSchema("a", "int64"), ColumnSchema("b", "int64")]))
        >>> list(join(["a", "b"], [data.resolve(as_node(name), {}) for name in "ab"]))
        ['a', 'b']
    """
    joined: Features = {}
    origins: dict[str, str] = {}
    for label, result in zip(labels, inputs, strict=True):
        for name, feature in result.columns.items():
            if name in joined and joined[name].expression is not feature.expression:
                raise WorkflowError(
                    f"Two columns are named {name!r}, one from {origins[name]} and one from {label}. "
                    'Rename one, as in `... >> ops.Rename(postfix="_2")`, or drop it: by '
                    f"`- [{name!r}]`, or in a join by its columns_ext."
                )
            joined.setdefault(name, feature)
            origins.setdefault(name, label)
    return joined


def select(selection: Selection, made: Resolved, where: str, *, keep: bool) -> Resolved:
    """The selected columns, or all others.

    Args:
        selection: the selection.
        made: the columns to select from.
        where: a name for them, for messages.
        keep: whether to keep the selected columns, or drop them.

    Raises:
        WorkflowError: a name is missing, or no column has one of the tags.

    Example:
        >>> from workflow import ColumnSchema, Schema
        >>> from workflow.graph.node import as_node
        >>> from workflow.graph.resolution import Resolution
        >>> data = Resolution(Schema([ColumnSchema("a", "int64"), ColumnSchema("b", "int64")]))
        >>> made = data.resolve(as_node(["a", "b"]), {})
        >>> list(select(Selection.of("a"), made, "the data", keep=False).columns)
        ['b']
    """
    columns, groups = made.columns, selection.pick(made.tags, where)
    names = names_of(groups)
    if keep and selection.subgroups and (nested := [g for g in made.groups if len(g) > 1]):
        raise WorkflowError(
            f"Expected columns without groups, to combine them into one group. Received: the group "
            f"{', '.join(nested[0])} in {where}. Groups are one level deep: name the columns of each, "
            "as in node[['a', 'b'], ['a', 'c']]."
        )
    if keep:
        # Earlier groups remain if no new ones are selected.
        chosen = any(len(group) > 1 for group in groups)
        lost = () if chosen else made.lost
        groups = groups if chosen else made.grouped(names)
    else:
        dropped = set(names)
        names = [name for name in columns if name not in dropped]
        groups, lost = made.grouped(names), made.lost
    return Resolved({name: columns[name] for name in names}, groups, made.rows, lost)
