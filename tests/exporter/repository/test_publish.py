"""A version beside another, the way back, and what an export leaves untouched."""

import errno
import fcntl
import json
import os
import shutil
from functools import cache
from pathlib import Path

import keras
import pytest
from small_export import after_rollback, make_workflow, rows, tree

from exporter import ExportError, ServingOptions, rollback, verify
from exporter.plan.config_pbtxt import parse_config
from exporter.repository import publish
from exporter.repository.versions import recover_repository
from workflow import Workflow, ops
from workflow.files.durable import sync_tree

MODELS = ("movies_nvt", "movies_tf", "movies")


def config(repository, model):
    return parse_config((repository / model / "config.pbtxt").read_text())


@pytest.fixture
def export(written_once):
    return written_once


@cache
def other_network():
    """A network of fewer inputs than that of the fixtures."""
    inputs = {"userId": keras.Input((1,), name="userId", dtype="int64")}
    number = keras.ops.cast(inputs["userId"], "float32")
    return keras.Model(inputs, keras.layers.Dense(1, name="other")(number))


def steps_of(repository):
    return [
        (s.model_name, s.model_version)
        for s in config(repository, "movies").ensemble_scheduling.step
    ]


def test_the_config_that_clients_are_answered_by_is_the_one_file_that_changes(export, tmp_path):
    repository = tmp_path / "models"
    export()
    first = tree(repository)
    export(version=2)
    after = tree(repository)
    assert {path for path in first if after[path] != first[path]} == {"movies/config.pbtxt"}
    assert {path.split("/")[1] for path in after.keys() - first.keys()} == {"2"}
    assert steps_of(repository) == [("movies_nvt", 2), ("movies_tf", 2)]
    assert list(config(repository, "movies").version_policy.specific.versions) == [2]
    assert all(config(repository, step).version_policy.HasField("all") for step in MODELS[:2])
    assert verify(repository, "movies", 1)
    assert verify(repository, "movies") == verify(repository, "movies", 2)


def test_a_step_of_another_config_becomes_a_model_of_its_own(export, tmp_path, workflow):
    repository = tmp_path / "models"
    export()
    first = tree(repository)
    report = export(other_network(), workflow, version=2)
    after = tree(repository)
    assert {path for path in first if after[path] != first[path]} == {"movies/config.pbtxt"}
    names = [f"movies_nvt_{report.generation}", f"movies_tf_{report.generation}"]
    assert steps_of(repository) == [(name, 2) for name in names]
    assert config(repository, "movies").parameters["preprocessing"].string_value == names[0]
    assert [model.name for model in report.plan.models] == [*names, "movies"]
    export(other_network(), workflow, version=3)
    assert steps_of(repository) == [(name, 3) for name in names]
    assert verify(repository, "movies") == verify(repository, "movies", 3)


def test_two_versions_are_kept_and_older_ones_are_removed_with_their_steps(
    export, tmp_path, workflow
):
    repository = tmp_path / "models"
    export()
    other = export(other_network(), workflow, version=2)
    assert {path.name for path in repository.iterdir()} > {"movies_nvt", "movies_tf"}
    export(other_network(), workflow, version=5)
    names = {f"movies_nvt_{other.generation}", f"movies_tf_{other.generation}", "movies"}
    assert {path.name for path in repository.iterdir()} == names
    for name in names:
        assert {p.name for p in (repository / name).iterdir()} - {"config.pbtxt", "warmup"} == {
            "2",
            "5",
        }
    for version in (2, 5):
        assert verify(repository, "movies", version)
    with pytest.raises(ExportError, match="Expected the manifest"):
        verify(repository, "movies", 1)
    assert rollback(repository, "movies") == 2
    with pytest.raises(ExportError, match=r"of \[2\]\. Received: 1, which is not there"):
        rollback(repository, "movies")


def test_all_versions_can_be_kept_or_one(export, tmp_path):
    repository = tmp_path / "models"
    for version in (1, 2, 3):
        export(version=version, serving=ServingOptions(keep_versions=None))
    assert [p.name for p in sorted((repository / "movies_nvt").glob("[0-9]"))] == ["1", "2", "3"]
    export(version=4, serving=ServingOptions(keep_versions=1))
    assert [p.name for p in (repository / "movies_nvt").glob("[0-9]")] == ["4"]


def test_an_export_without_changes_removes_versions_too(export, tmp_path):
    for version in (1, 2):
        export(version=version)
    assert not export(serving=ServingOptions(keep_versions=1)).published
    assert [p.name for p in (tmp_path / "models" / "movies").glob("[0-9]")] == ["2"]


