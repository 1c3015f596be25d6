"""Whatever happens to an export, and whenever: the repository is the old one or the new one."""

import errno
import os
import resource
import shutil
import signal
import tempfile
from pathlib import Path

import faults
import keras
import pytest
from faults import CRASHED, DONE, REFUSED, in_child, strike_at
from small_export import rows, tree

from exporter import verify
from exporter.config import parse_config
from exporter.runtimes import tensorflow
from workflow import Workflow

MODELS = {"movies_nvt", "movies_tf", "movies"}
# More than any export of these tests makes; a walk through the steps ends where none is struck.
MOST_STEPS = 1000


@pytest.fixture
def files_only(export, tmp_path_factory, monkeypatch):
    """Exports without TensorFlow, which does not outlive a fork: the network's files are copied."""
    saved = export(path=tmp_path_factory.mktemp("saved")).paths["movies_tf"]
    files = {p.relative_to(saved): p.read_bytes() for p in saved.rglob("*") if p.is_file()}

    def write(_, folder):
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)

    monkeypatch.setattr(tensorflow, "write", write)


@pytest.fixture(params=["nothing", "version 1", "another version 1"])
def repository(request, export, files_only, tmp_path):  # noqa: ARG001 - it changes the export
    """A repository that the export of version 2 meets: empty, compatible, or of other inputs."""
    folder = tmp_path / "place" / "models"
    folder.parent.mkdir()
    if request.param == "version 1":
        export(path=folder)
    elif request.param == "another version 1":
        inputs = keras.Input((1,), name="clicks", dtype="int64")
        score = keras.layers.Dense(1, name="score")(keras.ops.cast(inputs, "float32"))
        network = keras.Model({"clicks": inputs}, score)
        export(network, Workflow(["clicks"]).fit(rows()), path=folder, labels=[])
    return folder


def each_step(export, repository, fault, **options):
    """Export version 2 once for each step, with the fault there; gives what came of each."""
    place = repository.parent
    original = shutil.copytree(place, place.with_name(f"{place.name} before"))
    for step in range(1, MOST_STEPS):
        shutil.rmtree(place)
        shutil.copytree(original, place)
        struck = os.pipe()

        def strike(writer=struck[1]):
            os.write(writer, b"!")
            fault()

        def action(step=step, strike=strike):
            strike_at(step, str(place), strike, **options)
            export(path=repository, version=2)

        outcome = in_child(action)
        os.close(struck[1])
        with os.fdopen(struck[0], "rb") as pipe:
            if not pipe.read():
                assert outcome[0] in (DONE, REFUSED), outcome[1]
                break
        yield step, *outcome
    shutil.rmtree(original)


def pinned(repository):
    """The version that the ensemble serves, with all that it needs; None where there is none."""
    path = repository / "movies" / "config.pbtxt"
    if not path.exists():
        return None
    versions = {}
    for step in parse_config(path.read_text()).ensemble_scheduling.step:
        versions[step.model_name] = step.model_version
        own = parse_config((repository / step.model_name / "config.pbtxt").read_text())
        assert step.model_version in own.version_policy.specific.versions
        assert (repository / step.model_name / str(step.model_version)).is_dir()
    (version,) = set(versions.values())
    return version


def strangers(repository):
    beside = {path.name for path in repository.parent.iterdir()} - {"models"}
    inside = {p.name for p in repository.iterdir()} - MODELS if repository.exists() else set()
    return beside | inside


def test_killed_at_any_step_it_is_the_old_or_the_new_ensemble(export, repository, request):
    """And the next export cleans up, even where a kill between two configs left what cannot load."""
    before = tree(repository) if repository.exists() else {}
    old = 1 if before else None
    seen = set()
    for step, status, words in each_step(export, repository, faults.kill):
        assert status == -signal.SIGKILL, words
        if "another version 1" not in request.node.name:
            seen.add(pinned(repository))
            assert seen <= {old, 2}, step
        expect_only_dot_folders_beside(repository)
        expect_next_export_to_settle(export, repository)
        after = tree(repository)
        kept = [path for path in before if "/1" in path]
        assert [after[path] for path in kept] == [before[path] for path in kept]
    assert step > 50
    assert seen in ({old, 2}, set())


def expect_next_export_to_settle(export, repository):
    status, words = in_child(lambda: export(path=repository, version=2))
    if status == REFUSED:
        # The one before was killed or failed when all was published.
        assert "Version 2 is there already" in words
    assert pinned(repository) == 2
    assert verify(repository, "movies")
    assert strangers(repository) == set()


