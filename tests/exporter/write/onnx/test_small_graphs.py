"""Small graphs, made simpler or given tables, answer as onnxruntime answers the graphs as they were."""

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

from exporter.write.onnx import tabulate
from exporter.write.onnx.model import OnnxModel
from exporter.write.onnx.simplify import simplify

COLUMNS = "p, q, r = Split<axis = 1, num_outputs = 3>(x)"
WITHOUT_DEFAULT = (
    "ai.onnx.ml.LabelEncoder<keys_tensor = int64[2] {5, 6}, values_tensor = int64[2] {1, 2}>(a)"
)
ENCODER = WITHOUT_DEFAULT.replace(">", ", default_tensor = int64[1] {0}>")
ID, IDS = f"i = {ENCODER}", f"i = {ENCODER} j = {ENCODER} d = Concat<axis = 1>(i, j)"
# More than a byte holds.
LARGE = f"k = {ENCODER.replace('{1, 2}', '{100, 300}').replace('{0}', '{100}')}"
MOVED = f"{ID} c = Add(i, one) b = Cast<to = 6>(c) d = Add(b, minus)"
BRANCHES = (
    "y = If(yes)<then_branch = left () => (float[n, 3] l) { l = Neg(z) }, "
    "else_branch = right () => (float[n, 3] l) { l = Abs(z) }>"
)
REACHED = "w = GreaterOrEqual(c, least)"
VALID = "w = Equal(x, x) v = Where(w, x, bound)"
SIMPLER = [
    f"{COLUMNS} z = Concat<axis = 1>(p, q, r)",
    f"{COLUMNS} z = Concat<axis = 1>(p, q, r, u)",
    f"{COLUMNS} c = Cast<to = 7>(p) d = Cast<to = 7>(q) z = Concat<axis = 1>(c, d)",
    f"{VALID} z = Max(v, bound)",
    f"{ID} w = Less(i, three) z = Where(w, i, seven)",
    f"{ID} w = GreaterOrEqual(i, zero) z = Where(w, i, seven)",
    f"{ID} b = Add(i, one) w = Less(b, four) z = Where(w, i, seven)",
    f"{ID} w = Less(i, three) v = GreaterOrEqual(i, zero) b = And(w, v) z = Where(b, i, seven)",
    f"{IDS} w = Less(d, upper) z = Where(w, d, seven)",
    f"{ID} b = Cast<to = 6>(i) z = Gather(x, b)",
    f"{MOVED} z = Gather(x, d)",
    f"{MOVED} e = Gather(x, d) f = Gather(u, d) z = Concat<axis = 2>(e, f)",
    f"{ID} b = Cast<to = 6>(i) c = Concat<axis = 1>(b, b) z = Gather(table, c)",
    f"{IDS} z = Add(d, tens)",
]
AS_THEY_ARE = [
    f"{COLUMNS} z = Concat<axis = 1>(q, p, r)",
    f"{COLUMNS} z = Concat<axis = 1>(p, q)",
    f"{COLUMNS} z = Concat<axis = 1>(p, u)",
    f"{COLUMNS} z = Concat<axis = 1>(p, q, r, p)",
    f"{COLUMNS} z = Concat<axis = 0>(p, q, r)",
    "p, q, r = Split<num_outputs = 3>(x) z = Concat<axis = 1>(p, q, r)",
    f"{COLUMNS} y = Concat<axis = 1>(p, q, r)",
    f"{COLUMNS} z = Concat<axis = 1>(p, q, r) {BRANCHES}",
    f"{COLUMNS} b = Concat<axis = 1>(q, p) z = Concat<axis = 1>(b, r)",
    # Casts of tensors of two dtypes, or of an unknown one, or beside another tensor.
    "c = Cast<to = 1>(a) d = Cast<to = 1>(u) z = Concat<axis = 1>(c, d)",
    "b = Sign(a) c = Cast<to = 1>(u) d = Cast<to = 1>(b) z = Concat<axis = 1>(c, d)",
    "b = Sign(a) e = Sign(u) c = Cast<to = 1>(b) d = Cast<to = 1>(e) z = Concat<axis = 1>(c, d)",
    "c = Cast<to = 1>(a) z = Concat<axis = 1>(c, u)",
    "z = Max(x, bound)",
    "v = Where(m, x, bound) z = Max(v, bound)",
    "v = Abs(x) z = Max(v, bound)",
    "w = Equal(x, x) v = Where(w, x, u) z = Max(v, bound)",
    f"{VALID} z = Max(v, bound, other)",
    f"{VALID} z = Max(v, other)",
    f"{VALID} z = Max(v, u)",
    f"{VALID} z = Min(v, bound)",
    "w = Equal(x, bound) v = Where(w, x, bound) z = Max(v, bound)",
    "w = Less(x, x) v = Where(w, x, bound) z = Max(v, bound)",
    f"{ID} w = Less(i, two) z = Where(w, i, seven)",
    f"{ID} w = GreaterOrEqual(i, one) z = Where(w, i, seven)",
    f"{ID} b = Add(i, one) w = Less(b, three) z = Where(w, i, seven)",
    f"{ID} w = Less(i, three) v = Less(i, two) b = And(w, v) z = Where(b, i, seven)",
    f"{ID} w = Less(i, three) z = Where(w, i, tens)",
    f"{ID} w = Less(i, three) z = Where(w, i, deep)",
    f"{ID} w = Less(i, three) z = Where(w, i, column)",
    f"{ID} w = Less(i, three) b = Sign(a) c = Concat<axis = 1>(b, b) z = Where(w, i, c)",
    f"{ID} w = Less(i, three) b = Gather(square, i) z = Where(w, b, bound)",
    f"{IDS} w = Less(i, three) z = Where(w, i, d)",
    # A sum that is negative, and one that wraps around.
    f"{ID} b = Add(i, less) w = GreaterOrEqual(b, zero) z = Where(w, i, seven)",
    f"{ID} b = Add(i, most) w = GreaterOrEqual(b, zero) z = Where(w, i, seven)",
    f"{ID} s = Shape<end = 1>(u) b = Reshape(i, s) w = Less(b, three) z = Where(w, i, seven)",
    f"{ID} {LARGE} c = Cast<to = 2>(k) w = GreaterOrEqual(c, hundred) z = Where(w, i, seven)",
    f"{LARGE} d = Concat<axis = 1>(a, k) c = Cast<to = 2>(d) {REACHED} z = Where(w, d, seven)",
    f"{ID} w = Less(i, three) z = Where(w, u, bound)",
    f"{ID} w = Less(i, three) z = Where(w, seven, i)",
    "w = Not(m) z = Where(w, u, bound)",
    "b = Sign(u) w = Less(b, bound) z = Where(w, u, bound)",
    f"{IDS} w = Less(d, lower) z = Where(w, d, seven)",
    f"j = {WITHOUT_DEFAULT} w = GreaterOrEqual(j, zero) z = Where(w, j, seven)",
    f"j = {WITHOUT_DEFAULT} c = Cast<to = 2>(j) w = Less(c, hundred) z = Where(w, j, seven)",
    'y = ai.onnx.ml.LabelEncoder<keys_int64s = [5, 6], values_strings = ["x", "y"]>(a)',
    "b = Cast<to = 6>(a) z = Gather(table, b)",
    "b = Sign(a) z = Gather(table, b)",
    f"{ID} z = Gather(x, i)",
    f"{ID} b = Cast<to = 6>(i) c = Add(b, b) z = Gather(table, c)",
    f"{ID} c = Cast<to = 2>(i) b = Cast<to = 6>(c) z = Gather(x, b)",
    f"{ID} c = Cast<to = 2>(i) b = Cast<to = 6>(c) d = Add(b, minus) z = Gather(x, d)",
    "d = Concat<axis = 1>(a, a) z = Add(d, tens)",
    f"{ID} d = Concat<axis = 1>(i, i) z = Add(d, tens)",
    f"{ID} b = Abs(i) d = Concat<axis = 1>(i, b) z = Add(d, tens)",
    f"{ID} j = {WITHOUT_DEFAULT} d = Concat<axis = 1>(i, j) z = Add(d, tens)",
    f"{ID} j = {ENCODER} d = Concat<axis = 0>(i, j) z = Add(d, tens)",
    f"{IDS} y = Add(d, tens)",
    f"{IDS} z = Add(d, one)",
    f"{IDS} z = Add(d, a)",
    f"{IDS} b = Add(d, tens) z = Add(b, j)",
    f"{IDS} b = Add(d, tens) z = Add(b, d)",
]


