"""A graph of operators with their states, and the program compiled from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Self

from workflow.errors import WorkflowError
from workflow.expressions.program.program import Program
from workflow.operator.feature import Feature, Features, State
from workflow.operator.operator import Operator
from workflow.schema.dtypes import SchemaError, dtype_of
from workflow.schema.exact_dtypes import inexact
from workflow.schema.names import did_you_mean, listed
from workflow.schema.schema import ColumnSchema, Schema
from workflow.schema.training_data import TrainingData

from .fits import with_fits
from .node import Node
from .operator_node import OperatorNode
from .resolution import resolve_graph
from .row_set import Resolved, schema_of


class FittedGraph:
    """A graph whose operators have states, from data or from a file.

    Args:
        nodes: the graph, parents before children.

    Attributes:
        nodes: the graph.
        input_schema: the columns of the data that it reads.
        output_dtypes: the dtype of each output, which the user may change.
        training_data: facts about the columns that it was fitted to.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["price"] >> ops.FillMissing(0)).fit({"price": [1.5, None]})
        >>> [step.verb for step in workflow.program.steps]
        ['constant', 'source', 'fill_null']
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = list(nodes)
        self.input_schema = Schema()
        self.output_dtypes = OutputDtypes(self)
        self.training_data = TrainingData()
        self._states: dict[int, State] | None = None
        self._made: dict[Node, Resolved] | None = None
        self._program: Program | None = None
        self._has_seen_data = False

    def learn(
        self,
        input_schema: Schema,
        states: dict[int, State],
        *,
        from_data: bool = True,
        training_data: TrainingData | None = None,
    ) -> None:
        """Set what the operators have learnt from some columns, replacing earlier states.

        Args:
            input_schema: the columns.
            states: states by the number of the node.
            from_data: whether the states are complete; else only the schemas are known.
            training_data: facts about these columns.

        Raises:
            WorkflowError: an assigned dtype does not fit its output; nothing has changed then.
        """
        before = self.input_schema, self._states, self._made, self._program, self._has_seen_data
        self.input_schema, self._states, self._has_seen_data = input_schema, states, from_data
        self._made = self._program = None
        try:
            self.output_dtypes.expect_possible()
        except WorkflowError:
            self.input_schema, self._states, self._made, self._program, self._has_seen_data = before
            raise
        self.training_data = training_data or TrainingData()
        for node in self.nodes:
            node.fitted = self

    def restore(
        self,
        input_schema: Schema,
        states: dict[int, State],
        dtypes: Mapping[str, str],
        training_data: TrainingData,
    ) -> Self:
        """Set the states of a saved workflow."""
        self.learn(input_schema, states, training_data=training_data.keep(input_schema))
        self.output_dtypes.update(dtypes)
        return self

    def forget_program(self) -> None:
        """Build the program again at its next use, because an output's dtype changed."""
        self._program = None

    @property
    def operators(self) -> list[Operator]:
        """The operators, in the order of the nodes."""
        return [node.operator for node in self.nodes if isinstance(node, OperatorNode)]

    @property
    def is_fitted(self) -> bool:
        """Whether the operators have all of their states."""
        return self._states is not None and self._has_seen_data

    @property
    def states(self) -> dict[int, State]:
        """State of each node's operator, by the node's number.

        Raises:
            WorkflowError: the workflow is not fitted.
        """
        states = self._known_states()
        if not self._has_seen_data:
            learning = ", ".join(o.label for o in self.operators if o.learns)
            raise WorkflowError(f"{learning} must learn from data. Call fit(data) first.")
        return states

    def _known_states(self) -> dict[int, State]:
        if self._states is None:
            raise WorkflowError("The workflow is not fitted. Call fit(data) first.")
        return self._states

    @property
    def made(self) -> dict[Node, Resolved]:
        """Columns of every node, as expressions, and the rows that they belong to.

        Raises:
            WorkflowError: the workflow is not fitted.
        """
        _ = self.states
        return self._resolved()

    def _resolved(self) -> dict[Node, Resolved]:
        if self._made is None:
            self._made = resolve_graph(
                self.nodes, self._known_states(), self.input_schema, learnt=self._has_seen_data
            )
        return self._made

    def schema_of_node(self, node: Node) -> Schema:
        """The columns that a node of the graph makes."""
        return schema_of(self._resolved()[node].columns)

    def features(self) -> dict[Node, Features]:
        """The columns of every node, as expressions over those of the data (see `made`)."""
        return {node: result.columns for node, result in self.made.items()}

    def outputs(self) -> Features:
        """The columns that the workflow makes, before an assigned dtype casts them."""
        return self._resolved()[self.nodes[-1]].columns

    def served(self, names: Iterable[str]) -> Features:
        """Some of the outputs, which a server can compute from one row at a time.

        Raises:
            WorkflowError: an output needs more rows; names the operator and the remedy.
        """
        chosen = {name: self.outputs()[name] for name in names}
        rows = self.made[self.nodes[-1]].rows
        rows.expect_row_by_row(rows.program(chosen.values()))
        return chosen

    @property
    def program(self) -> Program:
        """The whole workflow as steps over arrays, which every interpreter runs row by row.

        Raises:
            WorkflowError: an output needs more than one row.
        """
        self.made[self.nodes[-1]].rows.expect_row_by_row(self.steps)
        return self.steps

    @property
    def steps(self) -> Program:
        """The program from the sources of the output's row set to the outputs.

        These differ from the raw input columns when an operator filters or groups rows.
        """
        _ = self.states
        return self._built()

    def _built(self) -> Program:
        if self._program is None:
            steps = self.steps_of(self._resolved()[self.nodes[-1]])
            self._program = with_fits(steps) if self._has_seen_data else steps
        return self._program

    def steps_of(self, output: Resolved) -> Program:
        """The steps to the columns of the last node, cast to the assigned dtypes."""
        return output.rows.program(
            Feature(f.expression, f.schema.with_(dtype=self.output_dtypes[name]))
            for name, f in output.columns.items()
        )

    @property
    def output_schema(self) -> Schema:
        """The columns that the workflow makes, with tags, cardinalities and domains."""
        return self._built().output_schema


