"""ONNX networks that cannot be served: each error names what was expected and what was received."""

import keras
import numpy as np
import onnx
import polars as pl
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_networks import matrix, model_of, named

from exporter import ExportError, ServingOptions, export_ensemble
from serving import ClientError, check_parity
from workflow import Workflow, ops

ROWS = pl.DataFrame(
    {
        "user": [f"u{number}" for number in range(300)],
        "price": [1.0, 2.0, 3.0] * 100,
        "genres": [["x"], [], ["y", "x"]] * 100,
        "clicked": [0, 1, 0] * 100,
    }
)
X, Y = {"price": ["N", 1]}, {"y": ["N", 1]}
COPY = [helper.make_node("Identity", ["price"], ["y"])]


@pytest.fixture(scope="module")
def workflow():
    ids = ["user", "genres"] >> ops.Categorify()
    return Workflow(ids + ["price", "clicked"]).fit(ROWS)


@pytest.fixture
def refused(workflow, tmp_path):
    """Exports, and returns the error's text."""

    def run(network, own=None, **options):
        with pytest.raises(ExportError) as error:
            export_ensemble(
                network,
                own or workflow,
                "clicks",
                tmp_path / "models",
                ["clicked"],
                serving=ServingOptions(**options),
            )
        assert not (tmp_path / "models").exists()
        return str(error.value)

    return run


def of_columns(columns, **options):
    return {"columns": {"features": columns}, **options}


def with_if():
    """As `torch.jit.script` leaves a branch."""
    value = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    branch = helper.make_graph([helper.make_node("Neg", ["price"], ["z"])], "b", [], [value])
    nodes = [
        helper.make_node("ReduceSum", ["price"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["condition"], to=TensorProto.BOOL),
        helper.make_node(
            "If", ["condition"], ["y"], "/branch", then_branch=branch, else_branch=branch
        ),
    ]
    return model_of(nodes, X, Y)


def encoder(version):
    """An encoder whose attributes have other names from version 2 on."""
    node = helper.make_node(
        "LabelEncoder", ["label"], ["y"], domain="ai.onnx.ml", classes_strings=["a", "b"]
    )
    cast = helper.make_node("Cast", ["price"], ["label"], to=TensorProto.INT64)
    return model_of([cast, node], X, Y, ml=version, y=TensorProto.STRING)


def outside():
    """A model whose weights are in a file beside it."""
    network = matrix(3)
    onnx.external_data_helper.convert_model_to_external_data(
        network, location="weights.bin", size_threshold=0
    )
    for tensor in network.graph.initializer:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
    return network


def sparse():
    network = model_of([helper.make_node("MatMul", ["price", "w"], ["y"])], X, Y)
    values = numpy_helper.from_array(np.array([2.0], np.float32), "w")
    places = numpy_helper.from_array(np.array([0]), "places")
    network.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [1, 1]))
    return network


def half(dtype):
    cast = helper.make_node("Cast", ["price"], ["y"], to=TensorProto.FLOAT)
    return model_of([cast], X, Y, dtype=dtype, y=TensorProto.FLOAT)


def _with_output_twice():
    network = model_of(COPY, X, Y)
    network.graph.output.append(network.graph.output[0])
    return network


def _of_a_sequence():
    """A network of a list of tensors."""
    joined = helper.make_node("ConcatFromSequence", ["price"], ["y"], axis=1)
    network = model_of([joined], {}, Y)
    network.graph.input.append(
        helper.make_tensor_sequence_value_info("price", TensorProto.FLOAT, None)
    )
    return network


def in_training(node, *constants):
    """A network as PyTorch exports it in training mode."""
    tensors = [numpy_helper.from_array(np.array(v), n) for n, v in constants]
    return model_of([node, helper.make_node("Neg", ["x"], ["y"])], X, Y, tensors)