@pytest.mark.parametrize("runtime", ["tensorflow", "fused_onnx"])
def test_rollback_makes_the_repository_what_it_was(runtime, export, tmp_path):
    repository, serving = tmp_path / "models", ServingOptions(runtime=runtime, keep_versions=3)
    trees = []
    for version in (1, 2, 3):
        export(version=version, serving=serving)
        trees.append(tree(repository))
    first = config(repository, "movies")
    assert rollback(repository, "movies") == 2
    assert tree(repository) == after_rollback(trees[1], repository, 2, newest=3)
    assert verify(repository, "movies")
    export(version=4, serving=serving)
    published = config(repository, "movies")
    assert published.parameters.keys() == first.parameters.keys()
    served = [1, 2, 4] if runtime == "fused_onnx" else [4]
    assert published.version_policy.specific.versions == served
    assert rollback(repository, "movies", 1) == 1
    assert tree(repository) == after_rollback(trees[0], repository, 1, newest=4)
    assert verify(repository, "movies") == verify(repository, "movies", 1)
    with pytest.raises(
        ExportError,
        match=r"to go back to, of \[1\]\. Received: none before 1.*--option keep_versions=5",
    ):
        rollback(repository, "movies")


def test_the_number_of_a_version_that_was_taken_back_is_not_used_again(export, tmp_path, workflow):
    """A client that asked nothing meanwhile would read the new version by the contract of the old one."""
    repository, network = tmp_path / "models", other_network()
    export()
    export(network, workflow)
    assert rollback(repository, "movies") == 1
    assert rollback(repository, "movies", 1) == 1  # as after one that was interrupted
    unchanged = export()
    assert (unchanged.published, unchanged.plan.published.version) == (False, 1)
    before = tree(repository)
    for number in (1, 2):
        with pytest.raises(ExportError, match=rf"(already|above 2, the newest).*{number}"):
            export(network, workflow, version=number)
    assert tree(repository) == before
    assert export(network, workflow).plan.published.version == 3
    assert rollback(repository, "movies") == 1
    moved = shutil.copytree(repository, tmp_path / "moved")
    assert export(network, workflow, path=moved).plan.published.version == 4
    assert verify(moved, "movies")


@pytest.mark.parametrize("number", ["0", "-3", "2.0", "3\u0663", "9" * 5000, "1"])
def test_a_damaged_number_of_a_rollback_is_named(number, export, tmp_path):
    published = tmp_path / "models" / "movies" / "config.pbtxt"
    export()
    export(version=2)
    rollback(tmp_path / "models", "movies")
    whole = published.read_text()
    published.write_text(whole.replace('string_value: "2" } }', f'string_value: "{number}" }} }}'))
    assert published.read_text() != whole
    for change in (lambda: verify(tmp_path / "models", "movies"), lambda: export(version=3)):
        with pytest.raises(ExportError, match=r"config\.pbtxt is not what"):
            change()


def test_a_kept_config_that_is_no_text_is_named(export, tmp_path):
    export()
    (tmp_path / "models" / "movies" / "1" / "config.pbtxt").write_bytes(b"\xff\xfe")
    with pytest.raises(ExportError, match=r"config\.pbtxt is not what"):
        verify(tmp_path / "models", "movies")


@pytest.mark.parametrize("back", [True, False], ids=["rollback", "later versions"])
def test_a_fused_version_that_is_removed_leaves_nothing(back, export, tmp_path):
    """Its requests for the warm-up lie beside the versions, where an ensemble has none."""
    repository = tmp_path / "models"
    ensemble, fused = (ServingOptions(runtime=runtime) for runtime in ("tensorflow", "fused_onnx"))
    if back:
        export(version=1, serving=ensemble)
    before, beside = tree(repository), {*tmp_path.iterdir()}
    export(version=2, serving=fused)
    assert (repository / "movies" / "warmup").is_dir()
    if back:
        assert rollback(repository, "movies") == 1
        assert tree(repository) == after_rollback(before, repository, 1, newest=2)
        assert {*tmp_path.iterdir()} == beside
    else:
        for version in (3, 4):
            export(version=version, serving=ensemble)
    assert verify(repository, "movies")
    assert not export(version=None, serving=ensemble).published


def test_rollback_refuses_a_version_that_is_damaged(export, tmp_path):
    repository = tmp_path / "models"
    export()
    export(version=2)
    (repository / "movies_nvt" / "1" / "program.safetensors").write_bytes(b"")
    before = tree(repository)
    with pytest.raises(ExportError, match=r"program\.safetensors is not what the export wrote"):
        rollback(repository, "movies")
    with pytest.raises(ExportError, match=r"Expected a model among movies, .*Received: 'films'"):
        rollback(repository, "films")
    assert tree(repository) == before


