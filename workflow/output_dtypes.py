"""The dtypes of a workflow's outputs, which the user may change."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

from .dtypes import dtype_of
from .errors import WorkflowError
from .exact_dtypes import inexact
from .schema import ColumnSchema

if TYPE_CHECKING:
    from .fitted import FittedGraph


class OutputDtypes(MutableMapping[str, str]):
    """The dtype of each output, for a list column that of its elements; assign one to change it.

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
        made = self._column(name).dtype
        return self.assigned.get(name, made)

    def _column(self, name: str) -> ColumnSchema:
        outputs = self._graph.outputs()
        if name not in outputs:
            raise WorkflowError(f"No output {name!r}. The outputs are: {', '.join(outputs)}.")
        return outputs[name].schema

    def __setitem__(self, name: str, dtype: Any) -> None:
        column, wanted = self._column(name), dtype_of(dtype)
        if reason := inexact(column, wanted):
            raise WorkflowError(f"Output {name!r} {reason}. Received: {wanted.name}.")
        self.assigned[name] = wanted.name
        self._graph.forget_program()

    def expect_possible(self) -> None:
        """Hold what is assigned to what the outputs are, after these have changed.

        Raises:
            WorkflowError: an output is gone, or has values that its dtype does not hold.
        """
        for name, dtype in self.assigned.items():
            outputs = self._graph.outputs()
            reason = "is no output any more"
            if name in outputs:
                reason = inexact(outputs[name].schema, dtype_of(dtype)) or ""
            if reason:
                raise WorkflowError(
                    f"Output {name!r} {reason}. Received: workflow.output_dtypes[{name!r}] = {dtype!r}. "
                    f"Assign another one, or `del workflow.output_dtypes[{name!r}]`, and fit again; "
                    "what was learnt before stays."
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