RATIO = ("ratio", np.float32(0.5))
NETWORKS = {
    "dropout": (
        lambda: in_training(
            helper.make_node("Dropout", ["price", "ratio", "on"], ["x"], "/drop"),
            RATIO,
            ("on", True),
        ),
        r"always the same answer.* Received: Dropout '/drop' in the ModelProto\. .*evaluation mode",
    ),
    "noise": (
        lambda: in_training(helper.make_node("RandomNormalLike", ["price"], ["x"])),
        "always the same answer.* Received: RandomNormalLike",
    ),
    "any rank": (lambda: model_of(COPY, {"price": None}, Y), "'price' .*Received: any shape"),
    "three dimensions": (
        lambda: model_of(COPY, {"price": ["N", 1, 4]}, {"y": None}),
        r"\[N, k\] or \[N\].* Received: \[N, 1, 4\]",
    ),
    "rows that are fixed": (
        lambda: model_of(COPY, {"price": [8, 1]}, {"y": [8, 1]}),
        r"any number of rows, k columns\. Received: \[8, 1\]\. .*dynamic_shapes",
    ),
    "rows that are fixed inside": (
        lambda: model_of(
            [helper.make_node("Reshape", ["price", "eight"], ["y"])],
            X,
            Y,
            [numpy_helper.from_array(np.array([8, 1]), "eight")],
        ),
        r"any number of rows, such as 2 of zeros, with .*price.* Received: .*dynamic first dimension",
    ),
    "a sequence": (_of_a_sequence, r"input 'price' .* as a tensor\. Received: a sequence\. "),
    "an input without a name": (
        lambda: model_of([helper.make_node("Neg", [""], ["y"])], {"": ["N", 1], **X}, Y),
        "a name for each input of the ModelProto. Received: '', 'price'\\. .*input_names=",
    ),
    "no outputs": (
        lambda: model_of(COPY, X, {}),
        "an ONNX model in the ModelProto. Received: no graph with outputs",
    ),
    "an unnamed input": (
        lambda: model_of(
            [helper.make_node("Neg", ["onnx::Neg_0"], ["y"])], {"onnx::Neg_0": ["N", 1]}, Y
        ),
        r"takes 'onnx::Neg_0', which .* makes user, genres, price, clicked\. .*input_names=",
    ),
    "an unknown input": (
        lambda: model_of([helper.make_node("Neg", ["age"], ["y"])], {"age": ["N", 1]}, Y),
        r"takes 'age', which .*It makes user, genres, price.*columns=\{input: column\}",
    ),
    "float16": (
        lambda: half(TensorProto.FLOAT16),
        r"'price' .*of a dtype among bool, .*string\. Received: float16\. Export it with a float32",
    ),
    "control flow": (
        with_if,
        r"without control flow.* Received: If '/branch' in the ModelProto.*EmbeddingBag.*padded lists",
    ),
    "sparse weights": (sparse, "of dense weights. Received: the sparse 'w'"),
    "weights elsewhere": (
        outside,
        "with its weights inside, .* Received: weights in 'weights.bin'",
    ),
    "an opset of the future": (
        lambda: matrix(3, opset=99),
        r"up to opset \d\d of ai\.onnx, the newest of onnxruntime \S+, .*Received: opset 99 in the",
    ),
    "trees of the future": (
        lambda: encoder(99),
        r"up to opset \d of ai\.onnx\.ml, .*Received: opset 99",
    ),
    "operations of others": (
        lambda: model_of([helper.make_node("Best", ["price"], ["y"], domain="mine")], X, Y),
        "an ONNX model that onnxruntime can load. Received: the ModelProto, and .*mine",
    ),
    "an output of three dimensions": (
        lambda: model_of(
            [helper.make_node("Unsqueeze", ["price", "last"], ["y"])],
            X,
            {"y": ["N", 1, 1]},
            [numpy_helper.from_array(np.array([2]), "last")],
        ),
        r"output 'y' .*\(N, k\) or \(N\).* Received: float32 \(2, 1, 1\) for 2 rows and \(3, 1, 1\)",
    ),
    "an output without columns": (
        lambda: model_of(
            [helper.make_node("Slice", ["price", "end", "end", "columns"], ["y"])],
            X,
            {"y": ["N", 0]},
            [
                numpy_helper.from_array(np.array([n]), name)
                for n, name in ((0, "end"), (1, "columns"))
            ],
        ),
        r"one column or more, .*Received: y float32 \[N, 0\]\. Leave it out",
    ),
    "an output for all rows": (
        lambda: model_of(
            [helper.make_node("ReduceSum", ["price"], ["y"], keepdims=1)], X, {"y": [1, 1]}
        ),
        r"Received: float32 \(1, 1\) for 2 rows and \(1, 1\) for 3 rows",
    ),
    "an output as wide as the batch": (
        lambda: model_of(
            [
                helper.make_node("Transpose", ["price"], ["across"]),
                helper.make_node("MatMul", ["price", "across"], ["y"]),
            ],
            X,
            {"y": ["N", "M"]},
        ),
        r"Received: float32 \(2, 2\) for 2 rows and \(3, 3\) for 3 rows",
    ),
    "an output in half precision": (
        lambda: model_of(
            [helper.make_node("Cast", ["price"], ["y"], to=TensorProto.FLOAT16)],
            X,
            Y,
            y=TensorProto.FLOAT16,
        ),
        r"output 'y' .*of a dtype among .*Received: float16\. Cast it",
    ),
    "an output of a dtype that numpy lacks": (
        lambda: model_of(
            [helper.make_node("Cast", ["price"], ["y"], to=TensorProto.BFLOAT16)],
            X,
            Y,
            y=TensorProto.BFLOAT16,
        ),
        r"output 'y' .*of a dtype among .*Received: bfloat16\. Cast it",
    ),
    "an output of a dtype that servers lack": (
        lambda: model_of(
            [helper.make_node("Cast", ["price"], ["y"], to=TensorProto.FLOAT8E4M3FN)],
            X,
            Y,
            opset=19,
            y=TensorProto.FLOAT8E4M3FN,
        ),
        r"output 'y' .*of a dtype among .*Received: float8e4m3fn\. Cast it",
    ),
    "an output twice": (
        _with_output_twice,
        "each output of the network once. Received: 'y' several times",
    ),
    "an output that no client can name": (
        lambda: model_of(
            [helper.make_node("Neg", ["price"], ["/last/Neg"])], X, {"/last/Neg": X["price"]}
        ),
        r"name of an output of letters, digits.*Received: '/last/Neg'",
    ),
    "an output named as an input": (
        lambda: model_of(
            [helper.make_node("Neg", ["x"], ["price"])], {"x": ["N", 1]}, {"price": ["N", 1]}
        ),
        "Tensor 'price' is made twice",
    ),
}


