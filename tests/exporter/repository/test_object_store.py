"""An export to an object store, through a real server of S3: a server sees all of a model, or none."""

import json
import shlex
import shutil
from pathlib import Path

import pytest
from small_catalogue import ROWS, catalogue, make_tower, make_workflow
from small_export import rows, tree
from typer.testing import CliRunner

from exporter import ExportError, NearestItems, ServingOptions, export_ensemble, verify
from exporter.command_line.app import make_app
from exporter.repository.object_store import StoredRepository, in_order
from serving import EnsembleClient, ServerError, TritonServer, check_parity
from workflow import WorkflowError

pytestmark = pytest.mark.xdist_group("object_store")
# Three models of few files, for tests of any repository.
SMALL = ServingOptions(runtime="onnx", max_batch_size=8)


@pytest.fixture
def export(written_once):
    return written_once


@pytest.fixture
def to_store(export, link):
    def run(key="models", **options):
        return export(path=f"{link.url}/{key}", **{"storage_options": link.options, **options})

    return run


@pytest.mark.parametrize(
    "runtime", [pytest.param("tensorflow", marks=pytest.mark.long), "fused_onnx"]
)
def test_a_downloaded_repository_is_served_as_one_in_a_folder(
    to_store, export, link, tmp_path, workflow, model, runtime
):
    options = ServingOptions(runtime=runtime)
    report = to_store(serving=options)
    folder = link.get_folder("models", tmp_path / "downloaded")
    assert files(folder) == files(export(serving=options).repository)
    assert verify(folder, "movies") == report.generation
    assert report.sizes["movies"] == sum(
        file.stat().st_size for file in (folder / "movies" / "1").rglob("*") if file.is_file()
    )
    with (
        TritonServer(folder, ["movies"]) as server,
        EnsembleClient(server.grpc_url, "movies") as client,
    ):
        assert check_parity(client, workflow, model, rows())


def test_an_index_of_items_comes_back_whole(link, tmp_path):
    workflow = make_workflow()
    items = catalogue(tmp_path / "items.parquet", [f"i{n}" for n in range(500)])
    network = NearestItems(make_tower(), items, 5, "HNSW16")
    report = export_ensemble(
        network, workflow, "shop", f"{link.url}/models", ["bought"], storage_options=link.options
    )
    folder = link.get_folder("models", tmp_path / "downloaded")
    assert verify(folder, "shop") == report.generation
    loaded = [key for key in written(link) if key.startswith("shop_items/")][-2:]
    assert loaded == ["shop_items/config.pbtxt", "shop_items/1/model.py"]
    with (
        TritonServer(folder, ["shop"]) as server,
        EnsembleClient(server.grpc_url, "shop") as client,
    ):
        assert check_parity(client, workflow, network, ROWS)


def files(folder):
    """Every file with its content's hash: a store has no empty folders."""
    return {path: content for path, content in tree(folder).items() if content is not None}


def written(link):
    """The objects that were written, in order, relative to the repository."""
    paths = [text.removeprefix("PUT ") for text in link.requests if text.startswith("PUT ")]
    return [path.partition("/models/")[2] for path in paths]


@pytest.mark.parametrize(
    "runtime",
    [
        "tensorflow",
        pytest.param("onnx", marks=pytest.mark.long),
        "fused_onnx",
        pytest.param("fused_tensorflow", marks=pytest.mark.long),
    ],
)
def test_what_a_server_loads_is_written_after_all_that_it_needs(to_store, link, tmp_path, runtime):
    report = to_store(serving=ServingOptions(runtime=runtime, max_batch_size=8))
    lock, *keys = written(link)
    assert lock == ".movies.export"  # an object beside the models, which servers ignore
    folder = link.get_folder("models", tmp_path / "downloaded")
    assert not (folder / lock).exists()
    assert sorted(keys) == sorted(
        file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()
    )
    loaded = {"python": "model.py", "tensorflow": "saved_model.pb", "onnxruntime": "model.onnx"}
    for spec in report.plan.models:
        own = [key for key in keys if key.startswith(f"{spec.name}/")]
        if spec.backend:
            assert own[-2] == f"{spec.name}/config.pbtxt"
            assert own[-1].endswith(f"/{loaded[spec.backend]}")
        else:
            assert keys[-1] == own[-1] == f"{spec.name}/config.pbtxt"
            assert keys[-len(own) :] == own