def small_graph(body):
    """A graph of an operator's text, which makes y, or z that y is made of."""
    return onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["": 18, "ai.onnx.ml": 4]>
        g (float[n, 3] x, float[n, 1] u, int64[n, 1] a, bool[n, 1] m) => (y)
        <float[1] bound = {{-1.5}}, float[1] other = {{2.5}}, int32[1] minus = {{-1}},
         int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] two = {{2}}, int64[1] three = {{3}},
         int64[1] four = {{4}}, int64[1] seven = {{7}}, int64[2] tens = {{10, 20}},
         int64[1, 1, 1] deep = {{7}}, uint8[1] hundred = {{100}}, uint8[2] least = {{0, 100}},
         int64[1] less = {{-1}}, int64[1] most = {{9223372036854775807}},
         int64[3, 1] column = {{7, 8, 9}}, float[3, 2] square = {{0, 1, 2, 3, 4, 5}},
         bool yes = {{1}}, int64[2] upper = {{3, 4}}, int64[2] lower = {{3, 2}},
         int64[1] flat = {{-1}}, float[8] table = {{0, 1, 2, 3, 4, 5, 6, 7}}>
        {{ {body if "y =" in body else f"{body} y = Neg(z)"} }}"""
    )


def expect_same_answers(graph, changed):
    """Answers to rows with keys, with none, and with numbers that are none."""
    given = {
        "x": np.float32([[0.5, np.nan, -7], [-1.5, 300.7, -0.0], [np.nan, -1.6, 2.5]]),
        "u": np.float32([[1.25], [np.nan], [-3]]),
        "a": np.array([[5], [6], [2**32 + 1]]),
        "m": np.array([[True], [True], [False]]),
    }
    answers = []
    for model in (graph, changed):
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        taken = {tensor.name: given[tensor.name] for tensor in session.get_inputs()}
        answers.append(session.run(None, taken)[0])
    np.testing.assert_array_equal(*answers)


@pytest.mark.parametrize(
    ("body", "fewer"), [(b, True) for b in SIMPLER] + [(b, False) for b in AS_THEY_ARE]
)
def test_a_graph_of_fewer_nodes_answers_as_before(body, fewer):
    graph = small_graph(body)
    simpler = simplify(OnnxModel(graph)).proto
    assert (len(simpler.graph.node) < len(graph.graph.node)) == fewer
    expect_same_answers(graph, simpler)


HALVES = "e, f = Split<axis = 1, num_outputs = 2>(d) g = Sign(e) h = Sign(f)"
STEPS = "b = Mul(i, two) c = Add(b, one)"


@pytest.mark.parametrize(
    ("body", "tables"),
    [
        (f"{ID} {STEPS} z = Mul(c, three)", ["y/table"]),
        (f"{ID} {STEPS} d = Mul(c, three) y = Concat<axis = 1>(d, a)", ["d/table"]),
        (f"{ID} {STEPS} d = Mul(c, three) y = Concat<axis = 1>(d, i)", ["y/table"]),
        (f"{LARGE} b = Mul(k, two) c = Add(b, one) z = Mul(c, k)", ["y/table"]),
        # Too few operations, or each for another tensor.
        (f"{ID} b = Mul(i, two) z = Add(b, one)", ["y/table"]),
        (f"{ID} b = Mul(i, two) y = Add(b, one)", []),
        (f"{ID} {STEPS} e = Sign(b) f = Sign(c) y = Concat<axis = 1>(e, f)", []),
        # Several values a row, other shapes, and answers that depend on the other rows.
        (f"e = Concat<axis = 1>(a, a) i = {ENCODER.replace('(a)', '(e)')} {STEPS} z = Abs(c)", []),
        (f"{ID} {STEPS} d = Reshape(c, flat) y = Abs(d)", []),
        (f"{ID} {STEPS} d = Unsqueeze(c, zero) y = Abs(d)", []),
        (f"{ID} {STEPS} d = ReduceMax(c) y = Abs(d)", []),
        (f"{ID} {STEPS} d = CumSum(c, zero) y = Abs(d)", []),
        (f"i = {WITHOUT_DEFAULT} {STEPS} z = Mul(c, three)", []),
        # Two results of one operation, and a result without a row in the network's table.
        (f"{ID} {STEPS} d = Concat<axis = 1>(b, c) {HALVES} y = Concat<axis = 1>(g, h)", []),
        (
            f"i = {ENCODER.replace('{5, 6}', '{5, 9}')} b = Gather(lower, i) c = Mul(b, two) z = Abs(c)",
            [],
        ),
        (f"{ID} {STEPS} d = Cast<to = 1>(c) z = Exp(d)", ["d/table"]),
    ],
)
def test_a_graph_with_tables_of_results_answers_as_before(body, tables):
    graph = small_graph(body)
    tabulated = tabulate.tabulate(OnnxModel(graph))
    assert [*tabulated.tables] == tables
    proto = onnx.ModelProto()
    proto.CopyFrom(tabulated.proto)
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(table.read(), name) for name, table in tabulated.tables.items()
    )
    expect_same_answers(graph, proto)