@pytest.mark.parametrize("case", NETWORKS)
def test_a_network_that_cannot_be_served(case, refused):
    make, reason = NETWORKS[case]
    columns = {"features": ["user", "price", "clicked"]} if "opset" in case else {}
    if "named as" in case:
        columns = {"x": "price"}
    refused_with(refused(make(), columns=columns, runtime="fused_onnx"), reason)


@pytest.mark.parametrize("runtime", ["onnx", "fused_onnx"])
def test_an_output_named_as_a_feature_is_refused_by_that_name(runtime, refused):
    own = Workflow((["price"] >> ops.Rename(name="label")) + ["clicked"]).fit(ROWS)
    network = matrix(1)
    text = refused(network, own, columns={"features": ["label"]}, runtime=runtime)
    refused_with(text, r"other names than its columns.* Received: .*'label'\. Rename one of them")


def test_an_output_of_keras_named_as_its_input_is_refused_by_that_name(refused):
    own = Workflow((["price"] >> ops.Rename(name="cost")) + ["clicked"]).fit(ROWS)
    cost = keras.Input((1,), name="cost")
    network = keras.Model({"cost": cost}, {"cost": cost * 2.0})
    refused_with(refused(network, own, runtime="fused_onnx"), "Received: .*'cost'. Rename one")


def test_an_output_of_keras_without_columns_is_refused(refused):
    price = keras.Input((1,), name="price")
    network = keras.Model({"price": price}, {"y": price, "none": price[:, :0]})
    refused_with(refused(network), r"one column or more, .*Received: none float32 \[N, 0\]")


