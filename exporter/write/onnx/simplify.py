"""Fewer operations with the same results, from what is true of a graph's tensors in every request.

onnxruntime simplifies what holds for any graph when it opens one. It does not know the ranges of ids,
nor that columns are taken apart to be put together again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from exporter.write.onnx.facts import Facts, attributes, fits
from exporter.write.onnx.model import OnnxModel, prune, taken_inside
from workflow.expressions.onnx import keep_float64


def simplify(model: OnnxModel) -> OnnxModel:
    """An equal model with fewer operations, with the same inputs and outputs.

    Where onnxruntime would round numbers of float64, it has more.
    """
    simpler = _with_offsets(_Simpler(model).model())
    keep_float64(simpler.proto.graph)
    return simpler


def rows_agree(model: OnnxModel) -> bool:
    """Whether the model fails if its inputs have different numbers of rows, and none has no row."""
    facts = _Simpler(model).facts
    return {tensor.name for tensor in model.proto.graph.input} in facts.rows


def order(model: OnnxModel) -> list[str]:
    """The inputs of a model in the order in which it joins them."""
    graph = model.proto.graph
    joined = [name for node in graph.node if node.op_type == "Concat" for name in node.input]
    inputs = {tensor.name for tensor in graph.input}
    return [name for name in dict.fromkeys(joined) if name in inputs]


class _Simpler:
    """One pass through a graph, in order."""

    def __init__(self, model: OnnxModel) -> None:
        self._model = model
        graph = model.proto.graph
        shapes = {name: table.shape for name, table in model.tables.items()}
        self.facts = Facts(graph, shapes)
        # Names in subgraphs stay.
        self._outputs = {tensor.name for tensor in graph.output} | taken_inside(graph.node)
        self._nodes: list[onnx.NodeProto] = []
        self._made_by: dict[str, onnx.NodeProto] = {}
        self._same: dict[str, str] = {}
        self._constants: list[TensorProto] = []
        for node in graph.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.input[:] = [self._same.get(name, name) for name in copy.input]
            same = self._shortcut(copy)
            if same is not None and copy.output[0] not in self._outputs:
                self._same[copy.output[0]] = same
            else:
                self._keep(copy)

    def model(self) -> OnnxModel:
        """The graph of what was kept."""
        proto = onnx.ModelProto()
        proto.CopyFrom(self._model.proto)
        del proto.graph.node[:]
        proto.graph.node.extend(self._nodes)
        proto.graph.initializer.extend(self._constants)
        return prune(OnnxModel(proto, self._model.tables))

    def _keep(self, node: onnx.NodeProto) -> None:
        self._nodes.append(node)
        self._made_by |= dict.fromkeys(node.output, node)
        self.facts.learn(node)

    def _add(self, operator: str, name: str, *inputs: str, **with_: Any) -> str:
        self._keep(helper.make_node(operator, inputs, [name], name, **with_))
        return name

    def _constant(self, name: str, array: Any) -> str:
        self._constants.append(numpy_helper.from_array(array, name))
        self.facts.constants[name] = array
        return name

    def _shortcut(self, node: onnx.NodeProto) -> str | None:
        """A tensor that equals the operation's result, from fewer or no operations."""
        if node.op_type == "Identity":
            return node.input[0]
        if node.op_type == "Where":
            return self._where(node)
        if node.op_type == "Max" and len(node.input) == 2:
            return self._from_bound(node)
        if node.op_type == "Concat" and attributes(node)["axis"] == 1:
            return self._concat(node)
        if node.op_type == "Gather":
            node.input[1] = self._wide(node.input[1]) or node.input[1]
        return None

    def _where(self, node: onnx.NodeProto) -> str | None:
        """The first value, if it is always chosen and the result has its shape."""
        condition, chosen = (self.facts[name] for name in node.input[:2])
        always = condition is not None and condition.always and chosen is not None
        return node.input[1] if always and self.facts.alike(node) else None

    def _from_bound(self, node: onnx.NodeProto) -> str | None:
        """A lower bound over values whose NaN is filled with that bound, as one Where.

        Its comparison is False both for NaN and for values below the bound.
        """
        chosen, bound = self._made_by.get(node.input[0]), self.facts.constants.get(node.input[1])
        if chosen is None or chosen.op_type != "Where" or bound is None or bound.size != 1:
            return None
        condition, values, filling = chosen.input
        valid = self._made_by.get(condition)
        fill = self.facts.constants.get(filling)
        if valid is None or valid.op_type != "Equal" or [*valid.input] != [values, values]:
            return None
        if fill is None or fill.tobytes() != bound.tobytes() or self.facts[values] is None:
            return None
        name = node.output[0]
        above = self._add("GreaterOrEqual", f"{name}/above", values, node.input[1])
        return self._add("Where", f"{name}/chosen", above, values, node.input[1])

    def _concat(self, node: onnx.NodeProto) -> str | None:
        """A Concat of all outputs of one Split as the split matrix, and of equal casts as one cast."""
        parts: list[str] = []
        for block, run in groupby(node.input, self._block):
            columns = [*run]
            whole = block is not None and columns == [*self._made_by[columns[0]].output]
            parts += [block] if whole and block is not None else columns
        casts = [self._made_by[n] for n in parts if n in self._made_by]
        casts = [cast for cast in casts if cast.op_type == "Cast"]
        if len(casts) == len(parts) > 1 and self._alike(casts):
            joint = helper.make_node(
                "Concat", [c.input[0] for c in casts], [f"{node.output[0]}/uncast"]
            )
            joint.attribute.extend(node.attribute)
            before = self._concat(joint)
            if before is None:
                self._keep(joint)
                before = joint.output[0]
            return self._add(
                "Cast", f"{node.output[0]}/cast", before, to=attributes(casts[0])["to"]
            )
        if len(parts) == 1:
            return parts[0]
        node.input[:] = parts
        return None

    def _block(self, name: str) -> str | None:
        """The block of columns from which a column was taken."""
        node = self._made_by.get(name)
        if node is None or node.op_type != "Split" or attributes(node).get("axis", 0) != 1:
            return None
        return str(node.input[0])

    def _alike(self, casts: Sequence[onnx.NodeProto]) -> bool:
        """Whether casts to one dtype have one dtype before."""
        before = [self.facts[cast.input[0]] for cast in casts]
        dtypes = {None if fact is None else fact.dtype for fact in before}
        return len(dtypes) == 1 and None not in dtypes

    def _wide(self, name: str) -> str | None:
        """Positions as int64, before they were cast to int32, which a gather does not need."""
        node, fact = self._made_by.get(name), self.facts[name]
        if node is None or fact is None or not fits(fact.limits, TensorProto.INT32):
            return None
        if node.op_type == "Cast":
            before = self.facts[node.input[0]]
            wide = before is not None and before.dtype == TensorProto.INT64
            return node.input[0] if wide else None
        if node.op_type == "Add" and node.input[1] in self.facts.constants:
            wide = f"{name}/wide"
            if wide in self._made_by:  # for another gather
                return wide
            positions = self._wide(node.input[0])
            if positions is not None:
                added = self.facts.constants[node.input[1]].astype(np.int64)
                constant = self._constant(f"{name}/added", added)
                return self._add("Add", wide, positions, constant)
        return None


