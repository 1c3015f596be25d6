"""Facts of a graph's tensors, true in every request: their rows, columns, dtypes and limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Limits = tuple[tuple[int, int], ...]
# Larger constants are tables, whose values do not matter.
_MOST_VALUES = 10_000


@dataclass(frozen=True)
class Fact:
    """A tensor of shape [rows, width], or [rows, width, depth].

    Attributes:
        width: the number of columns.
        dtype: a number of `TensorProto`.
        rows: inputs of the graph that have as many rows, or else the run fails; none of a constant.
        limits: the smallest and the largest value of each column, if known; (1, 1) is True.
        depth: None for two dimensions.
    """

    width: int
    dtype: int
    rows: frozenset[str]
    limits: Limits | None = None
    depth: int | None = None

    @property
    def always(self) -> bool:
        """Whether it is True everywhere."""
        return self.limits is not None and {*self.limits} == {(1, 1)}


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes of an operation, by name."""
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


class Facts:
    """The facts of a graph, to be learnt operation by operation.

    Args:
        graph: the graph, of which the inputs and initializers are known at once.
        shapes: the shapes of initializers that are not in it.

    Attributes:
        constants: the values of small initializers.
    """

    def __init__(self, graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]]) -> None:
        self._shapes = {**shapes, **{t.name: tuple(t.dims) for t in graph.initializer}}
        self.constants = {
            tensor.name: numpy_helper.to_array(tensor)
            for tensor in graph.initializer
            if np.prod(tensor.dims) <= _MOST_VALUES and tensor.data_type != TensorProto.STRING
        }
        self._known: dict[str, Fact] = {}
        # The last of two sizes, whatever the first.
        self._widths: dict[str, int] = {}
        for info in graph.input:
            kind = info.type.tensor_type
            sizes = [size.dim_value for size in kind.shape.dim]
            if len(sizes) == 2 and sizes[1]:
                self._known[info.name] = Fact(sizes[1], kind.elem_type, frozenset([info.name]))

    def __getitem__(self, name: str) -> Fact | None:
        return self._known.get(name)

    @property
    def rows(self) -> list[frozenset[str]]:
        """The inputs that have as many rows, for each tensor."""
        return [fact.rows for fact in self._known.values()]

    def learn(self, node: onnx.NodeProto) -> None:
        """Find the facts of an operation's results."""
        if node.op_type == "Split":
            self._known |= _columns(self, node)
        elif width := self._width_chosen(node):
            self._widths[node.output[0]] = width
        elif node.op_type in _RULES:
            fact = _RULES[node.op_type](self, node)
            if fact is not None:
                self._known[node.output[0]] = fact

    def given(self, node: onnx.NodeProto) -> list[Fact]:
        """The facts of an operation's operands, constant rows among them; none if one is unknown."""
        operands = [self._known.get(name) or self._row(name) for name in node.input]
        facts = [fact for fact in operands if fact is not None and fact.depth is None]
        return facts if len(facts) == len(operands) else []

    def alike(self, node: onnx.NodeProto) -> list[Fact]:
        """The fact `given`, if all operands have the shape of the result, or are constants of a row."""
        operands = self.given(node)
        moving = [fact for fact in operands if fact.rows]
        # Those without a common input could have different numbers of rows.
        together = moving and all(fact.rows & moving[0].rows for fact in moving)
        widths = {fact.width for fact in moving}
        fit = len(widths) == 1 and {fact.width for fact in operands} <= widths | {1}
        return operands if together and fit else []

    def shape(self, name: str) -> Sequence[int]:
        """The shape of an initializer; none if it is not one."""
        return self._shapes.get(name, ())

    def width_of(self, shape: str) -> int | None:
        """The second of two sizes, if it is known."""
        return self._widths.get(shape)

    def _width_chosen(self, node: onnx.NodeProto) -> int | None:
        """The width of a tensor's shape, or of one that is chosen from two constants."""
        if node.op_type == "Shape" and not node.attribute:
            fact = self._known.get(node.input[0])
            return fact.width if fact is not None and fact.depth is None else None
        if node.op_type != "Where":
            return None
        shapes = [self.constants.get(name) for name in node.input[1:]]
        if any(shape is None or shape.shape != (2,) for shape in shapes):
            return None
        widths = {int(shape[1]) for shape in shapes if shape is not None}
        return widths.pop() if len(widths) == 1 else None

    def _row(self, name: str) -> Fact | None:
        """A constant of one row."""
        array = self.constants.get(name)
        if array is None or array.shape[:-1] not in ((), (1,)):
            return None
        row = array.reshape(-1)
        limits = tuple((int(v), int(v)) for v in row) if row.dtype.kind in "iub" else None
        return Fact(len(row), helper.np_dtype_to_tensor_dtype(row.dtype), frozenset(), limits)


def fits(limits: Limits | None, dtype: int) -> bool:
    """Whether integers within limits are values of a dtype."""
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    if limits is None or kind.kind not in "iu":
        return False
    ends = np.iinfo(kind)
    return all(ends.min <= least and most <= ends.max for least, most in limits)


def _joint(operands: Sequence[Fact]) -> Fact | None:
    """The result of an operation on each element, of the dtype of its last operand."""
    if not operands:
        return None
    rows = frozenset[str]().union(*(fact.rows for fact in operands))
    return Fact(max(fact.width for fact in operands), operands[-1].dtype, rows)


