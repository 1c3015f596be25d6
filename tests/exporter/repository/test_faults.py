"""Whatever happens to an export, and whenever: the repository is the old one or the new one."""

import errno
import os
import shutil
import signal
import subprocess

import at_calls
import faults
import keras
import pytest
from faults import CRASHED, DONE, MODEL, REFUSED, in_child, pinned, strangers, strike_at
from small_export import after_rollback, rows, tree

from exporter import ServingOptions, rollback, verify
from exporter.repository.versions import recover_repository
from workflow import Workflow

# More than any export of these tests makes; a walk through the steps ends where none is struck.
MOST_STEPS = 1000


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


@pytest.fixture(params=[13, pytest.param(1, marks=pytest.mark.long)], ids="every {}".format)
def every(request):
    """The distance between two steps at which a fault strikes."""
    return request.param


def each_step(export, repository, fault, **options):
    """Export version 2 once for each step, with the fault there; gives what came of each."""
    return each_step_of(
        lambda: export(path=repository, version=2), (DONE, REFUSED), repository, fault, **options
    )


def each_step_of(change, ends, repository, fault, *, every=1, **options):
    """Change a repository once for each step, with the fault there; without it comes one of the ends."""
    place = repository.parent
    original = shutil.copytree(place, place.with_name(f"{place.name} before"))
    for step in range(1, MOST_STEPS, every):
        shutil.rmtree(place)
        shutil.copytree(original, place)
        struck = os.pipe()

        def strike(writer=struck[1]):
            os.write(writer, b"!")
            fault()

        def action(step=step, strike=strike):
            strike_at(step, str(place), strike, **options)
            change()

        outcome = in_child(action)
        os.close(struck[1])
        with os.fdopen(struck[0], "rb") as pipe:
            if not pipe.read():
                assert outcome[0] in ends, outcome[1]
                break
        yield step, *outcome
    shutil.rmtree(original)


@pytest.mark.long
def test_killed_at_any_step_it_is_the_old_or_the_new_ensemble(export, repository):
    """Whole by its manifest, whatever lies beside it; and the next export cleans up."""
    before = tree(repository) if repository.exists() else {}
    old = 1 if before else None
    seen = set()
    for step, status, words in each_step(export, repository, faults.kill):
        assert status == -signal.SIGKILL, words
        seen.add(pinned(repository))
        assert seen <= {old, 2}, step
        if pinned(repository):
            assert verify(repository, "movies")
        expect_only_dot_folders_beside(repository)
        expect_next_export_to_settle(export, repository)
        after = tree(repository)
        kept = [path for path in before if "/1" in path]
        assert [after[path] for path in kept] == [before[path] for path in kept]
    assert step > 50
    assert seen == {old, 2}


def expect_next_export_to_settle(export, repository):
    status, words = in_child(lambda: export(path=repository, version=2))
    if status == REFUSED:
        # The one before was killed or failed when all was published.
        assert "Version 2 exists already" in words
    assert pinned(repository) == 2
    assert verify(repository, "movies")
    assert strangers(repository) == set()


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize("repository", ["version 1"], indirect=True)
def test_when_putting_back_fails_too_the_next_export_does_it(export, repository):
    for _, status, words in each_step(export, repository, faults.fail, times=2):
        assert status in (DONE, REFUSED), words
        assert pinned(repository) in (1, 2)
        expect_next_export_to_settle(export, repository)


def expect_only_dot_folders_beside(repository):
    assert all(name.startswith(".movies@models.staging-") for name in strangers(repository))
    # A server without a list of models takes every folder in the repository for one.
    assert not repository.exists() or all(MODEL.fullmatch(p.name) for p in repository.iterdir())


@pytest.mark.faults
def test_killed_at_any_call_it_is_the_old_or_the_new_ensemble(export, repository, tally):
    """Also in the midst of a file: each call to the operating system counts, not only Python's steps."""
    old = 1 if repository.exists() else None
    seen = set()
    for status, words in each_call(export, repository, at_calls.arm):
        assert status == -signal.SIGKILL, words
        seen.add(pinned(repository))
        assert seen <= {old, 2}
        if pinned(repository):
            assert verify(repository, "movies")
        expect_only_dot_folders_beside(repository)
        expect_next_export_to_settle(export, repository)
        tally()
    assert seen == {old, 2} or at_calls.EVERY > 1


