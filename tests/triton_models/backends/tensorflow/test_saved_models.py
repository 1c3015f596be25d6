"""SavedModels as others write them, answered as TensorFlow answers: of both its versions, with files."""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf import saved_model_pb2

v1 = tf.compat.v1
WORDS = np.array([[b"blue"], [b"red"], [b"unknown"]], object)
# 10 * the word's line in the file; -1 is its place where the file lacks it.
ANSWER = [[10], [20], [-10]]


def lookup(file):
    """Line numbers of a file's words."""
    key, value = tf.lookup.TextFileIndex.WHOLE_LINE, tf.lookup.TextFileIndex.LINE_NUMBER
    initializer = tf.lookup.TextFileInitializer(file, tf.string, key, tf.int64, value)
    return tf.lookup.StaticHashTable(initializer, -1)


def of_tensorflow_2(folder, file):
    class Codes(tf.Module):
        def __init__(self):
            super().__init__()
            self.table, self.ten = lookup(file), tf.Variable(10, dtype=tf.int64)

        @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.string, "word")])
        def serve(self, word):
            return {"code": self.table.lookup(word) * self.ten}

    model = Codes()
    tf.saved_model.save(model, str(folder), model.serve)


def as_text(folder, file):
    of_tensorflow_2(folder, file)
    binary = folder / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(binary.read_bytes())
    (folder / "saved_model.pbtxt").write_text(text_format.MessageToString(saved))
    binary.unlink()


def of_tensorflow_1(folder, file):
    """With its assets and its initialiser in collections, and a variable that is no resource."""
    with tf.Graph().as_default(), v1.Session() as session:
        path = v1.convert_to_tensor(file)
        v1.add_to_collection(v1.GraphKeys.ASSET_FILEPATHS, path)
        word = v1.placeholder(tf.string, [None, 1], "word")
        ten = v1.Variable(np.int64(10), use_resource=False)
        code = lookup(path).lookup(word) * ten
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        builder = v1.saved_model.Builder(str(folder))
        builder.add_meta_graph_and_variables(
            session,
            ["serve"],
            {
                "serving_default": v1.saved_model.predict_signature_def(
                    {"word": word}, {"code": code}
                )
            },
            assets_collection=v1.get_collection(v1.GraphKeys.ASSET_FILEPATHS),
            main_op=v1.tables_initializer(),
            strip_default_attrs=True,
        )
        builder.save()


@pytest.mark.parametrize("save", [of_tensorflow_2, as_text, of_tensorflow_1])
def test_a_table_is_read_from_its_file(save, without_server, tmp_path):
    file = tmp_path / "words.txt"
    file.write_text("yellow\nblue\nred\n")
    save(tmp_path / "model.savedmodel", str(file))
    file.unlink()
    model = without_server("tensorflow/model").TritonPythonModel()
    model.load(tmp_path, {"name": "codes"}, None)
    assert model.call({"word": WORDS})["code"].tolist() == ANSWER
    loaded = tf.saved_model.load(str(tmp_path / "model.savedmodel"))
    answered = loaded.signatures["serving_default"](word=tf.constant(WORDS))
    assert answered["code"].numpy().tolist() == ANSWER


def test_a_model_of_tensorflow_1_without_tables_takes_any_rank(without_server, tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, None, "x")
        twice = x * v1.Variable(2.0, use_resource=False)
        session.run(v1.global_variables_initializer())
        v1.saved_model.simple_save(session, str(tmp_path / "twice"), {"x": x}, {"y": twice})
    model = without_server("tensorflow/model").TritonPythonModel()
    model.load(tmp_path, {"name": "twice", "default_model_filename": "twice"}, None)
    assert model.inputs["x"].shape is None
    for array in (np.array(3, np.float32), np.array([[[1, 2]]], np.float32)):
        assert model.call({"x": array})["y"].tolist() == (array * 2).tolist()


@pytest.mark.parametrize("text", [b"", b"\xff\xff\xff"], ids=["empty", "damaged"])
def test_a_file_that_is_no_saved_model_is_refused(text, without_server, tmp_path):
    backend = without_server("tensorflow/model")
    (tmp_path / "model.savedmodel").mkdir()
    (tmp_path / "model.savedmodel" / "saved_model.pb").write_bytes(text)
    with pytest.raises(backend.ConfigError, match="Expected a SavedModel with the tag 'serve'"):
        backend.TritonPythonModel().load(tmp_path, {"name": "codes"}, None)