def _with_offsets(model: OnnxModel) -> OnnxModel:
    """Numbers that are added to encoded columns, added to the encoders' tables instead."""
    graph = model.proto.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    uses = Counter(name for node in graph.node for name in node.input)
    fixed_names = taken_inside(graph.node) | {tensor.name for tensor in graph.output}
    uses.update(fixed_names)
    made_by = {name: node for node in graph.node for name in node.output}
    names = {}
    for node in graph.node:
        joint = made_by.get(node.input[0]) if node.op_type == "Add" else None
        if joint is None or joint.op_type != "Concat" or node.input[1] not in constants:
            continue
        if attributes(joint)["axis"] not in (1, -1):
            continue
        if node.output[0] in fixed_names:
            continue
        added = numpy_helper.to_array(constants[node.input[1]]).reshape(-1)
        encoders = [made_by[name] for name in joint.input if name in made_by]
        once = all(uses[name] == 1 for name in (joint.output[0], *joint.input))
        # Other operations lack them, and other encoders have their results as lists, or as text.
        alike = all({"values_tensor", "default_tensor"} <= attributes(e).keys() for e in encoders)
        if once and alike and len(encoders) == len(joint.input) == len(added):
            for encoder, number in zip(encoders, added.tolist(), strict=True):
                _add_to(encoder, number)
            names[node.output[0]] = joint.output[0]
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
    return prune(model)


def _add_to(encoder: onnx.NodeProto, number: int) -> None:
    """Add a number to all results of an encoder."""
    for attribute in encoder.attribute:
        if attribute.name in ("values_tensor", "default_tensor"):
            results = numpy_helper.to_array(attribute.t) + number
            attribute.t.CopyFrom(numpy_helper.from_array(results, attribute.t.name))