def _each(facts: Facts, node: onnx.NodeProto) -> Fact | None:
    return _joint(facts.alike(node))


def _by_column(operands: Sequence[Fact]) -> list[tuple[tuple[int, int], ...]]:
    """The limits of all operands, column by column; none if one is unknown."""
    limits = [fact.limits for fact in operands if fact.limits is not None]
    if not limits or len(limits) < len(operands):
        return []
    width = max(map(len, limits))
    spread = [each * (width if len(each) == 1 else 1) for each in limits]
    return list(zip(*spread, strict=True))


def _sum(facts: Facts, node: onnx.NodeProto) -> Fact | None:
    fact = _each(facts, node)
    columns = _by_column(facts.alike(node))
    limits = tuple((a[0] + b[0], a[1] + b[1]) for a, b in columns)
    return replace(fact, limits=limits) if fact and limits and fits(limits, fact.dtype) else fact


def _always(facts: Facts, node: onnx.NodeProto) -> Fact | None:
    """A comparison, or `And`: True everywhere if it is at the limits."""
    fact = _each(facts, node)
    if fact is None:
        return None
    columns = _by_column(facts.alike(node))
    holds = _HOLDS[node.op_type]
    sure = columns and all(holds(*a, *b) for a, b in columns)
    return replace(fact, dtype=TensorProto.BOOL, limits=((1, 1),) * fact.width if sure else None)


_HOLDS: Mapping[str, Callable[[int, int, int, int], bool]] = {
    "GreaterOrEqual": lambda least, _, __, bound: least >= bound,
    "Less": lambda _, most, bound, __: most < bound,
    "And": lambda a, _, b, __: a == b == 1,
    "Equal": lambda *_: False,
}


def _cast(facts: Facts, node: onnx.NodeProto) -> Fact | None:
    fact, to = _each(facts, node), attributes(node)["to"]
    if fact is None:
        return None
    limits = facts.given(node)[0].limits
    return replace(fact, dtype=to, limits=limits if fits(limits, to) else None)


def _encoder(facts: Facts, node: onnx.NodeProto) -> Fact | None:
    fact, tables = _each(facts, node), attributes(node)
    if fact is None or "values_tensor" not in tables:
        return None
    fact = replace(fact, dtype=tables["values_tensor"].data_type)
    values = numpy_helper.to_array(tables["values_tensor"]).reshape(-1)
    if values.dtype.kind not in "iu":
        return fact
    fallback = tables.get("default_tensor")
    # Without one, a value that is no key becomes -1.
    default = np.array([-1]) if fallback is None else numpy_helper.to_array(fallback).reshape(-1)
    ends = min(*values.tolist(), *default.tolist()), max(*values.tolist(), *default.tolist())
    return replace(fact, limits=(ends,) * fact.width)


def _columns(facts: Facts, node: onnx.NodeProto) -> dict[str, Fact]:
    """Each column of a block that is split into columns."""
    block = facts[node.input[0]]
    if block is None or attributes(node).get("axis", 0) != 1 or block.width != len(node.output):
        return {}
    limits = [None] * block.width if block.limits is None else [(each,) for each in block.limits]
    return {
        name: replace(block, width=1, limits=column_limits)
        for name, column_limits in zip(node.output, limits, strict=True)
    }


def _concat(facts: Facts, node: onnx.NodeProto) -> Fact | None:
    operands = facts.given(node)
    # Constants have one row, which need not be the number of the others.
    if attributes(node)["axis"] not in (1, -1) or not all(f.rows for f in operands) or not operands:
        return None
    limits: Limits | None = ()
    for fact in operands:
        limits = None if limits is None or fact.limits is None else limits + fact.limits
    rows = frozenset[str]().union(*(fact.rows for fact in operands))
    return Fact(sum(fact.width for fact in operands), operands[0].dtype, rows, limits)


def _gather(facts: Facts, node: onnx.NodeProto) -> Fact | None:
    """Rows of a table, at positions in columns."""
    positions, shape = facts[node.input[1]], facts.shape(node.input[0])
    at_rows = attributes(node).get("axis", 0) == 0
    if positions is None or positions.depth is not None or len(shape) != 2 or not at_rows:
        return None
    return replace(positions, dtype=TensorProto.UNDEFINED, limits=None, depth=shape[1])


def _reshape(facts: Facts, node: onnx.NodeProto) -> Fact | None:
    """The vectors of a row side by side, or columns as they were."""
    block, shape = facts[node.input[0]], facts.constants.get(node.input[1])
    if block is not None and block.depth is None and facts.width_of(node.input[1]) == block.width:
        return block
    if block is None or block.depth is None or shape is None:
        return None
    width = block.width * block.depth
    same = shape.tolist() == [-1, width]
    return replace(block, width=width, depth=None) if same else None


_RULES: Mapping[str, Callable[[Facts, onnx.NodeProto], Fact | None]] = {
    **dict.fromkeys(("Max", "Min", "Sub", "Mul", "Div", "Log", "Where", "Abs"), _each),
    **dict.fromkeys(_HOLDS, _always),
    "Add": _sum,
    "Cast": _cast,
    "Concat": _concat,
    "Gather": _gather,
    "LabelEncoder": _encoder,
    "Reshape": _reshape,
}
