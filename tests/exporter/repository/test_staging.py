"""The staging folder: its place, its permissions, and one export at a time."""

import fcntl
import os
import tempfile
from pathlib import Path

import pytest
from faults import CRASHED, DONE, MODELS, REFUSED, in_child, strangers
from small_export import tree

from exporter import ExportError, verify
from exporter.repository.versions import recover_repository


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
    for place in (repository, repository.parent):
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