@pytest.mark.parametrize("repository", ["version 1"], indirect=True)
def test_killed_again_while_what_a_kill_left_is_put_back(export, repository, tmp_path):
    """At each step of the next export, after kills before and after the new version counts."""
    journal, kills = ".movies@models.staging-*/.journal.json", {}
    for step, _, _ in each_step(export, repository, faults.kill):
        if list(repository.parent.glob(journal)):
            kills.setdefault(pinned(repository), []).append(step)
            shutil.copytree(repository.parent, tmp_path / f"killed at {step}")
    # One with every version folder and some configs in place, and one where all was done.
    for step in (kills[1][-1], kills[2][0]):
        shutil.rmtree(repository.parent)
        shutil.copytree(tmp_path / f"killed at {step}", repository.parent)
        for _ in each_step(export, repository, faults.kill):
            assert pinned(repository) in (1, 2)
            expect_next_export_to_settle(export, repository)


@pytest.mark.parametrize("repository", ["version 1"], indirect=True)
def test_when_putting_back_fails_too_the_next_export_does_it(export, repository):
    for _, status, words in each_step(export, repository, faults.fail, every=True):
        assert status in (DONE, REFUSED), words
        assert pinned(repository) in (1, 2)
        expect_next_export_to_settle(export, repository)


def expect_only_dot_folders_beside(repository):
    assert all(name.startswith(".movies@models.staging-") for name in strangers(repository))
    # A server without a list of models takes every folder in the repository for one.
    assert not repository.exists() or {p.name for p in repository.iterdir()} <= MODELS


@pytest.mark.parametrize(
    ("repository", "reads"),
    [("nothing", False), ("another version 1", True)],
    indirect=["repository"],
)
def test_a_failure_at_any_step_leaves_the_repository_as_it_was(export, repository, reads):
    before = tree(repository) if repository.exists() else None
    for step, status, words in each_step(export, repository, faults.fail, reads=reads):
        if status == DONE:
            # Removing what was staged may fail: the export has done its work then.
            assert pinned(repository) == 2
            continue
        assert status == REFUSED, words
        assert "Expected to be able to write to" in words
        assert "Input/output error" in words
        assert (tree(repository) if repository.exists() else None) == before, step
        clean_up_after(repository)


@pytest.mark.parametrize("repository", ["version 1"], indirect=True)
def test_control_c_at_any_step_leaves_the_repository_as_it_was(export, repository):
    before = tree(repository)
    for step, status, words in each_step(export, repository, faults.interrupt):
        assert status == CRASHED
        assert "KeyboardInterrupt" in words
        if (repository / "movies" / "2").exists():
            # It came when all was published, and what was staged is being removed.
            assert verify(repository, "movies") == verify(repository, "movies", 2)
        else:
            assert tree(repository) == before, step
        clean_up_after(repository)


def clean_up_after(repository):
    for name in strangers(repository):
        shutil.rmtree(repository.parent / name)


@pytest.mark.parametrize("repository", ["version 1"], indirect=True)
def test_a_disk_that_is_full_from_some_step_on(export, repository):
    before = tree(repository)
    full = lambda: faults.fail(errno.ENOSPC)  # noqa: E731
    for step, status, words in each_step(export, repository, full, for_good=True):
        if status == DONE:
            assert pinned(repository) == 2
            continue
        assert status == REFUSED, words
        assert "No space left" in words
        assert tree(repository) == before, step
        clean_up_after(repository)


def test_tensorflow_out_of_space_is_told_like_any_other(export, tmp_path):
    """TensorFlow writes by itself, and has errors of its own."""
    export()
    before = tree(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, limits[1]))
    try:
        with pytest.raises(faults.ExportError, match=r"Expected to be able to write.*too large"):
            export(version=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert tree(tmp_path) == before


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
def test_two_exports_at_once_wait_for_each_other(export, tmp_path):
    """The second one finds version 1 published, not half of it, and nothing of the first is lost."""
    import fcntl

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
                export()
                status = DONE
            except faults.ExportError as error:
                status = REFUSED if "Version 1 is there already" in str(error) else CRASHED
            finally:
                os._exit(status)
        children.append(child)
    os.close(descriptor)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert sorted(codes) == [DONE, REFUSED]
    assert verify(tmp_path / "models", "movies")
    assert strangers(tmp_path / "models") == set()
