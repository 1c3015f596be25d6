"""ONNX networks are exported as those of Keras are: by their names, or packed from columns."""

import json

import numpy as np
import onnx
import onnxruntime
import polars as pl
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_networks import LINEAR, matrix, model_of, named
from small_export import configs
from typer.testing import CliRunner

from exporter import ExportError, ServingOptions, export_ensemble
from exporter.command_line.app import make_app
from exporter.write.onnx import model as onnx_model
from serving import EnsembleClient, TritonServer, check_parity
from training.network.onnx_network import OnnxModelFile
from workflow import Workflow, ops

ROWS = pl.DataFrame(
    {
        "user": ["a", "b", None, "c", "a"],
        "price": [1.0, None, 3.5, -2.0, 1e6],
        "hour": [0, 5, 23, 7, 7],
        "genres": [["x"], [], ["y", "x"], None, ["z"]],
        "clicked": [0, 1, 0, 1, 1],
    }
)
ORDER = ["hour", "user", "price"]


@pytest.fixture(scope="module")
def workflow():
    ids = ["user", "genres"] >> ops.Categorify()
    price = ["price"] >> ops.FillMissing(0.5)
    again = ["user"] >> ops.Categorify() >> ops.Rename(name="again")
    return Workflow(ids + price + again + ["hour", "clicked"]).fit(ROWS)


@pytest.fixture
def export(workflow, tmp_path):
    def run(network, name="clicks", labels=("clicked",), version=None, **options):
        serving = ServingOptions(**options) if options else None
        return export_ensemble(
            network, workflow, name, tmp_path / "models", labels, version=version, serving=serving
        )

    return run


def asked(report):
    """The answers of a fused model's file to values that are not null."""
    file = report.paths[report.plan.published.name] / "model.onnx"
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def ask(**columns):
        tensors = {name: np.array(values).reshape(-1, 1) for name, values in columns.items()}
        tensors = {n: t.astype(object) if t.dtype.kind == "U" else t for n, t in tensors.items()}
        return dict(zip(names, session.run(names, tensors), strict=True))

    return ask


def expected(workflow, order):
    """The linear network's answer, in numpy."""
    made = workflow.transform(ROWS).select(order).collect()
    return made.to_numpy().astype(np.float32) @ LINEAR[: len(order)] + np.float32(0.25)


def test_every_kind_is_served_as_it_answers(workflow, export, tmp_path):
    onnx.save(matrix(3), tmp_path / "matrix.onnx")
    columns = {"features": ORDER}
    alone, both = {"runtime": "onnx", "max_batch_size": 8}, {"runtime": "fused_onnx"}
    cases = {
        "named": (named(), {}),
        "named_fused": (named(), both),
        "path": (tmp_path / "matrix.onnx", {"columns": columns}),
        "joined": (matrix(3), {"columns": columns, **alone}),
        "unpacked": (matrix(3), {"columns": columns, "pack": False}),
        "fused": (matrix(3), {"columns": columns, **both, "max_batch_size": 8}),
        "newer": (matrix(3, opset=21), {"columns": columns, **both}),
        "older": (matrix(3, opset=9), {"columns": columns, **both}),
        "flat": (flat(), {"columns": {"x": "price"}, **both}),
    }
    for name, (network, options) in cases.items():
        export(network, name=name, **options)
    raw = ROWS.drop("clicked")
    workflow.save(tmp_path / "workflow")
    ROWS.write_parquet(tmp_path / "rows.parquet")
    with TritonServer(tmp_path / "models") as server:
        given = ["--workflow", tmp_path / "workflow", "--model", tmp_path / "matrix.onnx"]
        asked = [tmp_path / "rows.parquet", "--url", server.grpc_url, *given]
        assert "Parity passed" in ensemble("parity", "path", *asked)
        for name, (network, _) in cases.items():
            with EnsembleClient(server.grpc_url, name) as client:
                report = check_parity(client, workflow, network, ROWS)
                assert report.passed, f"\n{report}"
                served = client.predict(raw)
            assert set(served.columns) == ({"twice"} if name == "flat" else {"score", "label"})
            if "named" in name:
                score = expected(workflow, ["user", "price"])
            elif name == "flat":
                np.testing.assert_array_equal(served["twice"], [2.0, 1.0, 7.0, -4.0, 2e6])
                continue
            else:
                score = expected(workflow, ORDER)
            np.testing.assert_allclose(served["score"], score[:, 0], rtol=1e-6)
            np.testing.assert_array_equal(served["label"], score[:, 0] > 0)