def damage(repository, version):
    """Cut a manifest off, and give the warning of the next change."""
    manifest = repository / "movies" / str(version) / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-20])
    return rf"{manifest} is not what.*Remove {manifest.parent}, and the folders {version} of its"


def test_a_damaged_manifest_of_another_version_stops_no_export_and_no_rollback(export, tmp_path):
    """The export raised its error after it had published, and a rollback could never be completed."""
    repository, three = tmp_path / "models", ServingOptions(keep_versions=3)
    for version in (1, 2, 3):
        export(path=repository, version=version, serving=three)
    warning = damage(repository, 2)
    with pytest.warns(UserWarning, match=warning):
        assert export(path=repository, version=4, serving=three).published
    assert config(repository, "movies").version_policy.specific.versions == [4]
    assert {path.name for path in (repository / "movies_nvt").glob("[0-9]*")} == {*"1234"}
    with pytest.warns(UserWarning, match=warning):
        assert rollback(repository, "movies") == 3
    assert not (repository / "movies" / "4").exists()
    for model in MODELS:
        shutil.rmtree(repository / model / "2")
    assert rollback(repository, "movies", 1) == 1
    assert verify(repository, "movies")


def test_a_version_that_is_damaged_itself_can_be_taken_back(export, tmp_path):
    repository = tmp_path / "models"
    export(path=repository)
    export(path=repository, version=2)
    with pytest.warns(UserWarning, match=damage(repository, 2)):
        assert rollback(repository, "movies", 1) == 1
    assert config(repository, "movies").version_policy.specific.versions == [1]
    for model in MODELS:
        shutil.rmtree(repository / model / "2")
    assert verify(repository, "movies")
    assert export(path=repository, version=3).published


def test_models_of_a_running_server_are_not_named(export, tmp_path):
    """A server that answers with a removed step has it under a name that begins with a dot."""
    export()
    links = tmp_path / "models" / ".movies_nvt@candidate"
    links.mkdir()
    (links / "config.pbtxt").touch()
    with pytest.raises(
        ExportError, match=r"Expected a model among movies, movies_nvt, movies_tf in "
    ):
        rollback(tmp_path / "models", "films")


def test_a_version_below_the_published_one_is_refused(export, tmp_path):
    """A server answers with the newest, so that it would never be asked."""
    export(version=4)
    before = tree(tmp_path)
    with pytest.raises(ExportError, match=r"Expected a version above 4.*Received: 2"):
        export(version=2)
    assert tree(tmp_path) == before


def test_a_step_that_knows_other_nulls_is_another_step(export):
    """One config counts for all versions, and it says which values mean null."""

    def pipeline(price):
        ids = ["userId", "genres"] >> ops.Categorify()
        return Workflow(ids + (price >> ops.LambdaOp(lambda p: p.cast("float32")))).fit(rows())

    first = export(pipeline=pipeline(["price"] >> ops.FillMissing(0.0)), labels=[])
    second = export(pipeline=pipeline(["price"]), labels=[], version=2)
    assert first.plan.steps[0].inputs == second.plan.steps[0].inputs
    assert second.plan.steps[0].name == f"movies_nvt_{second.generation}"


def test_versions_that_were_removed_by_hand_are_not_missed(export, tmp_path):
    export()
    for model in MODELS:
        shutil.rmtree(tmp_path / "models" / model / "1")
    report = export(version=2)
    assert verify(tmp_path / "models", "movies") == report.generation


def test_steps_of_an_ensemble_that_was_removed_by_hand_are_named(export, tmp_path):
    repository = tmp_path / "models"
    export()
    shutil.rmtree(repository / "movies")
    left = [repository / "movies_nvt/1", repository / "movies_tf/1"]
    with pytest.raises(ExportError, match=f"Remove {left[0]} and {left[1]}, or export a later"):
        export()
    for folder in left:
        shutil.rmtree(folder)
    export()
    assert verify(repository, "movies")


def test_the_generation_is_in_the_config_and_beside_each_step(export, tmp_path):
    one = export()
    published = config(one.repository, "movies").parameters["generation"].string_value
    parts = [json.loads((one.paths[step] / "manifest.json").read_text()) for step in MODELS[:2]]
    assert {published, *(part["generation"] for part in parts)} == {one.generation}
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


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o755), (0o002, 0o775)])
def test_folders_that_an_export_makes_are_open_to_a_server_of_another_user(
    export, tmp_path, umask, mode
):
    """One that is there keeps its mode."""
    (tmp_path / "closed").mkdir(mode=0o700)
    before = os.umask(umask)
    try:
        export(path=tmp_path / "made" / "models")
        export(path=tmp_path / "closed")
    finally:
        os.umask(before)
    made = [tmp_path / "made", tmp_path / "made" / "models", tmp_path / "closed"]
    assert [path.stat().st_mode & 0o777 for path in made] == [mode, mode, 0o700]


