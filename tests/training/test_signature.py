import keras
import pytest

from training import TensorSpec, TrainingError, model_signature


def dense(units=1, **options):
    return keras.layers.Dense(units, **options)


def functional(output, *, name="x", shape=(3,), **options):
    inputs = keras.Input(shape, name=name, **options)
    return keras.Model(inputs, output(inputs))


def test_nested_inputs_keep_their_names_and_dtypes(model):
    signature = model_signature(model)
    assert TensorSpec("genres__values", "int64", (None, 1)) in signature.inputs
    assert TensorSpec("userId", "int32", (None, 1)) in signature.inputs
    assert signature.outputs == (TensorSpec("output", "float32", (None, 1)),)
    assert str(signature).endswith("userId int32 [N, 1] -> output float32 [N, 1]")


def test_a_dictionary_of_outputs_is_named_by_its_keys():
    model = functional(lambda x: {"view": dense(2)(x), "click": dense(1, name="head")(x)})
    assert model_signature(model).outputs == (
        TensorSpec("click", "float32", (None, 1)),
        TensorSpec("view", "float32", (None, 2)),
    )


def test_a_list_of_named_outputs_is_named_by_its_layers():
    model = functional(lambda x: [dense(name="view")(x), dense(name="click")(x)])
    assert [spec.name for spec in model_signature(model).outputs] == ["view", "click"]


def test_a_sequential_model_with_an_input():
    model = keras.Sequential([keras.Input((3,), name="x"), dense(name="score")])
    assert str(model_signature(model)) == "x float32 [N, 3] -> score float32 [N, 1]"


def test_a_single_output_that_keras_named_is_accepted():
    assert model_signature(functional(dense())).outputs[0].name.startswith("dense")


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = dense()

    def call(self, inputs):
        return {"score": self.dense(inputs)}


def test_a_subclassed_model_is_refused_and_served_when_wrapped():
    subclassed = Subclassed()
    with pytest.raises(TrainingError, match=r"Subclassed.*Wrap it: keras.Model"):
        model_signature(subclassed)
    wrapped = functional(subclassed)
    assert str(model_signature(wrapped)) == "x float32 [N, 3] -> score float32 [N, 1]"


def test_a_sequential_model_without_an_input_is_refused():
    with pytest.raises(TrainingError, match="with an Input"):
        model_signature(keras.Sequential([dense()]))


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (lambda x: [dense()(x), dense()(x)], "name for each.*Received: layers that Keras named"),
        (lambda x: [(head := dense(name="head"))(x), head(x)], "distinct.*Received: head"),
        (lambda x: {"a": [dense()(x), dense()(x)]}, "one tensor for each key"),
    ],
)
def test_outputs_without_names_of_their_own(outputs, message):
    with pytest.raises(TrainingError, match=message):
        model_signature(functional(outputs))


@pytest.mark.parametrize(
    "name", ["user-id", "user id", "1st", "_x", "Größe", "class", "a.b", "self"]
)
def test_an_input_name_that_tensorflow_would_change_is_refused(name):
    with pytest.raises(TrainingError, match=f"name of an input.*Received: '{name}'.*Rename"):
        model_signature(functional(dense(), name=name))


def test_all_inputs_that_tensorflow_would_change_are_named():
    inputs = {name: keras.Input((1,), name=name) for name in ("商品", "user", "a b")}
    model = keras.Model(inputs, keras.layers.Add(name="sum")(list(inputs.values())))
    with pytest.raises(
        TrainingError, match=r"each input of letters.*Received: 'a b', '商品'\. Rename them in"
    ):
        model_signature(model)


def test_inputs_whose_names_differ_in_case_alone_are_refused():
    """TensorFlow would fail on them, with a text about positional arguments."""
    inputs = {name: keras.Input((1,), name=name) for name in ("userId", "userid")}
    model = keras.Model(inputs, keras.layers.Add(name="sum")(list(inputs.values())))
    with pytest.raises(TrainingError, match=r"distinct.*case alone. Received: userId, userid"):
        model_signature(model)


@pytest.mark.parametrize("name", ["a/b", "a b", "", "a:0"])
def test_an_output_name_that_triton_would_refuse_is_refused(name):
    with pytest.raises(TrainingError, match=f"name of an output.*Received: '{name}'"):
        model_signature(functional(lambda x: {name: dense()(x)}))


@pytest.mark.parametrize("shape", [(), (None,), (2, 3)])
def test_an_input_of_another_shape_is_refused(shape):
    model = functional(keras.layers.Identity(name="output"), shape=shape)
    with pytest.raises(TrainingError, match=r"input 'x' of shape \(None, k\).*Received: \(None"):
        model_signature(model)


def test_an_input_of_a_fixed_number_of_rows_is_refused():
    with pytest.raises(TrainingError, match=r"Received: \(32, 3\)"):
        model_signature(functional(dense(), shape=(3,), batch_size=32))


def test_an_output_that_is_no_matrix_is_refused():
    model = functional(keras.layers.Reshape((3, 1), name="cube"))
    with pytest.raises(TrainingError, match=r"output 'cube'.*Received: \(None, 3, 1\).*Reshape"):
        model_signature(model)


def test_a_sparse_input_is_refused():
    with pytest.raises(TrainingError, match=r"input 'x' to be dense.*EmbeddingBag"):
        model_signature(functional(dense(), sparse=True))


def test_a_dtype_that_cannot_be_served_is_refused():
    model = functional(dense(name="half", dtype="mixed_float16"))
    with pytest.raises(TrainingError, match=r"output 'half'.*Received: float16.*dtype='float32'"):
        model_signature(model)


@pytest.mark.filterwarnings("ignore:When providing")
@pytest.mark.parametrize("names", [("away", "home"), (None, None)])
def test_an_input_under_the_name_of_another_is_refused(names):
    """Keras trains by the keys, and a server would be asked by the names."""
    inputs = {
        key: keras.Input((1,), name=name) for key, name in zip(("home", "away"), names, strict=True)
    }
    model = keras.Model(inputs, keras.layers.Dense(1, name="y")(inputs["home"] - inputs["away"]))
    with pytest.raises(TrainingError, match=r"Received: '\w+' as 'home'\. Write .*name='home'"):
        model_signature(model)
    renamed = {tensor.name: key for key, tensor in model.input.items()}
    assert {spec.name for spec in model_signature(model, renamed).inputs} == {"home", "away"}


def test_outputs_within_outputs_are_refused():
    x = keras.Input((1,), name="x")
    model = keras.Model(x, {"a": {"b": keras.layers.Dense(1)(x)}, "c": keras.layers.Dense(1)(x)})
    with pytest.raises(TrainingError, match="one tensor for each key"):
        model_signature(model)