def refused_with(text, reason):
    with pytest.raises(ValueError, match=reason):
        raise ValueError(text)


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        (
            ["user", "price"],
            r"Expected 3 columns for .*'features' .*float32 \[N, 3\].*: 2, user, price",
        ),
        (["user", "price", "age"], "takes 'age', which the workflow does not make.* user, genres"),
        (["user", "price", "price"], "price feeds two inputs.*ops.Rename"),
        (
            ["user", "price", "genres"],
            "Expected single values .*'features'.* Received: the list 'genres'",
        ),
        (["user", "price", "clicked"], "takes 'clicked', which is a label"),
        ("price", r"'price' of the network has 3 columns.*columns=\{input: \[column, \.\.\.\]\}"),
        ([], "or a list of the columns of a matrix. Received: "),
        ([3], "or a list of the columns of a matrix. Received: "),
    ],
)
def test_a_matrix_of_other_columns(columns, reason, workflow, tmp_path):
    with pytest.raises(ExportError, match=reason):
        export_ensemble(
            matrix(3),
            workflow,
            "clicks",
            tmp_path / "models",
            ["clicked"],
            serving=ServingOptions(**of_columns(columns)),
        )
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(
    ("operation", "more", "before"),
    [
        ("LinearRegressor", {"coefficients": [1.0, 2.0, 3.0], "intercepts": [0.0]}, {}),
        ("LinearRegressor", {"coefficients": [1.0] * 6, "targets": 2}, {"Cast": {"to": 1}}),
        (
            "LinearClassifier",
            {"coefficients": [1.0] * 9, "intercepts": [0.0] * 3},
            {"Imputer": {"imputed_value_floats": [0.0]}, "Normalizer": {"norm": "L2"}},
        ),
    ],
    ids=["linear", "behind a cast", "behind others"],
)
def test_a_model_that_was_trained_on_more_columns(operation, more, before, refused):
    """As skl2onnx converts it with FloatTensorType([None, None]); onnxruntime answers fewer columns."""
    classes = {"classlabels_ints": [0, 1, 2]} if operation == "LinearClassifier" else {}
    outputs = ["label", "y"] if classes else ["y"]
    steps = {**before, operation: {**more, **classes}}
    places = ["features", *list(steps)[:-1]]
    nodes = [
        helper.make_node(
            kind,
            [place],
            outputs if kind == operation else [kind],
            domain="" if kind == "Cast" else "ai.onnx.ml",
            **settings,
        )
        for place, (kind, settings) in zip(places, steps.items(), strict=True)
    ]
    network = model_of(nodes, {"features": ["N", None]}, {"y": ["N", "K"]}, ml=1)
    refused_with(
        refused(network, columns={"features": ["user", "price"]}),
        r"Expected 3 columns or more for the input 'features' .*asks for column 2, .*: 2, user, price",
    )


@pytest.mark.parametrize("columns", [["a", "b"], ["a", "b", "c", "d"]])
def test_an_imputer_that_was_trained_on_other_columns(columns, refused):
    """onnxruntime takes the first value for each null of all columns, if the values are not as many."""
    values = {"imputed_value_floats": [1.0, 2.0, 3.0], "replaced_value_float": float("nan")}
    node = helper.make_node("Imputer", ["features"], ["y"], domain="ai.onnx.ml", **values)
    network = model_of([node], {"features": ["N", None]}, {"y": ["N", "K"]}, ml=1)
    own = Workflow([*"abcd", "clicked"]).fit({name: [0.0, 1.0] for name in [*"abcd", "clicked"]})
    refused_with(
        refused(network, own, columns={"features": columns}),
        rf"Expected 3 columns for the input 'features' .*imputer.*Received: {len(columns)}, a, b",
    )


def test_columns_of_a_matrix_of_any_width_are_counted_by_the_network(refused):
    """As a linear model of skl2onnx that was converted with FloatTensorType([None, None])."""
    network = matrix(3)
    network.graph.input[0].type.tensor_type.shape.dim[1].Clear()
    text = refused(network, columns={"features": ["user", "price"]})
    refused_with(
        text, r"inputs features float32 \[N, 2\] of user, price\. Received: .*as many columns as it"
    )


def test_a_matrix_without_columns_is_told_which_there_are(refused):
    refused_with(
        refused(matrix(3)),
        r"'features' .* has 3 columns; .* none of this name.*columns=\{input: \[column.*makes user, genres",
    )


@pytest.mark.parametrize("runtime", ["onnx", "fused_onnx"])
@pytest.mark.parametrize("kind", [TensorProto.BOOL, TensorProto.INT64, TensorProto.STRING])
def test_whole_numbers_and_texts_that_depend_on_other_rows(kind, runtime, refused):
    """Whether a price is the highest one of the request."""
    nodes = [
        helper.make_node("ReduceMax", ["price", "rows"], ["most"]),
        helper.make_node("Equal", ["price", "most"], ["is_most"]),
        helper.make_node("Cast", ["is_most"], ["y"], to=kind),
    ]
    rows = numpy_helper.from_array(np.array([0]), "rows")
    network = model_of(nodes, X, Y, [rows], y=kind)
    refused_with(
        refused(network, runtime=runtime, max_batch_size=8),
        r"each row of a request by itself.*max_batch_size=8 .*golden row .* alone, and another",
    )


def test_a_network_that_is_quantized_by_the_request(refused):
    """As `quantize_dynamic` writes it: the scale is that of all rows."""
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["price"], ["small", "scale", "zero"]),
        helper.make_node("DequantizeLinear", ["small", "scale", "zero"], ["y"]),
    ]
    refused_with(
        refused(model_of(nodes, X, Y), max_batch_size=8),
        "each row of a request by itself.*quantize_static in place of quantize_dynamic",
    )