def test_a_server_does_not_load_an_ensemble_until_its_last_object_is_there(export, tmp_path):
    report = export(serving=SMALL)
    *files, last = in_order(report.repository, [spec.name for spec in report.plan.models])
    for file in files:
        copy = tmp_path / "part" / file.relative_to(report.repository)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    with pytest.raises(ServerError), TritonServer(tmp_path / "part", ["movies"]):
        pass
    shutil.copyfile(last, tmp_path / "part" / last.relative_to(report.repository))
    with TritonServer(tmp_path / "part", ["movies"]):
        pass


def test_a_model_of_the_name_is_refused_before_the_network_is_written(to_store, link):
    # The tools of a store take a key as it is written.
    assert to_store(key="/./models/", serving=SMALL).repository == f"{link.url}/models"
    link.requests.clear()
    with pytest.raises(
        ExportError,
        match=r"no model 'movies' in s3://.*Received: objects of movies, movies_onnx, movies_nvt",
    ) as e:
        to_store(key="/./models/", version=2, serving=SMALL)
    commands = str(e.value).partition("remove it: ")[2].rstrip(".").split("; ")
    assert commands == [
        f"aws s3 rm --recursive {link.url}/models/{model}"
        for model in ("movies", "movies_onnx", "movies_nvt")
    ]
    assert link.count("PUT") == 0
    other = to_store(name="others", serving=SMALL)
    assert other.plan.published.name == "others"


def test_a_step_that_is_left_is_refused_and_stays(to_store, link, tmp_path):
    link.put("models/movies_tf/1/model.savedmodel/saved_model.pb", b"old")
    with pytest.raises(ExportError, match="no model 'movies_tf'"):
        to_store()
    left = link.get_folder("models", tmp_path / "left")
    assert [f.name for f in left.rglob("*") if f.is_file()] == ["saved_model.pb"]


@pytest.mark.parametrize("marked", [False, True])
def test_all_that_a_killed_export_has_left_is_named_at_once(export, link, marked):
    report = export(serving=SMALL)
    models = [spec.name for spec in report.plan.models]
    for model in models[:-1]:
        link.put(f"models/{model}/config.pbtxt", b"left")
    if marked:
        link.put(f"models/.{models[-1]}.export", b"another")
    with pytest.raises(ExportError) as error:
        StoredRepository(f"{link.url}/models", link.options).copy(report.repository, models)
    commands = str(error.value).partition("remove it")[2].rstrip(".").split("aws s3 rm ")[1:]
    for command in commands:
        key = command.rstrip("; ").removeprefix("--recursive ").removeprefix(f"{link.url}/")
        link.remove(f"{key}/config.pbtxt" if "recursive" in command else key)
    StoredRepository(f"{link.url}/models", link.options).copy(report.repository, models)


def test_what_a_killed_export_for_another_runtime_has_left_is_named(export, to_store, link):
    """Its steps have other names, and a server would load them."""
    report = export(serving=SMALL)
    models = [spec.name for spec in report.plan.models]
    stored = StoredRepository(f"{link.url}/models", link.options)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("workflow.data.bucket.Bucket.remove", lambda *_: None)  # as if killed
        stored.copy(report.repository, models)
    link.remove("models/movies/config.pbtxt")
    with pytest.raises(ExportError, match="begun and not ended") as error:
        to_store(serving=ServingOptions(runtime="fused_onnx", max_batch_size=8))
    for model in models:
        assert f"aws s3 rm --recursive {link.url}/models/{model}" in str(error.value)


def test_keys_that_may_not_read_are_enough(to_store, link, monkeypatch):
    def denied(*_, **__):
        raise WorkflowError("access denied")

    monkeypatch.setattr("workflow.data.bucket.Bucket.get", denied)
    to_store(serving=SMALL)
    link.put("other/.movies.export", b"a mark")
    with pytest.raises(ExportError, match="begun and not ended"):
        to_store("other", serving=SMALL)


