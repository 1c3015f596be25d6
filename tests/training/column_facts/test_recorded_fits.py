"""Digests of fits beside a SavedModel: written for a recorded model alone, and read with care."""

import pytest
import tensorflow as tf

from training import TrainingError, models, save_model
from training.column_facts.recorded_fits import read_fits
from training.layers.records_fits import fits_of_model, record_fits


@pytest.fixture
def model():
    return models.mlp({"user": (9, 4)}, hidden=(2,))


def test_a_saved_model_has_them_and_is_loaded_by_tensorflow(model, tmp_path):
    save_model(model, tmp_path / "plain")
    assert not (tmp_path / "plain" / "assets.extra").exists()
    assert read_fits(tmp_path / "plain") == {}
    record_fits(model, {"user": "9f", "age": "77"})
    assert fits_of_model(model) == {"user": "9f", "age": "77"}
    save_model(model, tmp_path / "recorded")
    assert read_fits(tmp_path / "recorded") == {"user": "9f", "age": "77"}
    loaded = tf.saved_model.load(str(tmp_path / "recorded")).signatures["serving_default"]
    assert loaded(user=tf.constant([[3]]))["output"].shape == (1, 1)


@pytest.mark.parametrize("text", ["", "[]", '{"user": 3}', '"user"'])
def test_a_damaged_file_is_named(text, tmp_path):
    (tmp_path / "assets.extra").mkdir()
    (tmp_path / "assets.extra" / "fit_digests.json").write_text(text)
    with pytest.raises(TrainingError, match=r"fit's digest by column in .*fit_digests\.json"):
        read_fits(tmp_path)