def test_int8_does_not_hold_every_id(refused):
    network = model_of(
        [helper.make_node("Cast", ["user"], ["y"], to=TensorProto.FLOAT)],
        {"user": ["N", 1]},
        Y,
        dtype=TensorProto.INT8,
        y=TensorProto.FLOAT,
    )
    refused_with(
        refused(network), "'user' has values from 0 to 302, .* an input of the network of int8"
    )


def test_a_table_smaller_than_the_vocabulary(refused):
    nodes = [
        helper.make_node("Gather", ["table", "user"], ["rows"]),
        helper.make_node("Squeeze", ["rows", "last"], ["y"]),
    ]
    constants = {"table": np.ones((10, 1), np.float32), "last": np.array([2])}
    network = model_of(
        nodes,
        {"user": ["N", 1]},
        Y,
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
        dtype=TensorProto.INT64,
        y=TensorProto.FLOAT,
    )
    refused_with(
        refused(network), "Expected an embedding of 303 rows or more for 'user'.*Received: .*302"
    )


@pytest.mark.parametrize("runtime", ["tensorflow", "fused_tensorflow"])
def test_runtimes_of_tensorflow_are_refused(runtime, refused):
    refused_with(
        refused(named(), runtime=runtime),
        f"Expected runtime among onnx, fused_onnx, .* Received: '{runtime}'",
    )


def test_a_dropout_that_is_off(workflow, tmp_path):
    """With or without the operand that says so, a weight or the result of an operation."""
    for n, more in enumerate(([], ["ratio", "off"])):
        node = helper.make_node("Dropout", ["price", *more], ["x"])
        network = in_training(node, RATIO, ("off", False))
        export_ensemble(network, workflow, f"clicks_{n}", tmp_path / "models", ["clicked"])
    for tensor in [*network.graph.initializer]:
        made = helper.make_node("Constant", [], [tensor.name], value=tensor)
        network.graph.node.insert(0, made)
    del network.graph.initializer[:]
    export_ensemble(network, workflow, "clicks_2", tmp_path / "models", ["clicked"])


def test_a_sequence_of_tensors_is_no_zipmap(refused):
    """As skl2onnx writes the probabilities of a MultiOutputClassifier."""
    make = helper.make_node("SequenceConstruct", ["user", "user"], ["y"])
    network = model_of([make], {"user": ["N", 1]}, {"y": None})
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, ["N", 1])
    network.graph.output[0].type.CopyFrom(helper.make_sequence_type_proto(kind))
    text = refused(network)
    refused_with(text, "'y' of the network as a tensor. Received: a sequence of tensors. .*del ")
    assert "zipmap" not in text.lower()


def test_an_encoder_whose_meaning_has_changed(refused):
    """One graph has one version of its operations; two have two."""
    refused_with(
        refused(encoder(1), runtime="fused_onnx"),
        r"its versions 1, the network's, and 4, .*Received: LabelEncoder\. .*runtime=\"onnx\"",
    )


def test_no_runtime_of_tensorflow_is_advised(refused):
    """Preprocessing that ONNX cannot compute."""
    rows = {"user": ["a\0b", "c"], "clicked": [0, 1]}
    own = Workflow((["user"] >> ops.Categorify()) + ["clicked"]).fit(rows)
    network = model_of(
        [helper.make_node("Neg", ["user"], ["y"])], {"user": ["N", 1]}, Y, dtype=TensorProto.INT64
    )
    text = refused(network, own)
    refused_with(text, "'user' without NUL .*Remove it from the data\\.$")
    hashed = Workflow((["user"] >> ops.HashBucket(9)) + ["clicked"]).fit(rows)
    text = refused(network, hashed)
    assert "tensorflow" not in text
    assert "hash" in text


@pytest.mark.parametrize(
    ("content", "received"),
    [(None, "no such file"), (b"no model", "Received: "), (b"", "Received: ")],
)
def test_a_file_that_is_no_model(content, received, refused, workflow, tmp_path):
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    refused_with(refused(path), f"Expected an ONNX model in .*model.onnx.*{received}")
    with pytest.raises(ClientError, match="Expected an ONNX model in"):
        check_parity(None, workflow, path, None)


def test_a_keras_matrix_is_joined_in_the_network(refused):
    inputs = keras.Input((2,), name="features")
    network = keras.Model(inputs, keras.layers.Dense(1, name="y")(inputs))
    refused_with(
        refused(network, **of_columns(["user", "price"])),
        "one column for the input 'features' .*Received: user, price.*Concatenate",
    )
