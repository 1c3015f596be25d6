"""A version beside another, and what an export leaves untouched."""

import keras
import numpy as np
import pytest
from small_export import make_workflow, rows, tree

from exporter import ExportError, verify
from exporter.repository.config_pbtxt import parse_config
from workflow import Workflow, ops

MODELS = ("movies_nvt", "movies_tf", "movies")


def config(repository, model):
    return parse_config((repository / model / "config.pbtxt").read_text())


def test_version_2_beside_version_1(export, tmp_path):
    export()
    first = {k: v for k, v in tree(tmp_path / "models").items() if "/1" in k}
    export(version=2)
    after = tree(tmp_path / "models")
    assert {k: v for k, v in after.items() if "/1" in k} == first
    repository = tmp_path / "models"
    for model in MODELS:
        assert (repository / model / "2").is_dir()
    assert list(config(repository, "movies").version_policy.specific.versions) == [2]
    assert [s.model_version for s in config(repository, "movies").ensemble_scheduling.step] == [
        2,
        2,
    ]
    for step in MODELS[:2]:
        assert list(config(repository, step).version_policy.specific.versions) == [1, 2]
    assert verify(repository, "movies", 1)
    assert verify(repository, "movies") == verify(repository, "movies", 2)


def test_an_older_version_of_another_shape_is_not_loadable(export, tmp_path, workflow):
    export()
    inputs = {"userId": keras.Input((1,), name="userId", dtype="int64")}
    other = keras.Model(
        inputs, keras.layers.Dense(1, name="other")(keras.ops.cast(inputs["userId"], "float32"))
    )
    export(other, workflow, version=2)
    for model in MODELS:
        assert list(config(tmp_path / "models", model).version_policy.specific.versions) == [2]


def test_neither_model_nor_workflow_is_changed(export, model, workflow, tmp_path):
    workflow.save(tmp_path / "before")
    weights = [w.copy() for w in model.get_weights()]
    settings, dtypes = model.get_config(), dict(workflow.output_dtypes)
    export()
    workflow.save(tmp_path / "after")
    assert tree(tmp_path / "before") == tree(tmp_path / "after")
    assert model.get_config() == settings
    assert dict(workflow.output_dtypes) == dtypes
    for before, after in zip(weights, model.get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)


def test_an_older_version_that_knows_other_nulls_is_not_loadable(export, tmp_path):
    """One config counts for all versions, and it says which values mean null."""

    def pipeline(price):
        ids = ["userId", "genres"] >> ops.Categorify()
        return Workflow(ids + (price >> ops.LambdaOp(lambda p: p.cast("float32")))).fit(rows())

    first = export(pipeline=pipeline(["price"] >> ops.FillMissing(0.0)), labels=[])
    second = export(pipeline=pipeline(["price"]), labels=[], version=2)
    assert first.plan.steps[0].inputs == second.plan.steps[0].inputs
    versions = config(tmp_path / "models", "movies_nvt").version_policy.specific.versions
    assert list(versions) == [2]


def test_an_older_version_that_was_removed_is_not_named(export, tmp_path):
    import shutil

    export()
    for model in MODELS:
        shutil.rmtree(tmp_path / "models" / model / "1")
    export(version=2)
    assert list(config(tmp_path / "models", "movies_nvt").version_policy.specific.versions) == [2]


def test_every_config_carries_the_generation_and_other_content_has_another(export, tmp_path):
    one = export()
    for model in MODELS:
        assert config(one.repository, model).parameters["generation"].string_value == one.generation
    refitted = make_workflow().fit(rows().reverse().head(3))
    other = export(pipeline=refitted, path=tmp_path / "other")
    assert other.generation != one.generation


def test_a_config_that_cannot_be_read_is_named(export, tmp_path):
    export()
    path = tmp_path / "models" / "movies_tf" / "config.pbtxt"
    for damaged in (b"nme: 1", b"\xff"):
        path.write_bytes(damaged)
        before = tree(tmp_path)
        with pytest.raises(ExportError, match=r"Expected a model's config in .*movies_tf"):
            export(version=2)
        assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["movies_nvt", "movies_tf"])
def test_an_ensemble_may_not_take_the_place_of_another_ones_step(name, export, tmp_path):
    export()
    before = tree(tmp_path)
    with pytest.raises(ExportError, match=f"Expected {name} to be what clients ask"):
        export(name=name, version=2)
    assert tree(tmp_path) == before


def test_the_files_are_readable_for_a_server_of_another_user(export):
    report = export()
    for path in report.repository.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644)
