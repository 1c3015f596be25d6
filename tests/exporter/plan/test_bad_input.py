"""A pipeline that cannot be served is refused before a byte is written, with a text that says what to do."""

import keras
import pytest
from small_export import rows, tree

from exporter import ExportError, export_tensorflow_ensemble
from workflow import Workflow, ops
from workflow.ops.difference_lag import DifferenceLag

IDS = ["userId", "genres"] >> ops.Categorify()
PRICE = ["price"] >> ops.FillMissing(0.0) >> ops.Normalize()


def network(**inputs):
    """A network that takes inputs of some dtypes; `x=("int64", 3)` has three columns."""
    tensors = {}
    for name, spec in inputs.items():
        dtype, width = spec if isinstance(spec, tuple) else (spec, 1)
        tensors[name] = keras.Input((width,), name=name, dtype=dtype)
    floats = [keras.ops.cast(t, "float32") for t in tensors.values() if t.dtype != "string"]
    joined = keras.layers.Concatenate()(floats) if len(floats) > 1 else floats[0]
    return keras.Model(tensors, keras.layers.Dense(1, name="score")(joined))


def reshaped(batch=False, **inputs):
    """A network of one input of any shape."""
    ((name, shape),) = inputs.items()
    shape = {"batch_shape": shape} if batch else {"shape": shape}
    tensor = keras.Input(**shape, name=name)
    axes = tuple(range(1, len(tensor.shape)))
    return keras.Model({name: tensor}, {"y": keras.ops.sum(tensor, axes, keepdims=True)})


class Subclassed(keras.Model):
    def call(self, x):
        return x["userId"]


def fitted(output, data=None):
    return Workflow(output).fit(rows() if data is None else data)


def copied(column, name):
    """A column under another name, by way of a join."""
    table = {column: [1, 3, 4, 5], name: [1.0, 3.0, 4.0, 5.0]}
    keys = [column] >> ops.LambdaOp(lambda c: c.cast("int64"))
    return (keys >> ops.JoinExternal(table, on=column))[name] >> ops.FillMissing(0.0)


def joined():
    return ["userId"] >> ops.JoinExternal({"userId": [1], "weight": [0.5]}, on="userId")


