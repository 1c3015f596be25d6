"""Columns that are computed together come out as each does alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interpreters import OTHERS, assert_same, equality_of
from searched import searched
from strategies import chains, data_of, literal

from workflow.expressions.language.tree import Expression, call, source
from workflow.expressions.language.types import Type
from workflow.expressions.numpy.interpreter import NumpyInterpreter
from workflow.expressions.numpy.joint_steps import Group, group_steps
from workflow.expressions.onnx import to_onnx
from workflow.expressions.program.program import Program, build
from workflow.expressions.program.tracing import inline
from workflow.schema.column import Column
from workflow.schema.dtypes import DTYPES
from workflow.schema.schema import ColumnSchema, Schema

GRAPHS = {each.name: each for each in OTHERS if each.name in ("onnx", "tensorflow")}
LANES = [f"a{number}" for number in range(5)]


def program_of(outputs: dict[str, Expression], inputs: Schema) -> Program:
    return build(
        [(ColumnSchema(name, made.type.dtype), made) for name, made in outputs.items()], inputs
    )


def lane_inputs(program: Program, nullable: bool | None = None) -> Schema:
    """A column like the program's for each lane, and its other columns, which all lanes share."""
    like = program.inputs["a"] if "a" in program.inputs else ColumnSchema("a", "int64")
    lanes = [like.with_(name=name) for name in LANES]
    if nullable is not None:
        lanes = [lane.with_(nullable=nullable and like.nullable) for lane in lanes]
    return Schema([*lanes, *(c for name, c in program.inputs.items() if name != "a")])


def lanes_of(program: Program, inputs: Schema) -> dict[str, Expression]:
    """The program over each column, its result met by a number of its own and by a neighbour's."""
    made, last = {}, len(LANES) - 1
    columns = {n: source(n, Type(c.dtype, c.is_list, c.nullable)) for n, c in inputs.items()}
    for number, name in enumerate(LANES):
        result = inline(program, columns | {"a": columns[name]})["out"]
        made[name] = result
        if result.type.is_number:
            own = literal(
                last - number if result.type.kind != "float" else number / 3, result.type.dtype
            )
            verb = "multiply" if result.type.kind == "float" else "modulo"  # by 0 in the last lane
            made[f"{name}_own"] = call(verb, result, own)
        if number and not result.type.is_list:
            made[f"{name}_beside"] = call("fill_null", result, made[LANES[number - 1]])
    return made


@searched(150)
@given(data=st.data())
def test_columns_together_come_out_as_alone(data):
    program, _ = data.draw(chains())
    inputs = lane_inputs(program)
    given_ = data.draw(data_of(inputs.columns, data.draw(st.integers(0, 4))))
    outputs = lanes_of(program, inputs)
    together = NumpyInterpreter(program_of(outputs, inputs))(given_)
    for name, expression in outputs.items():
        if not program_of({name: expression}, inputs).inputs:
            continue  # the same in every row, and alone it does not know how many there are
        alone = NumpyInterpreter(program_of({name: expression}, inputs))(given_)[name]
        assert_same(alone, together[name], what=f"{name} {program.steps}")


@pytest.mark.parametrize("name", ["onnx", "tensorflow"])
@searched(25)
@given(data=st.data())
def test_columns_together_come_out_as_alone_in_a_graph(name, data):
    program, _ = data.draw(chains())
    # In ONNX columns with masks are not computed together.
    inputs = lane_inputs(program, nullable=name == "tensorflow")
    given_ = data.draw(data_of(inputs.columns, data.draw(st.integers(0, 3))))
    whole = program_of(lanes_of(program, inputs), inputs)
    made = GRAPHS[name].answer(whole, given_)
    expected = NumpyInterpreter(whole, together=0)(given_)
    for output in made or ():
        what = f"{output} {whole.steps}"
        assert_same(expected[output], made[output], what=what, equality=equality_of(whole))


def scaled(count: int) -> Program:
    """Columns that are filled, scaled by a number of their own, and rounded."""
    inputs = Schema(ColumnSchema(f"x{number}", "float32") for number in range(count))
    outputs = {
        name: (source(name, Type("float32")).fill_null(1).cast("float64") / (n + 1)).floor()
        for n, name in enumerate(inputs)
    }
    return program_of(outputs, inputs)


def test_equal_work_is_done_as_one_call_each():
    plan = group_steps(scaled(13))
    assert [type(entry) for entry in plan] == [Group] * 4
    assert [len(entry.shown) for entry in plan] == [0, 0, 0, 13]


def test_lanes_wait_for_what_takes_longer():
    inputs = Schema(ColumnSchema(name, "int64", nullable=False) for name in LANES)
    keys = Column(np.array([0, 1, 2, 3]))
    outputs = {}
    for number, name in enumerate(inputs):
        looked_up = source(name, Type("int64", nullable=False))
        for _ in range(number):
            looked_up = looked_up.lookup(keys, first=1)
        outputs[name] = looked_up + 10
    run = NumpyInterpreter(program_of(outputs, inputs))
    made = run({name: Column(np.array([0])) for name in inputs})
    assert [made[name].values.tolist() for name in inputs] == [[10], [11], [12], [13], [14]]


KEYS = {
    "dense": np.arange(5, 900),
    "sparse": np.arange(700) * 2**40 - 2**62,
    "wide": np.array([0, 7, 2**63, 2**64 - 1], np.uint64),
    "one": np.array([-3], np.int8),
    "none": np.array([], np.int64),
    "true": np.array([True]),
    "flags": np.array([True, False]),
}


