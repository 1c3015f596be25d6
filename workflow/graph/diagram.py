"""A workflow as a diagram: its operators, and the columns on the arrows between them."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from workflow.operator.operator import Operator
from workflow.picture import Arrow, Box, Diagram, Item
from workflow.picture.diagram import cut, in_one_line
from workflow.picture.html import to_html
from workflow.schema.schema import ColumnSchema

from .fitted_graph import FittedGraph
from .node import ColumnSelector, ConcatNode, Node, SubsetNode
from .operator_node import OperatorNode
from .resolution import topological
from .selection import Selection

if TYPE_CHECKING:
    from .row_set import Resolved

_SIMPLE = (str, int, float, list, tuple, Mapping)
_CHOICE_CELLS, _SETTING_CELLS = 34, 32


def diagram_of(workflow: FittedGraph) -> Diagram:
    """The diagram of a workflow; one that is not fitted has no columns on its arrows.

    Example:
        >>> from workflow import Workflow, ops
        >>> diagram = diagram_of(Workflow(["price"] >> ops.FillMissing(0)))
        >>> [box.title for box in diagram.boxes]
        ['[price]', 'FillMissing', 'Output (not fitted)']
    """
    results = workflow.made if workflow.is_fitted else {}
    *_, output = workflow.nodes
    leading = _leading(workflow.nodes)
    unused = _unused(workflow.nodes, results)
    drawn = [node for node in workflow.nodes if leading[node] == [node] and node not in unused]
    numbers = {node: number for number, node in enumerate(drawn)}
    ways = [
        (before, numbers[node])
        for node in drawn
        for parent in node.parents
        if parent not in unused
        for before in leading[parent]
    ]
    ways += [(before, len(drawn)) for before in leading[output]]
    arrows = [Arrow(numbers[node], end, _items(results, node)) for node, end in dict.fromkeys(ways)]
    outputs = [_item(column) for column in workflow.output_schema.columns] if results else []
    title = "Output" if results else "Output (not fitted)"
    boxes = [*map(_box, drawn), Box(title, items=outputs, kind="output")]
    return Diagram(repr(workflow), boxes, arrows)


def _leading(nodes: Sequence[Node]) -> dict[Node, list[Node]]:
    """The boxes that represent each node: itself, or the nodes that are concatenated for one use."""
    uses = Counter(parent for node in nodes for parent in set(node.parents))
    leading: dict[Node, list[Node]] = {}
    for node in nodes:
        if isinstance(node, ConcatNode) and uses[node] <= 1:
            boxes = (before for parent in node.parents for before in leading[parent])
            leading[node] = list(dict.fromkeys(boxes))
        else:
            leading[node] = [node]
    return leading


def _unused(nodes: Sequence[Node], results: Mapping[Node, Resolved]) -> set[Node]:
    """The columns of the data that an operator would take only if its node lacked them."""
    return {
        parent
        for node in nodes
        for parent in node.parents[1:]
        if isinstance(parent, ColumnSelector) and parent.selection.if_there and parent in results
        if results[parent].columns.keys() <= results[node.parents[0]].columns.keys()
    }


def _items(results: Mapping[Node, Resolved], node: Node) -> tuple[Item, ...]:
    if node not in results:
        return ()
    return tuple(_item(feature.schema) for feature in results[node].columns.values())


def _item(column: ColumnSchema) -> Item:
    return Item(column.name, str(column), "; ".join(_facts(column)))


def _facts(column: ColumnSchema) -> Iterable[str]:
    for name, value in column.properties.items():
        if isinstance(value, int):
            yield f"{name} {value:,}"
        elif isinstance(value, Mapping):
            yield f"{name} " + ", ".join(f"{key} {inner}" for key, inner in value.items())
        else:
            yield f"{name} {value}"
    if column.tags:
        yield "tags " + ", ".join(column.tags)


def _box(node: Node) -> Box:
    if isinstance(node, ColumnSelector):
        return Box(_choice(node.selection), kind="input")
    if isinstance(node, SubsetNode):
        labels = ", ".join(parent.label for parent in node.parents[1:])
        return Box(("" if node.keep else "without ") + (labels or _choice(node.selection)))
    if isinstance(node, OperatorNode):
        return Box(node.label, ", ".join(_settings(node.operator)))
    return Box(node.label)


def _choice(selection: Selection) -> str:
    groups = [", ".join(g) if len(g) == 1 else f"[{', '.join(g)}]" for g in selection.groups]
    texts = [
        *groups,
        *(f"tag {tag}" for tag in selection.tags),
        *(["*"] if selection.every else []),
        *map(str, selection.subgroups),
    ]
    return f"[{in_one_line([Item(text) for text in texts], _CHOICE_CELLS)}]"


def _settings(operator: Operator) -> list[str]:
    """The settings that differ from their defaults and have a short form."""
    settings = []
    for field in dataclasses.fields(operator):
        value = getattr(operator, field.name)
        # Dependencies are drawn as arrows.
        is_short = field.name in operator.saved_fields() and field.name != operator.depends_on
        if is_short and _is_simple(value) and value != _default(field):
            settings.append(f"{field.name}={cut(repr(value), _SETTING_CELLS)}")
    return settings


def _default(field: dataclasses.Field[Any]) -> Any:
    factory = field.default_factory
    return field.default if factory is dataclasses.MISSING else factory()


def _is_simple(value: Any) -> bool:
    inner: Sequence[Any] = []
    if isinstance(value, Mapping):
        inner = list(value.values())
    elif isinstance(value, list | tuple):
        inner = value
    return isinstance(value, _SIMPLE) and all(isinstance(v, _SIMPLE) for v in inner)


def _html(node: Node) -> str:
    diagram = diagram_of(FittedGraph(topological(node)))
    return to_html(dataclasses.replace(diagram, name=node.label))


Node.to_html = staticmethod(_html)
