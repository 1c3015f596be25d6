"""verify names what was changed in a published version."""

import pytest
from small_export import rows

from exporter import ExportError, rollback, verify
from exporter.repository import verify as verification
from exporter.repository.manifest import generation_of
from serving import ServerError, TritonServer
from workflow.files.sealed import sealed, unsealed


@pytest.fixture
def export(written_once):
    return written_once


# Protobuf reads a changed escape in a config, and warns.
@pytest.mark.filterwarnings("ignore:.*invalid escape sequence:DeprecationWarning")
def test_one_changed_byte_of_any_file_is_found(export, tally):
    """Every file of the repository: models, program, configs and the manifest itself."""
    report = export()
    files = [p for p in report.repository.rglob("*") if p.is_file()]
    assert len(files) > 20
    for path in files:
        content = path.read_bytes()
        for position in {0, len(content) // 2, max(len(content) - 1, 0)}:
            changed = bytearray(content or b"0")
            changed[position] ^= 1
            path.write_bytes(changed)
            with pytest.raises(ExportError, match=path.name.replace(".", r"\.")):
                verify(report.repository, "movies")
            tally()
        path.write_bytes(content)
    assert verify(report.repository, "movies") == report.generation


def test_an_export_meanwhile_is_no_damage(export, tmp_path, monkeypatch):
    """It removes an older version, whose files the check then missed."""
    repository, check = tmp_path / "models", verification.verify_version
    for version in (1, 2):
        export(path=repository, version=version)

    def meanwhile(*version):
        if not (repository / "movies" / "3").exists():
            export(path=repository, version=3)
        check(*version)

    monkeypatch.setattr(verification, "verify_version", meanwhile)
    verify(repository, "movies")
    assert (repository / "movies" / "3").exists()


def test_every_missing_file_is_found(export):
    report = export()
    files = [p for p in report.repository.rglob("*") if p.is_file()]
    for path in [p for p in files if p.name != "__pycache__"]:
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(ExportError, match=path.name.replace(".", r"\.")):
            verify(report.repository, "movies")
        path.write_bytes(content)


def test_a_new_file_is_found(export):
    report = export()
    for model in report.paths:
        path = report.paths[model] / "extra.py"
        path.write_text("")
        with pytest.raises(ExportError, match=r"did not write: extra\.py"):
            verify(report.repository, "movies")
        path.unlink()


def test_byte_code_is_found_since_python_runs_it(export):
    report = export()
    cache = report.paths["movies_nvt"] / "__pycache__"
    # Tools that copy a repository may leave it out.
    cache.unlink()
    assert verify(report.repository, "movies") == report.generation
    cache.mkdir()
    (cache / "model.cpython-310.pyc").write_bytes(b"")
    with pytest.raises(
        ExportError, match=r"__pycache__/model.*Python runs byte code that it finds"
    ):
        verify(report.repository, "movies")


@pytest.mark.parametrize("place", ["movies", "movies_nvt", "movies_tf", "movies_nvt/warmup"])
def test_what_lies_beside_the_versions_is_found(place, export):
    """A version folder among them: a server loads every version of a step."""
    report = export()
    for name in ("model.py", "7/model.py"):
        path = report.repository / place / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
        with pytest.raises(ExportError, match=f"{place} holds files that .* not write: {name[:1]}"):
            verify(report.repository, "movies")
        path.unlink()
        if path.parent.name == "7":
            path.parent.rmdir()
    assert verify(report.repository, "movies") == report.generation


def test_the_manifest_of_another_export_is_found(export, tmp_path, workflow):
    report = export()
    other = export(
        pipeline=type(workflow)(workflow.nodes[-1]).fit(rows().head(3)), path=tmp_path / "b"
    )
    ours, theirs = (r.paths["movies"] / "manifest.json" for r in (report, other))
    ours.write_bytes(theirs.read_bytes())
    with pytest.raises(ExportError, match="is not what the export wrote"):
        verify(report.repository, "movies")


@pytest.mark.parametrize("files", [None, "model.py", {"warmup/requests": None}], ids=str)
def test_a_manifest_whose_checksums_are_none_is_refused(export, files):
    """Its own sum is right, as of a file that somebody has written."""
    report = export()
    path = report.paths["movies"] / "manifest.json"
    content = dict(unsealed(path.read_bytes(), str(path)))
    for name, change in (
        ("warm_up", {"movies_nvt": files}),
        ("models", {"movies_nvt": files, "movies": {}}),
    ):
        changed = content | {name: change}
        changed["generation"] = generation_of(changed["models"].values(), content["contract"])
        path.write_bytes(sealed(changed))
        with pytest.raises(ExportError, match=r"manifest\.json is not what the export wrote"):
            verify(report.repository, "movies")


def test_what_is_not_there_is_named(export):
    report = export()
    with pytest.raises(ExportError, match="Expected the manifest"):
        verify(report.repository, "movies", 7)
    known = r"Expected a model among movies, movies_nvt, movies_tf in .*"
    for name in ("none", "", "../x"):
        with pytest.raises(ExportError, match=rf"{known}Received: {name!r}. Name one of them"):
            verify(report.repository, name)
    with pytest.raises(ExportError, match=r"Received: 'moviez'\. Did you mean 'movies'\?"):
        verify(report.repository, "moviez")
    with pytest.raises(ExportError, match=r"Expected a model repository.*--repository"):
        verify(report.repository / "none", "movies")
    with pytest.raises(ExportError, match="to name the version that clients are answered by"):
        verify(report.repository, "movies_tf")


@pytest.mark.parametrize("ask", [verify, rollback, lambda url, _: TritonServer(url).start()])
def test_a_repository_in_an_object_store_is_to_be_copied(ask):
    """It was no such folder, s3:/shop/models."""
    copy = "in an object store.*`aws s3 sync s3://shop/models models`, and name the copy"
    with pytest.raises((ExportError, ServerError), match=f"Received: s3://shop/models, {copy}"):
        ask("s3://shop/models", "movies")