REFUSED = {
    "an input that the workflow does not make": (
        lambda: (network(userId="int32", age="int32"), fitted(IDS)),
        "takes 'age', which the workflow does not make. It makes userId, genres",
    ),
    "not fitted": (lambda: (network(userId="int32"), Workflow(IDS)), "not fitted"),
    "a label": (
        lambda: (network(rating="float32"), fitted(["rating"] >> ops.LambdaOp(lambda r: r + 1))),
        "'rating', which is a label",
    ),
    "a feature of a label": (
        lambda: (
            network(price="float64", stars="float32"),
            fitted((["price"] >> ops.FillMissing(0.0)) + copied("rating", "stars")),
        ),
        "lacks. Received: 'stars', computed from the label rating. Train without it",
    ),
    "a list as a scalar": (
        lambda: (network(genres="int64"), fitted(IDS)),
        "'genres' is a list in the workflow",
    ),
    "a scalar as a list": (
        lambda: (network(userId__values="int64", userId__nnzs="int64"), fitted(IDS)),
        "'userId' is one value a row in the workflow",
    ),
    "half a list": (
        lambda: (network(genres__values="int64"), fitted(IDS)),
        "genres__values and genres__nnzs",
    ),
    "row lengths that are floats": (
        lambda: (network(genres__values="int64", genres__nnzs="float32"), fitted(IDS)),
        "Row lengths are whole numbers",
    ),
    "three columns for one": (lambda: (network(userId=("int64", 3)), fitted(IDS)), "has 3 columns"),
    "a float as an integer": (
        lambda: (network(price="int32"), fitted(PRICE)),
        "float32, and int32 holds no fractions.*an input of the network of int32",
    ),
    "an integer as a string": (
        lambda: (network(userId="string", price="float32"), fitted(IDS + PRICE)),
        "int64 and cannot become string",
    ),
    "ids that do not fit": (
        lambda: (
            network(clicks="int8"),
            fitted(["clicks"] >> ops.Categorify(), {"clicks": range(300)}),
        ),
        "values from 0 to 302, which int8 does not hold exactly; int16",
    ),
    "null whatever is sent": (
        lambda: (network(weight="float32"), fitted(joined())),
        "'weight' can be null.*FillMissing",
    ),
    "what one row cannot tell": (
        lambda: (
            network(price_difference_lag_1="float32"),
            fitted(["price"] >> DifferenceLag("userId") >> ops.FillMissing(0.0)),
        ),
        "DifferenceLag over price, userId needs more than one row",
    ),
    "an input that has no name": (
        lambda: (
            keras.Model(price := keras.Input((1,)), keras.layers.Dense(1)(price)),
            fitted(PRICE),
        ),
        r"'keras_tensor(_\d+)?', which the .*It makes price\. Give the inputs names: keras\.Input",
    ),
    "three dimensions": (
        lambda: (reshaped(userId=(2, 3)), fitted(IDS)),
        r"'userId' of shape \(None, k\).*Received: \(None, 2, 3\)",
    ),
    "one dimension": (
        lambda: (reshaped(userId=()), fitted(IDS)),
        r"Received: \(None,\)\. Use keras\.Input\(shape=\(k,\)\)",
    ),
    "any number of columns": (
        lambda: (reshaped(userId=(None,)), fitted(IDS)),
        r"Received: \(None, None\)",
    ),
    "a fixed number of rows": (
        lambda: (reshaped(userId=(4, 1), batch=True), fitted(IDS)),
        r"any number of rows.*Received: \(4, 1\)",
    ),
    "a dtype that Triton has not in numpy": (
        lambda: (network(price="bfloat16"), fitted(PRICE)),
        "'price' of a dtype among .*Received: bfloat16",
    ),
    "a subclass without a call signature": (
        lambda: (Subclassed(), fitted(IDS)),
        r"Received: <Subclassed.*Wrap it: keras\.Model\(inputs, model\(inputs\)\)",
    ),
    "no model at all": (
        lambda: (7, fitted(IDS)),
        "Expected a Keras model, .*an .onnx file. Received: 7 of int",
    ),
    "a model without inputs": (
        lambda: (keras.Sequential([keras.layers.Dense(1)]), fitted(IDS)),
        "functional model",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(case, export, tmp_path):
    make, reason = REFUSED[case]
    model, workflow = make()
    labels = ["rating"] if "rating" in workflow.input_schema else []
    with pytest.raises(ExportError, match=reason):
        export(model, workflow, labels=labels)
    assert not (tmp_path / "models").exists()


def test_outputs_need_names(export, workflow):
    inputs = keras.Input((1,), name="userId", dtype="int32")
    floats = keras.ops.cast(inputs, "float32")
    model = keras.Model(
        {"userId": inputs}, [keras.layers.Dense(1)(floats), keras.layers.Dense(1)(floats)]
    )
    with pytest.raises(ExportError, match="Give them name="):
        export(model, workflow)


@pytest.mark.parametrize(
    "arguments",
    [
        {"nvtabular_backend": "nvtabular"},
        {"cats": ["userId"]},
        {"conts": ["price"]},
    ],
)
def test_arguments_of_the_past_are_explained(arguments, export):
    with pytest.raises(ExportError, match=r"Expected nvtabular_backend|are not needed"):
        export(**arguments)


def test_a_label_that_is_no_column(export):
    with pytest.raises(ExportError, match="Label 'stars' is not a column of the workflow"):
        export(labels=["stars"])


@pytest.mark.parametrize(
    ("argument", "value", "reason"),
    [
        ("workflow", "workflow", "workflow as a fitted Workflow; .* Received: 'workflow'"),
        ("model_path", None, "the model repository as a path. Received: None"),
        ("model_path", "", "the model repository as a path. Received: ''"),
        ("label_columns", "rating", r'labels as a list of names such as \["rating"\]. .*: .rating'),
        ("label_columns", 3, "the labels as a list of names"),
        ("sparse_max", 3, "sparse_max as widths by column"),
        (
            "serving",
            {"runtime": "onnx"},
            "serving as ServingOptions. Received: {'runtime': 'onnx'}",
        ),
    ],
)
def test_arguments_of_another_kind(argument, value, reason, model, workflow, tmp_path):
    arguments = {"workflow": workflow, "name": "movies", "model_path": tmp_path / "models"}
    with pytest.raises(ExportError, match=f"Expected .*{reason}"):
        export_tensorflow_ensemble(model, **arguments | {argument: value})
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize("name", ["movies_tf", "movies"])
def test_a_file_in_the_place_of_a_model(name, export, tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / name).write_text("mine")
    with pytest.raises(ExportError, match=f"Expected to be able to write to .*{name}"):
        export()
    assert list(tree(tmp_path)) == ["models", f"models/{name}"]
    assert (tmp_path / "models" / name).read_text() == "mine"


def test_a_name_too_long_for_a_folder(export, tmp_path):
    with pytest.raises(ExportError, match=r"Expected to be able to write to .*too long"):
        export(name="m" * 300)
    assert list(tree(tmp_path)) == []


def test_a_repository_that_is_a_file(export, tmp_path):
    path = tmp_path / "models"
    path.write_text("mine")
    with pytest.raises(ExportError, match="Received: the file"):
        export(path=path)
    assert path.read_text() == "mine"


def test_a_repository_that_cannot_be_written(export, tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "models", "/proc/models"):
        with pytest.raises(ExportError, match="Expected to be able to write to"):
            export(path=path)
    assert list(tree(tmp_path)) == ["file"]


def test_a_version_that_exists_is_left_alone(export, tmp_path):
    export()
    before = tree(tmp_path)
    with pytest.raises(ExportError, match=r"Version 1 exists already: .*Export the next version"):
        export(version=1)
    assert tree(tmp_path) == before
