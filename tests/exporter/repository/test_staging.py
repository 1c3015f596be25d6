"""The staging folder: its place, its permissions, and one export at a time."""

import errno
import fcntl
import os
import stat
import subprocess
import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import keras
import polars as pl
import pytest
from faults import CRASHED, DONE, MODELS, REFUSED, in_child, pinned, strangers
from small_export import make_workflow, rows, tree

from exporter import ExportError, ServingOptions, rollback, verify
from exporter import export as export_module
from exporter.repository.versions import recover_repository
from training import save_model

ALL = ServingOptions(keep_versions=None)


def as_nobody(action):
    """Root may write everywhere, so that a test of permissions has to be somebody else."""

    def run():
        if os.getuid() == 0:
            os.setuid(65534)
        action()

    return in_child(run)


@pytest.fixture
def folder():
    """A folder that every user can reach, which pytest's own is not."""
    with tempfile.TemporaryDirectory() as path:
        Path(path).chmod(0o755)
        yield Path(path)


@pytest.mark.usefixtures("files_only")
@pytest.mark.parametrize("mode", [0o555, 0o444, 0o000])
def test_permission_that_is_missing_is_told(export, folder, mode):
    repository = folder / "inner" / "models"
    repository.mkdir(parents=True)
    # Who owns the repository may write to it below a folder that can be passed through.
    passes = mode == 0o555 and os.getuid() != 0
    for place in (repository,) if passes else (repository, repository.parent):
        place.chmod(mode)
        status, words = as_nobody(lambda: export(path=repository))
        assert status == REFUSED, words
        assert f"Expected to be able to write to {repository}" in words
        assert "Permission denied" in words
        place.chmod(0o755)
        assert list(folder.rglob("*")) == [repository.parent, repository]


def test_a_file_is_no_repository(export, tmp_path):
    (tmp_path / "models").write_text("years of work")
    with pytest.raises(ExportError, match=r"a folder as the model repository\. Received: the file"):
        export(path=tmp_path / "models")
    assert (tmp_path / "models").read_text() == "years of work"


@pytest.mark.parametrize("place", ["[team]", "back\\slash"])
def test_a_path_that_tensorflow_takes_for_a_pattern_is_refused(export, tmp_path, place):
    """It wrote the SavedModel, and found "not a valid checkpoint" there."""
    with pytest.raises(ExportError, match=r"without brackets and backslashes.*Name another folder"):
        export(path=tmp_path / place / "models")
    assert list(tmp_path.iterdir()) == []


def test_a_link_that_leads_nowhere_is_no_repository(export, tmp_path):
    (tmp_path / "models").symlink_to(tmp_path / "unmounted")
    with pytest.raises(ExportError, match=r"Received: a link that leads nowhere, .*models\.$"):
        export(path=tmp_path / "models")


@pytest.mark.usefixtures("files_only")
def test_where_nothing_can_lie_beside_the_repository_the_export_is_prepared_inside(export, folder):
    repository = folder / "inner" / "models"
    repository.mkdir(parents=True)
    repository.chmod(0o777)
    repository.parent.chmod(0o555)
    status, words = as_nobody(lambda: export(path=repository))
    assert status == DONE, words
    assert {path.name for path in repository.iterdir()} == MODELS
    assert verify(repository, "movies")


@pytest.mark.usefixtures("files_only")
def test_only_leftovers_of_the_same_ensemble_are_removed(export, tmp_path):
    kept = [
        ".movies@models.staging-notes",
        ".movies2@models.staging-abcdefgh",
        ".movies@models2.staging-abcdefgh",
        ".movies-abcdefgh",
    ]
    for name in [*kept, ".movies@models.staging-abcdefgh"]:
        (tmp_path / name / "movies").mkdir(parents=True)
    export()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, "models"])


@pytest.mark.usefixtures("files_only")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_another_users_folder_beside_a_repository_in_tmp_is_no_leftover(export, tmp_path):
    """Its journal had the next export, or `recover`, remove a model and replace its config."""
    report = export()
    before = tree(report.repository)
    tmp_path.chmod(0o1777)
    planted = tmp_path / ".movies@models.staging-abcd1234"
    planted.mkdir()
    (planted / ".journal.json").write_text('["movies_tf", "movies/config.pbtxt"]')
    (planted / ".before.pbtxt").write_text('name: "another"')
    (planted / ".after.pbtxt").touch()
    for path in (planted, *planted.iterdir()):
        os.chown(path, 65534, 65534)
    assert recover_repository(report.repository, "movies") == 1
    assert tree(report.repository) == before
    assert planted.is_dir()