@pytest.mark.parametrize("dtype", ["int64", "uint64", "int8", "bool"])
@pytest.mark.parametrize("rows", [0, 1, 2, 30])
def test_lookups_in_tables_of_any_kind_are_made_together(dtype, rows):
    random, limits = np.random.default_rng(rows), [0, 1]
    if dtype != "bool":
        limits = [np.iinfo(dtype).min, np.iinfo(dtype).max]
    kinds = [name for name, keys in KEYS.items() if (dtype == "bool") == (keys.dtype == bool)]
    inputs = Schema(ColumnSchema(f"{name}{n}", dtype) for name in kinds for n in (1, 2))
    outputs, given_, expected = {}, {}, {}
    for number, name in enumerate(inputs):
        keys, first, missing = KEYS[name[:-1]], number, 1_000 + number
        outputs[name] = source(name, Type(dtype)).lookup(Column(keys), first=first, missing=missing)
        inside = [key for key in keys.tolist() if limits[0] <= key <= limits[1]]
        # Other numbers whose 64 bits are those of a key.
        twins = [key + by for key in keys[:3].tolist() for by in (-(2**64), 2**64)]
        others = [twin for twin in twins if limits[0] <= twin <= limits[1]]
        values = [*limits, *inside[:: max(1, len(inside) // 20)], *others]
        drawn = np.array(random.choice(np.array(values, object), rows), DTYPES[dtype].numpy)
        valid = random.random(rows) < 0.8
        given_[name] = Column(drawn, valid)
        places = {key: first + place for place, key in enumerate(keys.tolist())}
        found = [places.get(value, missing) for value in drawn.tolist()]
        expected[name] = [row for row, present in zip(found, valid, strict=True) if present]
    program = program_of(outputs, inputs)
    assert any(isinstance(entry, Group) for entry in group_steps(program))
    made = NumpyInterpreter(program)(given_)
    for name in inputs:
        valid = given_[name].valid
        np.testing.assert_array_equal(made[name].valid, valid)
        assert made[name].values[valid].tolist() == expected[name], name


@pytest.mark.parametrize("sizes", [(3, 50, 200, 400, 3), (400, 200, 50, 3, 3)])
def test_the_bounds_of_joined_columns_are_those_of_all(sizes):
    """Ids of vocabularies of several sizes leave out no bound that one of them needs."""
    inputs = Schema(ColumnSchema(name, "int64") for name in LANES)
    outputs, expected = {}, {}
    for name, size in zip(LANES, sizes, strict=True):
        ids = source(name, Type("int64")).lookup(Column(np.arange(size)), first=-size, missing=size)
        outputs[name] = ids.fill_null(0).cast("int8")
        found = [key - size if key < size else size for key in range(500)]
        expected[name] = np.clip(found, -128, 127).tolist()
    program = program_of(outputs, inputs)
    columns = {name: Column(np.arange(500)) for name in LANES}
    made = [NumpyInterpreter(program)(columns), *(each.run(program, columns) for each in OTHERS)]
    for each in made:
        assert {name: column.values.tolist() for name, column in each.items()} == expected


def test_equal_work_is_one_node_in_onnx():
    def nodes(count):
        own = {"Identity", "Shape"}  # of each output, and of each input
        operators = [node.op_type for node in to_onnx(scaled(count)).graph.node]
        return Counter(operator for operator in operators if operator not in own)

    assert nodes(20) == nodes(9)


def test_lanes_follow_the_outputs():
    program = scaled(6)
    program = replace(program, outputs=program.outputs[::-1])
    made = [name for name, _ in program.outputs]
    last = group_steps(program)[-1]
    assert [made[[s for _, s in program.outputs].index(step)] for step in last.steps] == made


@pytest.mark.parametrize("rows", [0, 1, 64, 65])
def test_number_of_rows_does_not_change_the_answer(rows):
    values = np.linspace(-9, 9, rows, dtype=np.float32)
    values[::3] = np.nan
    program = scaled(5)
    made = NumpyInterpreter(program, together=64)({name: Column(values) for name in program.inputs})
    for number, name in enumerate(program.inputs):
        filled = np.where(np.isnan(values), np.float32(1), values).astype(np.float64)
        np.testing.assert_array_equal(made[name].values, np.floor(filled / (number + 1)))
        assert made[name].valid is None or made[name].valid.all()


def test_work_that_is_used_again_and_again_is_compared_in_time():
    odd = [3, -1, 7]  # each is itself again, as the order of its powers divides 2**62
    rows = Schema([ColumnSchema("x", "int64")])
    program = program_of({"power": source("x", Type("int64")) ** (2**62 + 1)}, rows)
    made = NumpyInterpreter(program)({"x": Column(np.array(odd))})
    assert made["power"].values.tolist() == odd


@pytest.mark.parametrize("dtype", ["int64", "float32"])
@pytest.mark.parametrize("rows", [0, 1])
def test_buckets_of_several_columns_are_counted_in_no_row(dtype, rows):
    edges = Column(np.array([0, 2, 7]))
    inputs = Schema(ColumnSchema(name, dtype, nullable=False) for name in LANES)
    outputs = {n: source(n, Type(dtype, nullable=False)).bucketize(edges) for n in LANES}
    program, given_ = program_of(outputs, inputs), {n: Column(np.ones(rows, dtype)) for n in LANES}
    for interpreter in OTHERS:
        made = interpreter.run(program, given_)
        assert [made[name].values.tolist() for name in LANES] == [[1] * rows] * len(LANES)
