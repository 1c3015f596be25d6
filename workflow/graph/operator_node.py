"""An operator in the graph, as `node >> operator` makes it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from workflow.errors import WorkflowError
from workflow.expressions.language.types import ExpressionError
from workflow.expressions.program.program import Program
from workflow.expressions.program.safetensors_file import FormatError
from workflow.operator.feature import Feature, Features, Groups, Inputs, State
from workflow.operator.frame_operator import FrameOperator, WindowOperator
from workflow.operator.operator import OPERATORS, Operator, OperatorMeta
from workflow.schema.dtypes import SchemaError
from workflow.schema.names import listed

from .node import ColumnSelector, Node, as_columns, as_node
from .node_columns import join
from .row_set import Lost, Origin, Resolved, RowSet, rows_of, schema_of, sources_of
from .selection import Selection, names_of, one_or_several, regroup


@dataclass(frozen=True)
class Bound:
    """An operator bound to its input columns, with its dependencies among them.

    Example:
        >>> from workflow import Workflow, ops
        >>> node = [["user", "city"]] >> ops.TargetEncoding("rating")
        >>> data = {"user": [7], "city": ["a"], "rating": [3.0]}
        >>> made = Workflow(node).fit(data).made
        >>> bound = node.bind([made[parent] for parent in node.parents])
        >>> bound.operator.inputs.groups, bound.operator.dependency_names()
        ((('user', 'city'),), ('rating',))
    """

    operator: Operator
    columns: Features
    rows: RowSet

    @cached_property
    def program(self) -> Program:
        """The steps from the columns of its rows to the columns that it learns from."""
        return self.rows.program(self.operator.learns_from(self.columns).values())

    def __getstate__(self) -> dict[str, Any]:
        """Only what a worker needs: the program, whose steps are flat, and no expressions nested in others."""
        schema = schema_of(self.columns)
        sources = sources_of(schema)
        columns = {c.name: Feature(sources[c.name], c) for c in schema.columns}
        return {**vars(self), "program": self.program, "columns": columns}

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Add the operator and its columns to an error.

        Raises:
            WorkflowError: in place of the errors of expressions and schemas.
        """
        with _errors(self.operator.label, self.columns):
            yield


class OperatorNode(Node):
    """Columns that an operator makes from a node's columns.

    Args:
        parent: the node.
        operator: an operator, an operator's class, or a function for LambdaOp.
        dependencies: the nodes that the operator's setting names; None to look them up by that
            setting.

    Example:
        >>> from workflow import ops
        >>> OperatorNode(as_columns("price"), ops.FillMissing(0))
        FillMissing
    """

    def __init__(
        self,
        parent: Node,
        operator: Operator | type[Operator] | Callable[..., Any],
        dependencies: Sequence[Node] | None = None,
    ) -> None:
        self.operator = as_operator(operator)
        if dependencies is None:
            dependencies = [*_dependencies(self.operator), *_completion(self.operator, parent)]
        super().__init__(parent, *dependencies)
        self._recorded: dict[Any, Operator] = {}

    def forget(self) -> None:
        """Let the next `bind` call the user's functions again, as another fit does."""
        self._recorded = {}

    def bind(self, inputs: Sequence[Resolved]) -> Bound:
        """The operator with its groups and dependencies, and what its functions made in their place.

        Raises:
            WorkflowError: the inputs have different rows, or columns of one name; a function fails.
        """
        main, *dependencies = inputs
        if self.operator.takes_groups and main.lost:
            group, label = main.lost[0]
            raise WorkflowError(
                f"{self.label}: the group {', '.join(group)} did not pass through {label}, which makes "
                f"other columns of it. Group its output columns: node[[['a', 'b'], 'c']] >> {self.label}."
            )
        if self.operator.completed_by:
            dependencies = [
                rest for other in dependencies if (rest := _without(other, main.columns)).columns
            ]
            inputs = [main, *dependencies]
        labels = [parent.label for parent in self.parents[: len(inputs)]]
        columns = join(labels, inputs)
        inner = Inputs(main.groups, tuple(name for other in dependencies for name in other.columns))
        rows = rows_of(self.label, inputs)
        return Bound(self._without_functions(inner, columns).bind(inner), columns, rows)

    def _without_functions(self, inner: Inputs, columns: Features) -> Operator:
        """The operator as a saved one: a function that reads other values later is of the fit then."""
        settings = (getattr(self.operator, name) for name in self.operator.saved_fields())
        if not any(map(callable, settings)):
            return self.operator
        kinds = ((name, f.expression.type, f.schema.time) for name, f in columns.items())
        key = inner, tuple(kinds)
        if key not in self._recorded:
            with _errors(self.label, columns):
                config = self.operator.bind(inner).to_config(columns)
                self._recorded[key] = type(self.operator).from_config(config, {})
        return self._recorded[key]

    def resolve(self, inputs: Sequence[Resolved], state: State) -> Resolved:
        """The operator's output columns."""
        bound = self.bind(inputs)
        operator, rows = bound.operator, bound.rows
        with bound.errors():
            if isinstance(operator, FrameOperator):
                schema = operator.frame_schema(schema_of(bound.columns))
                rows = RowSet(schema, Origin(operator, rows, bound.columns))
                columns = rows.features()
            elif isinstance(operator, WindowOperator):
                columns = rows.windowed(operator, bound.columns)
            else:
                columns = operator.lower(bound.columns, state)
        groups, lost = ((), ()) if operator.takes_groups else self._passed_on(inputs[0], columns)
        return Resolved(columns, regroup(groups, columns), rows, lost)

    def _passed_on(self, before: Resolved, columns: Features) -> tuple[Groups, Lost]:
        """The groups of the input columns, by their present names, and the groups that end here."""
        if all(len(group) == 1 for group in before.groups):
            return before.groups, before.lost
        old_names = {id(feature.expression): name for name, feature in before.columns.items()}
        names = {name: name for name in columns}
        for name, feature in columns.items():
            old = old_names.get(id(feature.expression), name)
            if old not in columns or columns[old].expression is not feature.expression:
                names[old] = name
        whole = [group for group in before.groups if names.keys() >= set(group)]
        ended = [(g, self.label) for g in before.groups if len(g) > 1 and g not in whole]
        groups = tuple(tuple(names[name] for name in group) for group in whole)
        return groups, (*before.lost, *ended)

    @property
    def label(self) -> str:
        """The operator's name."""
        return self.operator.label