def test_the_command_line_takes_its_file(workflow, tmp_path):
    workflow.save(tmp_path / "workflow")
    onnx.save(matrix(3), tmp_path / "clicks.onnx")
    given = ["--workflow", tmp_path / "workflow", "--model", tmp_path / "clicks.onnx"]
    place = ["--repository", tmp_path / "models"]
    exported = ["--label", "clicked", "--prove", "process", *place, *given]
    text = ensemble("export", "clicks", *exported, "--option", f"columns={{'features': {ORDER}}}")
    assert "packed as features, in this order: hour, user, price" in text


def ensemble(*arguments):
    result = CliRunner().invoke(make_app(), [*map(str, arguments)], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result.output


def flat():
    """A network without columns: (N) to (N), which converters make of a squeezed output."""
    nodes = [helper.make_node("Add", ["x", "x"], ["twice"])]
    return model_of(nodes, {"x": ["N"]}, {"twice": ["N"]})


def test_the_report_and_the_config_show_the_order(export):
    report = export(matrix(3), columns={"features": ORDER})
    assert "packed as features, in this order: hour, user, price" in str(report)
    assert "packed as features, in this order" in report.to_html()
    assert "runtime onnx" in str(report)
    assert "3 as features" in str(report)
    published = configs(report)["clicks"].parameters["network_columns"].string_value
    assert json.loads(published) == {"features": ORDER}
    assert [str(each) for each in report.plan.steps[1].inputs] == ["packed_float32 float32[N, 3]"]


def test_the_packed_tensor_is_the_matrix(export):
    """Columns are not taken apart to be put together again."""
    report = export(matrix(3), columns={"features": ORDER})
    graph = onnx.load(report.paths["clicks_onnx"] / "model.onnx").graph
    assert {"Split", "Concat"}.isdisjoint(node.op_type for node in graph.node)


def test_the_files_version_is_that_of_its_operations(export):
    """An older server refuses a newer one."""
    network = matrix(3)
    network.ir_version = 12
    report = export(network, columns={"features": ORDER})
    assert onnx.load(report.paths["clicks_onnx"] / "model.onnx").ir_version == 9


def test_an_equal_export_changes_nothing(export):
    first, again = (export(matrix(3), columns={"features": ORDER}) for _ in range(2))
    assert (first.published, again.published) == (True, False)
    other = export(matrix(3), columns={"features": ORDER[::-1]})
    assert other.published


def test_a_copy_of_an_input_is_an_output_of_its_own(export):
    nodes = [
        helper.make_node("Identity", ["features"], ["same"]),
        helper.make_node("ReduceSum", ["features"], ["sum"], keepdims=0, axes=[1]),
    ]
    network = model_of(nodes, {"features": ["N", 2]}, {"same": ["N", 2], "sum": ["N"]}, opset=11)
    report = export(network, runtime="fused_onnx", columns={"features": ["price", "hour"]})
    assert {t.name: t.dims for t in report.plan.published.outputs} == {
        "same": (-1, 2),
        "sum": (-1, 1),
    }


def test_encoders_of_the_network_keep_what_is_added_to_them(export):
    """Simplified graphs add numbers to the tables of encoders, but only to those that they know."""
    encoders = [
        helper.make_node(
            "LabelEncoder",
            [name],
            [f"{name}_id"],
            domain="ai.onnx.ml",
            keys_int64s=[0, 1, 5, 7],
            values_int64s=[3, 1, 2, 4],
            default_int64=9,
        )
        for name in ("hour", "user")
    ]
    nodes = [
        *encoders,
        helper.make_node("Concat", ["hour_id", "user_id"], ["ids"], axis=1),
        helper.make_node("Add", ["ids", "offsets"], ["moved"]),
        helper.make_node("Neg", ["moved"], ["below"]),
    ]
    network = model_of(
        nodes,
        {"hour": ["N", 1], "user": ["N", 1]},
        {"below": ["N", 2]},
        [numpy_helper.from_array(np.array([10, 20]), "offsets")],
        dtype=TensorProto.INT64,
        ml=2,
    )
    ask = asked(export(network, runtime="fused_onnx"))
    # The ids of a, c and of an unknown user are 3, 5 and 2.
    assert ask(hour=[7, 1, 23], user=["a", "c", "new"])["below"].tolist() == [
        [-(10 + 4), -(20 + 9)],
        [-(10 + 1), -(20 + 2)],
        [-(10 + 9), -(20 + 9)],
    ]


def encoder(source, values, others=None):
    """An encoder of the hours 5 and 7, which gives values of any dtype."""
    values = np.array(values)
    tables = {"keys_tensor": np.array([5, 7]), "values_tensor": values}
    tables |= {} if others is None else {"default_tensor": np.array([others], values.dtype)}
    attributes = {name: numpy_helper.from_array(array, name) for name, array in tables.items()}
    return helper.make_node("LabelEncoder", [source], ["code"], domain="ai.onnx.ml", **attributes)


@pytest.mark.parametrize("runtime", ["onnx", "fused_onnx"])
@pytest.mark.parametrize(
    ("values", "others", "dtype"),
    [
        ([3, 1], None, TensorProto.INT64),
        ([0.25, np.nan], np.inf, TensorProto.DOUBLE),
        (np.array(["low", "high"], object), "none", TensorProto.STRING),
    ],
)
def test_encoders_that_give_any_values(values, others, dtype, runtime, export):
    """Also without a value for others, which the operation lets be left out."""
    network = model_of(
        [encoder("hour", values, others)],
        {"hour": ["N", 1]},
        {"code": ["N", 1]},
        dtype=TensorProto.INT64,
        ml=4,
        code=dtype,
    )
    assert export(network, runtime=runtime).published


def test_encoded_numbers_and_columns_that_are_computed_on(export):
    """The fused graph has tables of computations on one encoded column of whole numbers alone."""
    last = [
        helper.make_node("Cast", ["code"], ["wide"], to=TensorProto.DOUBLE),
        helper.make_node("Mul", ["wide", "two"], ["twice"]),
        helper.make_node("Add", ["twice", "two"], ["more"]),
        helper.make_node("Neg", ["more"], ["y"]),
    ]
    two = numpy_helper.from_array(np.array(2.0), "two")
    kinds = {"dtype": TensorProto.INT64, "ml": 4, "y": TensorProto.DOUBLE}
    columns, rows = {"ids": ["hour", "user"]}, {"ids": ["N", 2]}
    nodes = [encoder("ids", [3, 1], 2), *last]
    network = model_of(nodes, rows, {"y": ["N", 2]}, [two], **kinds)
    ask = asked(export(network, runtime="fused_onnx", columns=columns))
    # The ids of c and a are 5 and 3.
    assert ask(hour=[7, 5], user=["c", "a"])["y"].tolist() == [[-4, -8], [-8, -6]]
    nodes = [encoder("hour", [0.5, 1.5], 2.5), *last]
    network = model_of(nodes, {"hour": ["N", 1]}, {"y": ["N", 1]}, [two], **kinds)
    ask = asked(export(network, "floats", runtime="fused_onnx"))
    assert ask(hour=[7, 5, 0])["y"].tolist() == [[-5], [-3], [-7]]


def test_two_tables_at_the_same_moved_ids(export):
    """The ids are computed as int64 once, where the network does so as int32."""
    nodes = [
        helper.make_node("Cast", ["user"], ["id"], to=TensorProto.INT32),
        helper.make_node("Add", ["id", "one"], ["place"]),
        helper.make_node("Gather", ["wide", "place"], ["first"]),
        helper.make_node("Gather", ["deep", "place"], ["second"]),
        helper.make_node("Add", ["first", "second"], ["sum"]),
        helper.make_node("Reshape", ["sum", "flat"], ["y"]),
    ]
    tables = {"wide": np.arange(9) * 10, "deep": np.arange(9) % 2, "flat": np.array([-1])}
    constants = {"one": np.array([1], np.int32), **tables}
    network = model_of(
        nodes,
        {"user": ["N", 1]},
        {"y": ["N"]},
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
        dtype=TensorProto.INT64,
    )
    ask = asked(export(network, runtime="fused_onnx"))
    # The ids of a, c and of an unknown user are 3, 5 and 2.
    assert ask(user=["a", "c", "new"])["y"].tolist() == [[40], [60], [31]]


def test_what_is_added_to_encoded_columns_is_added_once(export):
    """Also if the sum is an output itself."""
    add = helper.make_node("Add", ["ids", "offsets"], ["moved"])
    offsets = numpy_helper.from_array(np.array([[10, 20]]), "offsets")
    whole = {"dtype": TensorProto.INT64}
    network = model_of([add], {"ids": ["N", 2]}, {"moved": ["N", 2]}, [offsets], **whole)
    ask = asked(export(network, runtime="fused_onnx", columns={"ids": ["user", "again"]}))
    assert ask(user=["a", "c", "new"])["moved"].tolist() == [[13, 23], [15, 25], [12, 22]]


def test_a_large_table_lies_beside_the_model(export, tmp_path, monkeypatch):
    """Also if the user's lies in a file of its own, or its numbers are no bytes, as of `make_tensor`."""
    monkeypatch.setattr(onnx_model, "EMBEDDED_BYTES", 500_000)
    table = np.arange(24 * 10_000, dtype=np.float32).reshape(24, -1)
    nodes = [
        helper.make_node("Gather", ["table", "hour"], ["rows"]),
        helper.make_node("ReduceMax", ["rows"], ["most"], axes=[2], keepdims=0),
    ]
    network = model_of(
        nodes,
        {"hour": ["N", 1]},
        {"most": ["N", 1]},
        [numpy_helper.from_array(table, "table")],
        dtype=TensorProto.INT64,
        most=TensorProto.FLOAT,
        opset=13,
    )
    path = tmp_path / "large.onnx"
    network = onnx.version_converter.convert_version(network, 18)
    onnx.save(network, path, save_as_external_data=True, location="weights.bin")
    report = export(path, runtime="fused_onnx", golden_rows={"hour": [3]})
    tables = report.paths["clicks"] / "tables.data"
    assert tables.stat().st_size == table.nbytes
    inside = onnx.load(path)
    numbers = helper.make_tensor("table", TensorProto.FLOAT, table.shape, table.ravel().tolist())
    assert not numbers.raw_data
    others = [tensor for tensor in inside.graph.initializer if tensor.name != "table"]
    del inside.graph.initializer[:]
    inside.graph.initializer.extend([*others, numbers])
    report = export(inside, "numbers", runtime="fused_onnx", golden_rows={"hour": [3]})
    assert (report.paths["numbers"] / "tables.data").read_bytes() == table.tobytes()


def test_a_large_table_of_four_bits_a_number(export, monkeypatch):
    """As quantized embeddings are; two numbers are a byte."""
    monkeypatch.setattr(onnx_model, "EMBEDDED_BYTES", 50_000)
    table = np.arange(24 * 10_000).reshape(24, -1) % 8
    packed = helper.make_tensor("table", TensorProto.UINT4, table.shape, table.ravel().tolist())
    nodes = [
        helper.make_node("DequantizeLinear", ["table", "scale"], ["numbers"]),
        helper.make_node("Gather", ["numbers", "hour"], ["rows"]),
        helper.make_node("Squeeze", ["rows", "axis"], ["row"]),
        helper.make_node("Slice", ["row", "first", "last", "axis"], ["y"]),
    ]
    constants = {"scale": np.float32(0.5), "axis": [1], "first": [1], "last": [4]}
    network = model_of(
        nodes,
        {"hour": ["N", 1]},
        {"y": ["N", 3]},
        [packed, *(numpy_helper.from_array(np.array(v), n) for n, v in constants.items())],
        dtype=TensorProto.INT64,
        y=TensorProto.FLOAT,
        opset=21,
    )
    network.ir_version = 10
    report = export(network, runtime="fused_onnx", golden_rows={"hour": [3]})
    assert (report.paths["clicks"] / "tables.data").stat().st_size == table.size // 2
    assert asked(report)(hour=[2, 3])["y"].tolist() == (table[2:4, 1:4] / 2).tolist()


def of_float64(constants, *nodes):
    """A network of the size of a float64 `price`, to which operations are applied."""
    nodes = [
        helper.make_node("Abs", ["price"], ["size"]),
        *nodes,
        helper.make_node("Neg", [nodes[-1].output[0]], ["y"]),
    ]
    tensors = [numpy_helper.from_array(np.array(v), name) for name, v in constants.items()]
    shapes = {"price": ["N", 1]}, {"y": ["N", 1]}
    return model_of(nodes, *shapes, tensors, dtype=TensorProto.DOUBLE)


SLIGHTLY = 1 + 4e-8
# By the operations of a network: what they make of a size.
NUMBERS_OF_FLOAT64 = {
    "product": (
        of_float64({"c": [SLIGHTLY]}, helper.make_node("Mul", ["size", "c"], ["a"])),
        lambda size: size * SLIGHTLY,
    ),
    "quotient": (
        of_float64({"c": SLIGHTLY}, helper.make_node("Div", ["size", "c"], ["a"])),
        lambda size: size / SLIGHTLY,
    ),
    "logarithm": (
        of_float64(
            {"c": [[1e-300]]},
            helper.make_node("Add", ["c", "size"], ["sum"]),
            helper.make_node("Log", ["sum"], ["a"]),
        ),
        lambda size: np.log(size + 1e-300),
    ),
    "constant": (
        of_float64(
            {},
            helper.make_node(
                "Constant", [], ["c"], value=numpy_helper.from_array(np.array([SLIGHTLY]))
            ),
            helper.make_node("Mul", ["size", "c"], ["a"]),
        ),
        lambda size: size * SLIGHTLY,
    ),
    "computed": (
        of_float64(
            {"one": [1.0], "few": [4e-8]},
            helper.make_node("Add", ["one", "few"], ["c"]),
            helper.make_node("Mul", ["size", "c"], ["a"]),
        ),
        lambda size: size * SLIGHTLY,
    ),
    "scaled": (
        of_float64(
            {"weight": [[3.0]], "c": [0.1]},
            helper.make_node("MatMul", ["size", "weight"], ["product"]),
            helper.make_node("Mul", ["product", "c"], ["a"]),
        ),
        lambda size: size * 3.0 * 0.1,
    ),
}


@pytest.fixture(scope="module")
def prices():
    """A workflow of prices as they are."""
    return Workflow((["price"] >> ops.FillMissing(0.0)) + ["clicked"]).fit(ROWS)


def test_numbers_of_float64_stay_float64(prices, tmp_path):
    """onnxruntime compares them with 0 and 1 as float32, and scales products by a float32."""
    cases = {f"{n}_{r}": (n, r) for n in NUMBERS_OF_FLOAT64 for r in ("onnx", "fused_onnx")}
    for name, (which, runtime) in cases.items():
        serving = ServingOptions(runtime=runtime)
        network = NUMBERS_OF_FLOAT64[which][0]
        export_ensemble(network, prices, name, tmp_path, ["clicked"], serving=serving)
    rows = ROWS.with_columns(price=pl.Series([1e-9, 0.0, 3.5, -2.0, 1e6]))
    with TritonServer(tmp_path) as server:
        for name, (which, _) in cases.items():
            network, function = NUMBERS_OF_FLOAT64[which]
            with EnsembleClient(server.grpc_url, name) as client:
                served = client.predict(rows.drop("clicked"))
                assert check_parity(client, prices, network, rows).passed
            expected = -function(np.abs(rows["price"].to_numpy()))
            np.testing.assert_allclose(served["y"], expected, rtol=1e-15, atol=0, err_msg=name)


def test_the_offline_answer_of_float64_is_float64():
    """Parity compares with it."""
    for network, function in NUMBERS_OF_FLOAT64.values():
        price = np.array([[1e-9], [0.0], [3.5]])
        answer = OnnxModelFile(network).predict_on_batch({"price": price})
        np.testing.assert_allclose(answer["y"], -function(price), rtol=1e-15, atol=0)


def test_functions_of_the_network_are_written_out(export):
    """As PyTorch writes a module that occurs more than once."""
    network = named()
    opsets = [helper.make_opsetid("", 18)]
    body = helper.make_node("Mul", ["x", "x"], ["y"])
    network.functions.append(helper.make_function("mine", "Square", ["x"], ["y"], [body], opsets))
    network.opset_import.append(helper.make_opsetid("mine", 1))
    square = helper.make_node("Square", ["price"], ["squared"], domain="mine")
    network.graph.node[0].input[1] = "squared"
    network.graph.node.insert(0, square)
    report = export(network, runtime="fused_onnx")
    written = onnx.load(report.paths["clicks"] / "model.onnx")
    assert not written.functions
    assert "mine" not in {node.domain for node in written.graph.node}


def test_weights_in_a_file_of_their_own(export, tmp_path):
    """Small ones get inside; a file that is missing, damaged or in another folder is an error."""
    (tmp_path / "saved").mkdir()
    path, weights = tmp_path / "saved" / "clicks.onnx", tmp_path / "saved" / "weights.bin"
    # The bytes of the weights, and not of the shapes, with those of a Python object.
    outside = {"save_as_external_data": True, "location": weights.name, "size_threshold": 44}
    onnx.save(matrix(3), path, **outside)
    columns = {"features": ORDER}
    report = export(path, columns=columns)
    assert weights.stat().st_size >= 12
    assert not [*report.repository.rglob("*.data")]
    content = weights.read_bytes()
    weights.write_bytes(content[:3])
    expected = (
        r"\d+ bytes or more of weights in .*weights\.bin, .*clicks\.onnx names\. Received: 3 bytes"
    )
    with pytest.raises(ExportError, match=expected):
        export(path, columns=columns)
    weights.unlink()
    with pytest.raises(ExportError, match=r"Expected the weights of .*weights\.bin.*no such file"):
        export(path, columns=columns)
    (tmp_path / "weights.bin").write_bytes(content)
    weights.symlink_to(tmp_path / "weights.bin")
    with pytest.raises(ExportError, match="escapes model directory"):
        export(path, columns=columns)


def test_an_older_network_with_weights_in_a_file_of_their_own_is_refused(export, tmp_path):
    """Raised to a newer opset by onnx 1.17, it would lose them."""
    path = tmp_path / "clicks.onnx"
    outside = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 44}
    onnx.save(matrix(3, opset=13), path, **outside)
    expected = r"opset 18 or a newer one, .*Received: opset 13, and weights in .*opset_version=18"
    with pytest.raises(ExportError, match=expected):
        export(path, columns={"features": ORDER})
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("opset", [13, 18])
def test_constants_of_operations_in_a_file_of_their_own(opset, export, tmp_path):
    """As `onnx.save` writes them with `convert_attribute`; they are in the served file."""
    numbers = np.arange(1, 101, dtype=np.float32).reshape(1, -1)
    value = numpy_helper.from_array(numbers, "value")
    nodes = [
        helper.make_node("Constant", [], ["numbers"], value=value),
        helper.make_node("Mul", ["price", "numbers"], ["product"]),
        helper.make_node("ReduceMax", ["product"], ["y"], axes=[1]),
    ]
    if opset == 18:
        nodes[-1] = helper.make_node("Identity", ["product"], ["y"])
    network = model_of(nodes, {"price": ["N", 1]}, {"y": ["N", "K"]}, opset=opset)
    path = tmp_path / "clicks.onnx"
    outside = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 300}
    onnx.save(network, path, **outside, convert_attribute=True)
    assert (tmp_path / "weights.bin").stat().st_size >= 400
    ask = asked(export(path, runtime="fused_onnx"))
    assert ask(price=[2.0])["y"].max() == 200


def test_elements_of_lists_are_no_rows(export):
    """onnxruntime would reuse the memory of a list's elements for the rows, and fail."""
    nodes = [
        helper.make_node("Cast", ["genres__values"], ["element"], to=TensorProto.FLOAT),
        helper.make_node("Sqrt", ["element"], ["root"]),
        helper.make_node("Mul", ["root", "zero"], ["none"]),
        helper.make_node("ReduceSum", ["none"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["genres__nnzs"], ["length"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["length", "sum"], ["more"]),
        helper.make_node("Sqrt", ["more"], ["y"]),
    ]
    network = model_of(
        nodes,
        {"genres__values": ["V", 1], "genres__nnzs": ["N", 1]},
        {"y": ["N", 1]},
        [numpy_helper.from_array(np.array(0, np.float32), "zero")],
        dtype=TensorProto.INT64,
        y=TensorProto.FLOAT,
    )
    assert export(network, runtime="onnx").published