@pytest.mark.faults
def test_any_call_that_fails_leaves_the_repository_as_it_was(export, repository, tally):
    """A disk that is full, read-only, over its quota or broken, also in the midst of a file."""
    before = tree(repository) if repository.exists() else None
    errors = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO)

    def arm(call):
        at_calls.arm(call, errors[call // at_calls.EVERY % len(errors)])

    for status, words in each_call(export, repository, arm):
        if status == DONE or "Older versions of movies could not be removed" in words:
            assert pinned(repository) == 2
            assert verify(repository, "movies")
        else:
            assert status == REFUSED, words
            assert "Expected to be able to write to" in words
            assert (tree(repository) if repository.exists() else None) == before
        clean_up_after(repository)
        tally()


@pytest.fixture
def three(export, files_only, tmp_path):  # noqa: ARG001 - it changes the export
    """A repository of three versions, whose published one is 3, and its files with one version fewer."""
    folder, trees = tmp_path / "place" / "models", []
    folder.parent.mkdir()
    for version in (1, 2, 3):
        export(path=folder, version=version, serving=ServingOptions(keep_versions=3))
        trees.append(tree(folder))
    return folder, after_rollback(trees[1], folder, 2, newest=3), trees[2]


def each_rollback(repository, fault):
    """Roll back once for each step, with the fault there; gives what came of each."""
    steps = each_step_of(lambda: rollback(repository, "movies"), (DONE,), repository, fault)
    return ((status, words) for _, status, words in steps)


@pytest.mark.parametrize(
    ("fault", "removals"),
    [
        (faults.kill, 3),
        pytest.param(faults.kill, MOST_STEPS, marks=pytest.mark.long),
        pytest.param(faults.interrupt, MOST_STEPS, marks=pytest.mark.long),
    ],
)
def test_a_rollback_that_is_interrupted_at_any_step_is_completed_by_the_next_one(
    fault, removals, three
):
    """Also at the first removals of the files that are left, or at all of them."""
    repository, after, _ = three
    seen = []
    for status, words in each_rollback(repository, fault):
        assert status in (-signal.SIGKILL, CRASHED), words
        seen.append((pinned(repository), (repository / "movies" / "3").exists()))
        if (repository / "movies" / "3").exists():
            assert rollback(repository, "movies") == 2
        # Otherwise all was done, and what was removed lies beside the repository.
        assert recover_repository(repository, "movies") == 2
        assert tree(repository) == after
        assert strangers(repository) == set()
        if seen.count((2, False)) == removals:
            break
    assert set(seen) == {(3, True), (2, True), (2, False)}


@pytest.mark.parametrize("settle", ["export", "recover"])
def test_what_an_interrupted_rollback_left_is_removed(settle, three, export):
    repository, after, _ = three
    left = []
    for _ in each_rollback(repository, faults.kill):
        if pinned(repository) == 2 and (repository / "movies" / "3").exists():
            left.append(shutil.copytree(repository.parent, repository.parent.with_name("left")))
            break
    assert left
    if settle == "recover":
        assert recover_repository(repository, "movies") == 2
        assert tree(repository) == after
        return
    assert in_child(lambda: export(path=repository, version=4))[0] == DONE
    assert pinned(repository) == 4
    assert verify(repository, "movies")


@pytest.mark.long
def test_a_rollback_that_fails_at_any_step_leaves_the_repository_as_it_was(three):
    repository, _, before = three
    failed = 0
    for status, words in each_rollback(repository, faults.fail):
        if status == DONE or "Older versions of movies could not be removed" in words:
            assert pinned(repository) == 2
            continue
        assert status == REFUSED, words
        assert "Nothing was published" in words
        assert tree(repository) == before
        failed += 1
    assert failed > 3


@pytest.mark.faults
def test_any_call_of_a_rollback_that_fails_leaves_the_repository_as_it_was(three, tally):
    repository, after, before = three
    original = shutil.copytree(repository, repository.parent.with_name("before"))
    for call in at_calls.each():
        shutil.rmtree(repository.parent)
        shutil.copytree(original, repository)

        def action(call=call):
            at_calls.arm(call, errno.EIO)
            try:
                rollback(repository, "movies")
            except UserWarning:  # what could not be removed
                assert at_calls.struck(call)
            os._exit(DONE if at_calls.struck(call) else CRASHED)

        status, words = in_child(action)
        if status == CRASHED:
            break
        assert pinned(repository) == (2 if status == DONE else 3), words
        if status == REFUSED:
            assert tree(repository) == before
        assert rollback(repository, "movies", 2) == 2
        assert tree(repository) == after
        tally()


def each_call(export, repository, arm):
    """Export version 2 with a fault at one call after the other; gives what came of each."""
    place = repository.parent
    original = shutil.copytree(place, place.with_name(f"{place.name} before"))
    for call in at_calls.each():
        shutil.rmtree(place)
        shutil.copytree(original, place)
        struck = os.pipe()

        def action(call=call, last=struck[1]):
            arm(call)
            try:
                export(path=repository, version=2)
            finally:
                os.write(last, b"!" if at_calls.struck(call) else b"")

        status, words = in_child(action)
        os.close(struck[1])
        with os.fdopen(struck[0], "rb") as pipe:
            if status != -signal.SIGKILL and not pipe.read():
                assert status in (DONE, REFUSED), words
                break
        yield status, words


@pytest.mark.parametrize(
    ("repository", "reads"),
    [("nothing", False), pytest.param("another version 1", True, marks=pytest.mark.long)],
    indirect=["repository"],
)
def test_a_failure_at_any_step_leaves_the_repository_as_it_was(export, repository, reads, every):
    before = tree(repository) if repository.exists() else None
    for step, status, words in each_step(export, repository, faults.fail, every=every, reads=reads):
        if status == DONE or "Older versions of movies could not be removed" in words:
            # Removing staged files or old versions may fail: the export has done its work then.
            assert pinned(repository) == 2
            continue
        assert status == REFUSED, words
        assert "Expected to be able to write to" in words
        assert "Input/output error" in words
        assert (tree(repository) if repository.exists() else None) == before, step
        clean_up_after(repository)


@pytest.mark.parametrize("repository", ["version 1"], indirect=True)
def test_control_c_at_any_step_leaves_the_repository_as_it_was(export, repository, every):
    before = tree(repository)
    for step, status, words in each_step(export, repository, faults.interrupt, every=every):
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
def test_a_disk_that_is_full_from_some_step_on(export, repository, every):
    before = tree(repository)
    full = lambda: faults.fail(errno.ENOSPC)  # noqa: E731
    for step, status, words in each_step(export, repository, full, every=every, for_good=True):
        if status == DONE:
            assert pinned(repository) == 2
            continue
        assert status == REFUSED, words
        assert "No space left" in words
        assert tree(repository) == before, step
        clean_up_after(repository)


def test_tensorflow_out_of_space_is_told_like_any_other(export, tmp_path, full_disk):
    """TensorFlow writes by itself, and has errors of its own."""
    export()
    before = tree(tmp_path)
    with (
        full_disk(40_000),
        pytest.raises(faults.ExportError, match=r"Expected to be able to write.*too large"),
    ):
        export(version=2)
    assert tree(tmp_path) == before


def test_a_disk_that_is_really_full(export, tmp_path):
    """A small file system of its own, once full and once read-only."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", place]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("a file system can be mounted by root alone")
    try:
        export(path=place / "models")
        before = tree(place)
        with pytest.raises(faults.ExportError, match="No space left"):
            export(path=place / "models", version=2)
        assert tree(place) == before
        subprocess.run(["mount", "-o", "remount,ro", place], check=True)
        with pytest.raises(faults.ExportError, match=r"Read-only.*Nothing was published"):
            export(path=place / "models", version=2)
        assert verify(place / "models", "movies")
    finally:
        subprocess.run(["umount", place], check=True)
