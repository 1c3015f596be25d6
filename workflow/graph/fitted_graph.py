"""A graph of operators with their states, and the program compiled from them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
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


@dataclass(eq=False)
class _Learnt:
    """States that the operators have learnt, and everything that is derived from them at its first use.

    Another fit is another object, so a thread that still derives something from this one cannot
    store it beside the states of the other.
    """

    inputs: Schema = field(default_factory=Schema)
    states: dict[int, State] | None = None
    from_data: bool = False
    training_data: TrainingData = field(default_factory=TrainingData)
    made: dict[Node, Resolved] | None = None
    # With the assigned dtypes of outputs that it casts to.
    program: tuple[dict[str, str], Program] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """The learnt state alone: expressions may be nested deeper than pickle and `deepcopy` go."""
        return {**vars(self), "made": None, "program": None}


class FittedGraph:
    """A graph whose operators have states, from data or from a file.

    Args:
        nodes: the graph, parents before children.

    Attributes:
        nodes: the graph.
        input_schema: the columns of the data that it reads.
        output_dtypes: the dtype of each output, which the user may change.
        training_data: facts about the columns that it was fitted to.
        learnt: what the operators have learnt, and what is derived from it; a fit replaces it.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["price"] >> ops.FillMissing(0)).fit({"price": [1.5, None]})
        >>> [step.verb for step in workflow.program.steps]
        ['constant', 'source', 'fill_null']
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = list(nodes)
        self.output_dtypes = OutputDtypes(self)
        self.learnt = _Learnt()

    def __copy__(self) -> Self:
        """The same fit with dtypes of its own; neither follows what is later done to the other."""
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        copied.output_dtypes = OutputDtypes(copied, self.output_dtypes.assigned)
        return copied

    @property
    def input_schema(self) -> Schema:
        """The columns of the data that it reads."""
        return self.learnt.inputs

    @property
    def training_data(self) -> TrainingData:
        """Facts about the columns that it was fitted to."""
        return self.learnt.training_data

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
            WorkflowError: no column is an output, or an assigned dtype does not fit its output; nothing
                has changed then.
        """
        fitted = copy.copy(self)
        fitted.learnt = _Learnt(input_schema, states, from_data, training_data or TrainingData())
        if not fitted.outputs():
            raise WorkflowError(
                "Expected a workflow with at least one output. Received: none, since `-` takes all columns away."
            )
        fitted.output_dtypes.expect_possible()
        self.learnt = fitted.learnt
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

    @property
    def operators(self) -> list[Operator]:
        """The operators, in the order of the nodes."""
        return [node.operator for node in self.nodes if isinstance(node, OperatorNode)]

    @property
    def is_fitted(self) -> bool:
        """Whether the operators have all of their states."""
        return self.learnt.states is not None and self.learnt.from_data

    @property
    def states(self) -> dict[int, State]:
        """State of each node's operator, by the node's number.

        Raises:
            WorkflowError: the workflow is not fitted.
        """
        learnt = self.learnt
        states = _known_states(learnt)
        if not learnt.from_data:
            learning = ", ".join(o.label for o in self.operators if o.learns)
            raise WorkflowError(f"{learning} must learn from data. Call fit(data) first.")
        return states

    @property
    def made(self) -> dict[Node, Resolved]:
        """Columns of every node, as expressions, and the rows that they belong to.

        Raises:
            WorkflowError: the workflow is not fitted.
        """
        _ = self.states
        return self._resolved()

    def _resolved(self) -> dict[Node, Resolved]:
        return _resolved(self.nodes, self.learnt)

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
        graph = copy.copy(self)
        learnt, assigned = graph.learnt, graph.output_dtypes.assigned
        built = learnt.program
        if built is None or built[0] != assigned:
            output = _resolved(graph.nodes, learnt)[graph.nodes[-1]]
            steps = graph.steps_of(output)
            built = assigned, with_fits(steps, output.rows) if learnt.from_data else steps
            learnt.program = built
        return built[1]

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


def _known_states(learnt: _Learnt) -> dict[int, State]:
    if learnt.states is None:
        raise WorkflowError("The workflow is not fitted. Call fit(data) first.")
    return learnt.states


def _resolved(nodes: Sequence[Node], learnt: _Learnt) -> dict[Node, Resolved]:
    if learnt.made is None:
        learnt.made = resolve_graph(
            nodes, _known_states(learnt), learnt.inputs, learnt=learnt.from_data
        )
    return learnt.made


class OutputDtypes(MutableMapping[str, str]):
    """The dtype of each output, or of a list output's elements; assign one to change it.

    Example:
        >>> from workflow import Workflow, ops
        >>> workflow = Workflow(["userId"] >> ops.Categorify()).fit({"userId": [7, 9]})
        >>> workflow.output_dtypes["userId"] = "int32"
        >>> workflow.transform({"userId": [7]}).collect().schema["userId"]
        Int32
    """

    def __init__(self, graph: FittedGraph, assigned: Mapping[str, str] | None = None) -> None:
        self._graph = graph
        self.assigned = dict(assigned or {})

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

    def __iter__(self) -> Iterator[str]:
        return iter(self._graph.outputs())

    def __len__(self) -> int:
        return len(self._graph.outputs())

    def __repr__(self) -> str:
        return repr(dict(self))
