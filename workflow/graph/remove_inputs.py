"""A fitted workflow without some columns of the data and everything derived from them.

The graph is rebuilt node by node over the remaining columns. An operator over several columns
continues with fewer if this is proven to be equivalent: its new program equals the old one, step by
step and table by table. Selecting outputs would be shorter, but would keep the vocabularies of
removed columns in the saved workflow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from workflow.errors import WorkflowError
from workflow.operator.feature import Features, Groups, State
from workflow.schema.names import did_you_mean, listed
from workflow.schema.schema import Schema

from .fitted_graph import FittedGraph
from .narrow_state import goes_on, passed_on, states, without_settings
from .node import ColumnSelector, ConcatNode, Node, Subgraph, SubsetNode
from .operator_node import Bound, OperatorNode
from .resolution import Resolution
from .selection import Selection, names_of, regroup
from .subgraphs import inputs_read

_Workflow = TypeVar("_Workflow", bound=FittedGraph)


def remove_inputs(
    workflow: _Workflow, names: Iterable[str], make: Callable[[Node], _Workflow]
) -> _Workflow:
    """A workflow without these columns of the data; see `Workflow.remove_inputs`.

    Args:
        workflow: a fitted workflow.
        names: columns of its input.
        make: the class `Workflow`, which is in a layer above this module.

    Example:
        >>> from workflow import Workflow, ops
        >>> data = {"userId": [7, 9], "rating": [3.0, 5.0]}
        >>> workflow = Workflow(["userId"] >> ops.TargetEncoding("rating")).fit(data)
        >>> remove_inputs(workflow, ["rating"], Workflow).input_schema.names
        ['userId']
    """
    is_collection = isinstance(names, Iterable) and not isinstance(names, str)
    lost: list[Any] = list(names) if is_collection else [names]
    old_states, inputs = workflow.states, workflow.input_schema
    unknown = [name for name in lost if not isinstance(name, str) or name not in inputs]
    if unknown:
        raise WorkflowError(
            f"No input {listed(map(repr, unknown))} in the workflow. The inputs are: {listed(inputs)}."
            + did_you_mean(unknown, inputs)
        )
    removal = _Removal(workflow.nodes, old_states, inputs, inputs.without(lost))
    output = removal.replaced[workflow.nodes[-1]]
    if output is None:
        raise WorkflowError(
            f"Nothing remains of the workflow without {listed(lost)}. Keep an input that an output is "
            "made of."
        )
    smaller = make(output)
    new_states = {
        n: removal.states[node] for n, node in enumerate(smaller.nodes) if node in removal.states
    }
    columns = inputs_read(smaller.nodes, removal.resolution.made, inputs)
    smaller.restore(columns, new_states, {}, workflow.training_data)
    smaller.output_dtypes.update(
        {n: dtype for n, dtype in workflow.output_dtypes.assigned.items() if n in smaller.outputs()}
    )
    return smaller


class _Removal:
    """Replacements of nodes, computed parents before children.

    Args:
        nodes: the graph, in order.
        old_states: states of its operators, by the number of the node.
        inputs: the columns of the data.
        remaining: the columns that remain.

    Attributes:
        replaced: the replacement of each node, None if nothing of it remains.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        old_states: Mapping[int, State],
        inputs: Schema,
        remaining: Schema,
    ) -> None:
        self.resolution = Resolution(remaining)
        self.states: dict[Node, State] = {}
        self._before, self._remaining = Resolution(inputs), remaining
        self.replaced: dict[Node, Node | None] = {}
        for number, node in enumerate(nodes):
            state = old_states.get(number, {})
            self._before.resolve(node, state)
            new = self._unchanged(node, state) or self._replacement(node, state)
            if new is not None and new not in self.resolution.made:
                self.resolution.resolve(new, self.states.get(new, {}))
            self.replaced[node] = new

    def _replacement(self, node: Node, state: State) -> Node | None:
        if isinstance(node, ColumnSelector):
            return self._selector(node)
        if isinstance(node, OperatorNode):
            return self._operator(node, state)
        replacements = [self.replaced[parent] for parent in node.parents]
        if isinstance(node, SubsetNode):
            return None if replacements[0] is None else self._subset(node, replacements[0])
        parents = [parent for parent in replacements if parent is not None]
        if not parents:
            return None
        if isinstance(node, Subgraph):
            return Subgraph(node.name, parents[0])
        return ConcatNode(*parents) if len(parents) > 1 else parents[0]

    def _unchanged(self, node: Node, state: State) -> Node | None:
        """The node itself, if none of its ancestors change, and so none of its columns."""
        if isinstance(node, ColumnSelector):
            columns = self._before.made[node].columns
            stays = not node.selection.is_dynamic and all(n in self._remaining for n in columns)
        else:
            stays = all(self.replaced[parent] is parent for parent in node.parents)
        self.states |= {node: state} if stays and state else {}
        return node if stays else None

    def _columns(self, node: Node) -> Features:
        return self.resolution.made[node].columns

    def _groups(self, node: ColumnSelector | SubsetNode, have: Collection[str]) -> Groups:
        """The remaining columns that a node selects, in its groups."""
        groups = node.selection.pick(self._before.inputs(node)[0].tags, node.label)
        return regroup(groups, [name for name in names_of(groups) if name in have])

    def _selector(self, node: ColumnSelector) -> Node | None:
        groups = self._groups(node, self._remaining)
        return ColumnSelector(Selection(groups)) if groups else None

    def _subset(self, node: SubsetNode, parent: Node) -> Node | None:
        have, before = self._columns(parent), self._before.made[node].columns
        names = [name for name in before if name in have]
        if not names:
            return None
        if node.keep:
            return SubsetNode(parent, Selection(self._groups(node, have)), keep=True)
        dropped = tuple((name,) for name in have if name not in before)
        return SubsetNode(parent, Selection(dropped), keep=False) if dropped else parent

    def _operator(self, node: OperatorNode, state: State) -> Node | None:
        """The operator over the remaining columns, or else the columns that it passes through."""
        parent = self.replaced[node.parents[0]]
        if parent is None:
            return None
        old = node.bind(self._before.inputs(node))
        for candidate in self._candidates(node, old, parent):
            new = candidate.bind(self.resolution.inputs(candidate))
            for new_state in states(old, state, list(new.columns)):
                if goes_on(old, state, new, new_state):
                    self.states |= {candidate: new_state} if node.operator.learns else {}
                    return candidate
        names = [name for name in passed_on(old, state) if name in self._columns(parent)]
        choice = Selection(regroup((), names))
        return SubsetNode(parent, choice, keep=True) if names else None

    def _candidates(self, node: OperatorNode, old: Bound, parent: Node) -> Iterator[OperatorNode]:
        """The operator over all remaining columns, and over the groups that remain complete."""
        replacements = (self.replaced[p] for p in node.parents[1:])
        remaining = [new for new in replacements if new is not None]
        have = {name for p in (parent, *remaining) for name in self._columns(p)}
        operator = without_settings(old.operator, old.columns.keys() - have)
        names = list(old.operator.dependency_names())
        if operator.learns and operator.depends_on is not None and not have.issuperset(names):
            # Columns needed for learning only are known by name from now on.
            named: dict[str, Any] = {operator.depends_on: names}
            operator = dataclasses.replace(operator, **named)
            remaining = []
        yield OperatorNode(parent, operator, remaining)
        groups = self.resolution.made[parent].groups
        whole = tuple(group for group in groups if group in old.operator.groups(old.columns))
        if operator.takes_groups and whole and whole != groups:
            chosen = SubsetNode(parent, Selection(whole), keep=True)
            self.resolution.resolve(chosen, {})
            yield OperatorNode(chosen, operator, remaining)