@contextmanager
def _errors(label: str, columns: Features) -> Iterator[None]:
    try:
        yield
    except (ExpressionError, FormatError, SchemaError, WorkflowError) as error:
        raise WorkflowError(f"{label} over {listed(columns)}: {error}") from error


def _node_of(left: Any, operator: Any) -> OperatorNode:
    return OperatorNode(as_node(left), operator)


OperatorMeta.node_of = staticmethod(_node_of)


def as_operator(value: Any) -> Operator:
    """Convert the right operand of `>>` to an operator: an instance, a class, or a function.

    Raises:
        WorkflowError: anything else, or a class that needs settings.

    Example:
        >>> from workflow import ops
        >>> as_operator(ops.FillMissing)
        FillMissing(fill_val=0, add_binary_cols=False)
    """
    if isinstance(value, Operator):
        return value
    if isinstance(value, type) and issubclass(value, Operator):
        try:
            return value()
        except TypeError as error:
            raise WorkflowError(
                f"Expected an operator after >>; {value.__name__} needs settings. Received: {value!r} ({error})."
            ) from error
    if callable(value) and not isinstance(value, type):
        return OPERATORS["LambdaOp"](value)  # type: ignore[call-arg]
    raise WorkflowError(
        f"Expected an operator after >>, such as ops.Categorify(), or a function. Received: {value!r}."
    )


def _completion(operator: Operator, parent: Node) -> list[Node]:
    """The columns of the data that an operator may need beside those of a node, as one node or none."""
    fields = [one_or_several(getattr(operator, name)) for name in operator.completed_by]
    names = dict.fromkeys(name for field in fields for name in field)
    is_static = isinstance(parent, ColumnSelector) and not parent.selection.is_dynamic
    if isinstance(parent, ColumnSelector) and is_static:
        have = names_of(parent.selection.groups)
        names = {name: None for name in names if name not in have}
    groups = tuple((name,) for name in names)
    return [ColumnSelector(Selection(groups, if_there=not is_static))] if groups else []


def _without(result: Resolved, names: Collection[str]) -> Resolved:
    return replace(result, columns={n: f for n, f in result.columns.items() if n not in names})


def _dependencies(operator: Operator) -> list[Node]:
    setting = None if operator.depends_on is None else getattr(operator, operator.depends_on)
    return [] if setting is None or setting == [] else [as_columns(setting)]