def test_without_locks_nothing_of_another_export_is_removed(export, tmp_path, monkeypatch):
    """It could be running; a rollback and an export leave it alone, and recover cannot go on."""
    repository = tmp_path / "models"
    export()
    export(version=2)
    running = tmp_path / ".movies@models.staging-abcdefgh"
    running.mkdir()

    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(
        ExportError, match=r"that can lock .*models, since an export may be running"
    ):
        recover_repository(repository, "movies")
    assert rollback(repository, "movies") == 1
    export(version=3)
    assert running.is_dir()
    monkeypatch.undo()
    assert recover_repository(repository, "movies") == 3
    assert not running.exists()


def test_without_locks_the_second_of_two_exports_leaves_the_first_one_published(
    export, tmp_path, monkeypatch
):
    """It had read the config from before, and put that back when it found the version taken."""
    repository = tmp_path / "models"
    export(path=repository)

    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    def meanwhile(stage):
        monkeypatch.setattr(publish, "sync_tree", sync_tree)
        export(path=repository, version=2)
        sync_tree(stage)

    monkeypatch.setattr(fcntl, "flock", no_locks)
    monkeypatch.setattr(publish, "sync_tree", meanwhile)
    with pytest.raises(ExportError, match="not empty"):
        export(path=repository, version=2)
    assert steps_of(repository) == [("movies_nvt", 2), ("movies_tf", 2)]
    assert verify(repository, "movies")


@pytest.mark.parametrize("runtime", ["tensorflow", "fused_onnx"])
def test_an_export_that_changes_nothing_is_not_published_again(export, tmp_path, runtime):
    options = ServingOptions(runtime=runtime)
    first = export(serving=options)
    before = tree(tmp_path)
    again = export(serving=options)
    assert (first.published, again.published) == (True, False)
    assert again.generation == first.generation
    assert again.paths == first.paths
    assert again.plan.published.version == 1
    assert "Nothing has changed: version 1 stays published." in " ".join(str(again).split())
    assert tree(tmp_path) == before


def test_without_a_number_the_next_version_is_published_when_something_has_changed(
    export, tmp_path, workflow
):
    export()
    network = other_network()
    # Other rows for the warm-up change no file of a version.
    options = ServingOptions(golden_rows=rows())
    reports = [
        export(network, workflow),
        export(network, workflow, serving=options),
        export(network, workflow, serving=options),
    ]
    assert [report.plan.published.version for report in reports] == [2, 3, 3]
    assert [report.published for report in reports] == [True, True, False]
    assert reports[2].paths == reports[1].paths
    assert verify(tmp_path / "models", "movies") == reports[2].generation


def test_a_number_is_published_in_any_case_and_damaged_files_are_repaired(export, tmp_path):
    export()
    assert export(version=2).published
    assert steps_of(tmp_path / "models") == [("movies_nvt", 2), ("movies_tf", 2)]
    (tmp_path / "models" / "movies_nvt" / "2" / "model.py").write_text("")
    repaired = export()
    assert repaired.published
    assert steps_of(tmp_path / "models") == [("movies_nvt", 3), ("movies_tf", 3)]


def test_what_is_published_is_on_the_disk_first(export, tmp_path, monkeypatch):
    """Every file before the first rename, and each folder after a rename into it; a config last."""
    repository, log = tmp_path / "models", []
    export(path=repository)
    fsync, replace = os.fsync, os.replace

    def synced(descriptor):
        log.append(("synced", os.fstat(descriptor).st_ino))
        fsync(descriptor)

    def moved(source, target):
        replace(source, target)
        if repository in Path(target).parents:
            log.append(("moved", Path(target)))

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", moved)
    export(path=repository, version=2)
    monkeypatch.undo()
    moves = [number for number, (what, _) in enumerate(log) if what == "moved"]
    assert len(moves) == 4, "a version folder of each model, and the config that clients follow"
    assert log[moves[-1]] == ("moved", repository / "movies" / "config.pbtxt")
    for number in moves:
        assert log[number + 1] == ("synced", log[number][1].parent.stat().st_ino)
    published = [path for path in repository.rglob("2/**/*") if path.is_file()]
    assert len(published) > 20
    first = {place for what, place in log[: moves[0]] if what == "synced"}
    assert {path.stat().st_ino for path in published} <= first