def test_an_interrupted_copy_leaves_nothing_and_can_be_repeated(export, link, tmp_path):
    report = export(serving=SMALL)
    models = [spec.name for spec in report.plan.models]
    keys = [f.relative_to(report.repository) for f in in_order(report.repository, models)]
    stored = StoredRepository(f"{link.url}/models", {**link.options, "max_retries": 0})
    # The link answers 503 to a request that the server has done, which must be undone too.
    for failing in (keys[0], keys[1], keys[len(keys) // 2], keys[-1]):
        link.fault = lambda text, end=f"/models/{failing}": (
            "fail" if text.startswith("PUT") and text.endswith(end) else None
        )
        with pytest.raises(ExportError, match=r"cannot be written: no answer"):
            stored.copy(report.repository, models)
        link.fault = lambda _: None
        left = link.get_folder("models", tmp_path / "left")
        assert not any(path.is_file() for path in left.rglob("*"))
    stored.copy(report.repository, models)
    assert verify(link.get_folder("models", tmp_path / "again"), "movies") == report.generation


def test_a_mark_that_the_store_has_written_before_it_failed_is_ones_own(export, link, tmp_path):
    report = export(serving=SMALL)
    models = [spec.name for spec in report.plan.models]
    stored = StoredRepository(f"{link.url}/models", {**link.options, "max_retries": 1})
    failed = []

    def fault(text):
        if failed or not (text.startswith("PUT") and text.endswith(".export")):
            return None
        failed.append(text)
        return "fail"

    link.fault = fault
    stored.copy(report.repository, models)
    assert failed
    copy = link.get_folder("models", tmp_path / "copy")
    assert files(copy) == files(report.repository)


def test_an_export_that_has_begun_excludes_another(to_store, link, tmp_path):
    link.put("models/.movies.export", b"")
    with pytest.raises(
        ExportError, match=r"begun and not ended.*aws s3 rm s3://.*/\.movies\.export"
    ):
        to_store()
    assert link.count("PUT") == 0  # before the network is written
    assert [f.name for f in link.get_folder("models", tmp_path / "left").iterdir()] == [
        ".movies.export"
    ]


def test_a_folder_that_a_killed_export_leaves_is_named_after_it(to_store, monkeypatch):
    seen = []
    monkeypatch.setattr(
        StoredRepository, "copy", lambda _, folder, __: seen.append(folder.parent.name)
    )
    to_store(serving=SMALL)
    assert seen[0].startswith("ensemble-export-")


def test_advice_can_be_pasted_into_a_shell(to_store, link):
    key, url = "mo de/7", f"{link.url}/mo de/7"
    report = to_store(key, serving=SMALL)

    def expect_advice(words, *arguments):
        command = str(error.value).partition(words)[2].removesuffix(".")
        assert shlex.split(command) == [*arguments]

    with pytest.raises(ExportError) as error:
        _ = report.paths
    expect_advice("aws s3 sync ", url, "models")
    with pytest.raises(ExportError) as error:
        to_store(key, serving=SMALL)
    commands = str(error.value).partition("remove it: ")[2].rstrip(".").split("; ")
    assert shlex.split(commands[0]) == ["aws", "s3", "rm", "--recursive", f"{url}/movies"]
    link.put("mo de/8/.movies.export", b"")
    with pytest.raises(ExportError) as error:
        to_store("mo de/8", serving=SMALL)
    expect_advice("aws s3 rm ", f"{link.url}/mo de/8/.movies.export")


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("s3://", {}, "one of s3://BUCKET/KEY, gs://.* Received: 's3://'"),
        ("s3://unknown/models", {}, "no such bucket. Compare its name"),
        (
            "hdfs://host/models",
            {},
            "one of s3://BUCKET/KEY, gs://.* Received: 'hdfs://host/models'",
        ),
        (Path("s3://ratings/models"), {}, "as text, such as 's3://bucket/key'"),
        (
            "models",
            {},
            "storage_options with paths such as s3://bucket/key only. Received: allow_http",
        ),
        (
            "s3://ratings/models",
            {"aws_region": 7},
            "Expected 'aws_region' in storage_options as text",
        ),
    ],
)
def test_a_wrong_place_is_an_error(export, link, monkeypatch, tmp_path, path, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ExportError, match=message):
        export(path=path, storage_options={**link.options, **options})
    assert not list(tmp_path.iterdir())


def test_the_report_says_where_the_repository_is(to_store, link):
    report = to_store()
    url = f"{link.url}/models"
    assert report.repository == url
    assert f"in '{url}'" in repr(report)
    page = report.to_html()
    assert f"aws s3 sync {url} models" in page
    assert f"--model-repository={url}" in page
    assert "MB for movies_tf" in str(report)
    with pytest.raises(ExportError, match=f"Received: {url}. Copy it: aws s3 sync {url} models"):
        _ = report.paths


def test_the_command_takes_a_store_too(link, workflow, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    workflow.save("workflow")
    model.save("model.keras")
    words = ["export", "movies", "--repository", f"{link.url}/models", "--prove", "process"]
    words += ["--label", "rating", "--json", "--no-html"]
    for name, value in link.options.items():
        words += ["--storage-option", f"{name}={value}"]
    done = CliRunner().invoke(make_app(), words)
    assert done.exit_code == 0, done.output
    generation = json.loads(done.stdout)["generation"]
    assert verify(link.get_folder("models", tmp_path / "downloaded"), "movies") == generation