@pytest.mark.usefixtures("files_only")
def test_two_exports_at_once_wait_for_each_other(export, tmp_path):
    """The second one finds version 1 published, not half of it, and nothing of the first is lost."""
    (tmp_path / "models").mkdir()
    descriptor = os.open(tmp_path / "models", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    children = []
    for _ in range(2):
        child = os.fork()
        if child == 0:
            status = CRASHED
            try:
                os.close(descriptor)
                export(version=1)
                status = DONE
            except ExportError as error:
                status = REFUSED if "Version 1 exists already" in str(error) else CRASHED
            finally:
                os._exit(status)
        children.append(child)
    os.close(descriptor)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(codes) == [DONE, REFUSED]
    assert verify(tmp_path / "models", "movies")
    assert strangers(tmp_path / "models") == set()


@pytest.mark.usefixtures("files_only")
def test_exports_of_two_machines_wait_for_each_other(export, tmp_path, monkeypatch):
    """On NFS the lock of a folder excludes no other machine: the second export removed the first one's files."""
    staged, asked = os.pipe(), os.pipe()
    flock = fcntl.flock

    def as_on_nfs(descriptor, operation, asks=None):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            return
        if asks:
            os.write(asks, b"!")
        flock(descriptor, operation)

    def first():
        def slow(_stage, _plan, proof):
            os.write(staged[1], b"!")
            os.read(asked[0], 1)  # also when the second one has ended
            return proof

        monkeypatch.setattr(fcntl, "flock", as_on_nfs)
        monkeypatch.setattr(export_module, "prove_served", slow)
        export(version=1)

    def second():
        os.read(staged[0], 1)
        monkeypatch.setattr(fcntl, "flock", partial(as_on_nfs, asks=asked[1]))
        export(version=2)

    child = os.fork()
    if child == 0:
        os.close(asked[1])
        os._exit(in_child(first)[0])
    status, words = in_child(second)
    for end in (*staged, *asked):
        os.close(end)
    assert status == DONE, words
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == DONE
    assert pinned(tmp_path / "models") == 2
    assert verify(tmp_path / "models", "movies", 1)
    assert verify(tmp_path / "models", "movies")
    assert strangers(tmp_path / "models") == set()


@pytest.mark.usefixtures("files_only")
def test_a_file_system_without_modes_or_fsync_of_folders(export, tmp_path, monkeypatch):
    """Folders that Windows shares with WSL refuse the one, those of a virtual machine the other."""
    fsync = os.fsync

    def fsync_of_files(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        fsync(descriptor)

    def no_modes(path, *_, **__):
        raise OSError(errno.EPERM, "Operation not permitted", str(path))

    monkeypatch.setattr(os, "fsync", fsync_of_files)
    monkeypatch.setattr(os, "chmod", no_modes)
    make_workflow().save(tmp_path / "workflow")
    make_workflow().transform_to_parquet(rows(), tmp_path / "rows")
    save_model(keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]), tmp_path / "saved")
    assert pl.read_parquet(tmp_path / "rows" / "*.parquet").height == len(rows())
    assert (tmp_path / "saved" / "saved_model.pb").is_file()
    for version in (1, 2):
        export(path=tmp_path / "place" / "models", version=version)
    assert rollback(tmp_path / "place" / "models", "movies") == 1
    assert verify(tmp_path / "place" / "models", "movies")


@contextmanager
def mounted(folder, kind, options):
    folder.mkdir()
    command = ["mount", "-t", kind, "-o", options, kind, folder]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("a file system can be mounted by root alone")
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.usefixtures("files_only")
def test_a_full_disk_beside_a_repository_on_another_one(export, tmp_path):
    """Such as the root of a container, in which the repository is a volume."""
    with (
        mounted(tmp_path / "root", "tmpfs", "nr_inodes=2") as root,
        mounted(root / "models", "tmpfs", "size=10m") as repository,
    ):
        with pytest.raises(OSError, match="No space left"):
            (root / "file").touch()
        export(path=repository)
        assert verify(repository, "movies")
        assert {path.name for path in repository.iterdir()} == MODELS


@pytest.mark.usefixtures("files_only")
def test_versions_in_the_image_of_a_container_are_removed(export, tmp_path):
    """Folders of its lower layers cannot be renamed; versions stayed, and later exports were refused."""
    for version in (1, 2, 3):
        export(path=tmp_path / "image" / "models", version=version, serving=ALL)
    with mounted(tmp_path / "changes", "tmpfs", "size=10m") as changes:
        (changes / "upper").mkdir()
        (changes / "work").mkdir()
        layers = (
            f"lowerdir={tmp_path / 'image'},upperdir={changes / 'upper'},workdir={changes / 'work'}"
        )
        with mounted(tmp_path / "container", "overlay", layers) as container:
            repository = container / "models"
            assert rollback(repository, "movies") == 2
            assert {path.name for path in repository.rglob("[0-9]")} == {"1", "2"}
            assert verify(repository, "movies")
            assert export(path=repository, version=4).published
            assert {path.name for path in repository.rglob("[0-9]")} == {"2", "4"}
            assert verify(repository, "movies")
            assert strangers(repository) == set()


@pytest.mark.usefixtures("files_only")
def test_what_cannot_be_removed_beside_a_repository_stops_no_export(export, tmp_path):
    """As on NFS, while a server has a removed file open."""
    export()
    left = tmp_path / ".movies@models.staging-abcdefgh"
    left.mkdir()
    with (
        mounted(left / "movies", "tmpfs", "size=1m"),
        pytest.warns(UserWarning, match=rf"{left}.* could not be removed: .*busy.*Remove it"),
    ):
        assert export(version=2).published
    assert export(version=3).published
    assert strangers(tmp_path / "models") == set()