class OutputDtypes(MutableMapping[str, str]):
    """The dtype of each output, or of a list output's elements; assign one to change it.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["userId"] >> ops.Categorify()).fit({"userId": [7, 9]})
        >>> workflow.output_dtypes["userId"] = "int32"
        >>> workflow.transform({"userId": [7]}).collect().schema["userId"]
        Int32
    """

    def __init__(self, graph: FittedGraph) -> None:
        self._graph = graph
        self.assigned: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        dtype = self._column(name).dtype
        return self.assigned.get(name, dtype)

    def _column(self, name: str) -> ColumnSchema:
        outputs = self._graph.outputs()
        if name not in outputs:
            raise WorkflowError(
                f"No output {name!r}. The outputs are: {listed(outputs)}."
                f"{did_you_mean([name], outputs)}"
            )
        return outputs[name].schema

    def __setitem__(self, name: str, dtype: Any) -> None:
        column = self._column(name)
        try:
            info = dtype_of(dtype)
        except SchemaError as error:
            raise WorkflowError(f"Output {name!r}: {error}") from error
        if reason := inexact(column, info):
            raise WorkflowError(f"Output {name!r} {reason}. Received: {info.name}.")
        self.assigned[name] = info.name
        self._graph.forget_program()

    def expect_possible(self) -> None:
        """Check assigned dtypes against the outputs, after these have changed.

        Raises:
            WorkflowError: an output is gone, or has values that its dtype does not hold.
        """
        for name, dtype in self.assigned.items():
            outputs = self._graph.outputs()
            reason = "is no longer an output"
            if name in outputs:
                reason = inexact(outputs[name].schema, dtype_of(dtype)) or ""
            if reason:
                raise WorkflowError(
                    f"Output {name!r} {reason}. Received: workflow.output_dtypes[{name!r}] = {dtype!r}. "
                    f"Assign another one, or `del workflow.output_dtypes[{name!r}]`, and fit again; "
                    "the previous states are unchanged."
                )

    def __delitem__(self, name: str) -> None:
        self._column(name)
        self.assigned.pop(name, None)
        self._graph.forget_program()

    def __iter__(self) -> Iterator[str]:
        return iter(self._graph.outputs())

    def __len__(self) -> int:
        return len(self._graph.outputs())

    def __repr__(self) -> str:
        return repr(dict(self))
