"""Versions are published into a server that clients are asking: no failed request, no mixed answer."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
from generations import ROWS, Load, export, generation_of, pipeline
from server_processes import identity_of, processes
from tritonclient.grpc import InferenceServerClient
from tritonclient.utils import InferenceServerException

from exporter import rollback, verify
from exporter.repository.manifest import file_hashes
from serving import EnsembleClient, ServerError, TritonServer, check_parity
from serving.embedded.administration import Administration
from serving.embedded.installation import find_tritonserver, prepare
from serving.embedded.publication import LiveServer
from triton_models.healthcheck import probe
from workflow.files.durable import file_hash
from workflow.files.sealed import sealed, unsealed

RACE = "The server has ended by a race of Triton's own"
# `publish` must not start the server again, as other loads do (decision 42).
pytestmark = pytest.mark.flaky(reruns=2, only_rerun=RACE)


@pytest.fixture
def repository(tmp_path):
    return tmp_path / "models"


@pytest.fixture
def closed_to_others():
    """New files are this user's alone."""
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.fixture
def unwatched(tmp_path):
    """Starts servers without a model, by words of the command line; returns their addresses."""
    folders = [tmp_path / name for name in ("backends", "empty")]
    for folder in folders:
        folder.mkdir()
    environment, processes = prepare(find_tritonserver(), folders[0]), []

    def start(*words):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        command = [find_tritonserver().binary, f"--model-repository={folders[1]}", *words]
        command += ["--allow-http=false", "--allow-metrics=false", f"--grpc-port={port}"]
        command += ["--grpc-address=127.0.0.1"]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        processes.append(process)
        url, deadline = f"127.0.0.1:{port}", time.monotonic() + 60
        with InferenceServerClient(url) as client:
            while not is_live(client):
                assert process.poll() is None, "the server has ended"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.05)
        return url

    yield start
    for process in processes:
        process.terminate()
        process.wait(30)


def is_live(client):
    try:
        return client.is_server_live()
    except InferenceServerException:
        return False


def loaded(server):
    """The versions of each model that a server has loaded."""
    with InferenceServerClient(server.grpc_url) as plain:
        index = plain.get_model_repository_index(server.admin_headers)
    return {(m.name, int(m.version)) for m in index.models if m.state == "READY"}


@pytest.mark.long
def test_publications_and_a_rollback_under_load(repository):
    export(repository, 1, 1)
    with TritonServer(repository) as server, Load.of(server.grpc_url) as load:
        export(repository, 2, 2)
        assert server.publish("live") == 2
        load.expect(2)
        log = server.log_path.read_text()
        assert [log.count(f'"loading: {step}:2"') for step in ("live_nvt", "live_tf")] == [1, 1]
        rollback(repository, "live")
        assert server.publish("live") == 1
        load.expect(1)
        # The steps with which the server answered are no longer in the repository.
        names = {".live_nvt@candidate", ".live_tf@candidate", "live"}
        assert loaded(server) == {(name, 1) for name in names}
        # Another contract: new clients and old ones send another column.
        report = export(repository, 5, 3, column="views")
        assert server.publish("live") == 3
        load.expect(5)
        steps = {f"{step}_{report.generation}" for step in ("live_nvt", "live_tf")}
        assert loaded(server) == {(name, 3) for name in (*steps, "live")}
    assert load.generations == {1, 2, 5}
    assert verify(repository, "live") == report.generation
    assert not list(repository.glob(".*"))


def expect_parity(server, generation):
    with EnsembleClient(server.grpc_url, "live") as client:
        expect_parity_by(client, generation)


def expect_parity_by(client, generation):
    report = check_parity(client, *pipeline(generation), ROWS)
    assert report.passed, report
    assert {output.kind for output in report.outputs} == {"feature", "prediction"}


@pytest.mark.long
def test_a_second_publication_of_a_version_does_not_end_the_steps_that_answer(repository):
    export(repository, 1, 1)
    with TritonServer(repository) as server, Load.of(server.grpc_url) as load:
        export(repository, 2, 2)
        server.publish("live")
        rollback(repository, "live")
        server.publish("live")
        assert {(".live_nvt@candidate", 1), (".live_tf@candidate", 1)} < loaded(server)
        assert server.publish("live") == 1
        load.expect(1)
        assert loaded(server) == {("live_nvt", 1), ("live_tf", 1), ("live", 1)}
    assert not list(repository.glob(".*"))


@pytest.mark.long
def test_an_export_with_the_number_of_the_version_that_answers(repository):
    """After its files were removed by hand; its steps have that number too."""
    export(repository, 1, 1)
    with TritonServer(repository) as server, Load.of(server.grpc_url) as load:
        export(repository, 2, 2)
        server.publish("live")
        shutil.rmtree(repository)
        export(repository, 3, 2)
        assert server.publish("live") == 2
        load.expect(3)
        names = {".live_nvt@candidate", ".live_tf@candidate", "live"}
        assert loaded(server) == {(name, 2) for name in names}
    assert load.generations <= {1, 2, 3}


def unreadable_to_others(repository):
    needed = {path: 0o5 if path.is_dir() else 0o4 for path in (repository, *repository.rglob("*"))}
    return [path for path, bits in needed.items() if path.stat().st_mode & bits != bits]


@pytest.mark.long
@pytest.mark.usefixtures("closed_to_others")
def test_a_server_of_another_user_can_read_what_an_umask_would_close(repository):
    """Exports, a rollback, and the folders of a publication, of which the steps' stay."""
    export(repository, 1, 1)
    with TritonServer(repository) as server:
        export(repository, 2, 2)
        server.publish("live")
        rollback(repository, "live")
        server.publish("live")
        assert {path.name for path in repository.glob(".*")} == {
            ".live_nvt@candidate",
            ".live_tf@candidate",
        }
        assert unreadable_to_others(repository) == []
    fused = repository.with_name("fused")
    export(fused, 1, 1, runtime="fused_onnx", warm_up=False)
    export(fused, 2, 2, runtime="fused_onnx", warm_up=True)
    assert list((fused / "live" / "warmup").iterdir())
    assert unreadable_to_others(fused) == []


def test_parity_follows_a_rollback_and_a_refused_publication(repository):
    """An open client asks the step that answers for features, under its other name or version."""
    export(repository, 1, 1, runtime="onnx")
    with (
        TritonServer(repository) as server,
        EnsembleClient(server.grpc_url, "live") as client,
    ):
        export(repository, 2, 2, runtime="onnx")
        sealed_again(other_answers, "live")(repository, "2")
        with pytest.raises(ServerError, match="Version 1 continues to serve"):
            server.publish("live")
        assert ("live_nvt", 2) in loaded(server)
        expect_parity_by(client, 1)
        rollback(repository, "live")
        export(repository, 2, 3, runtime="onnx")
        server.publish("live")
        expect_parity_by(client, 2)
        rollback(repository, "live")
        server.publish("live")
        expect_parity_by(client, 1)


@pytest.mark.long
def test_kept_answers_of_a_number_are_not_given_for_another_version_that_has_it(repository):
    """After an ensemble was removed by hand and exported anew."""
    export(repository, 1, 1, response_cache=True)
    with (
        TritonServer(repository, response_cache_bytes=2**20) as server,
        EnsembleClient(server.grpc_url, "live") as client,
    ):

        def expect_answers_of(generation):
            answers = [client.predict(ROWS)["score"].to_numpy() for _ in range(3)]
            assert {generation_of(answer) for answer in answers} == {generation}

        expect_answers_of(1)
        for generation in (2, 3):
            export(repository, generation, 2, response_cache=True)
            assert server.publish("live") == 2
            expect_answers_of(generation)
            shutil.rmtree(repository)
            export(repository, 1, 1, response_cache=True)
            assert server.publish("live") == 1
            expect_answers_of(1)
            shutil.rmtree(repository)


def test_a_fused_model_is_published_and_rolled_back_under_load(repository):
    export(repository, 1, 1, runtime="fused_onnx")
    with TritonServer(repository) as server, Load.of(server.grpc_url, pause=0.02) as load:
        export(repository, 2, 2, runtime="fused_onnx")
        assert server.publish("live") == 2
        load.expect(2)
        assert loaded(server) == {("live", 1), ("live", 2)}
        rollback(repository, "live")
        assert server.publish("live") == 1
        load.expect(1)
    assert load.generations == {1, 2}
    assert {path.name for path in repository.iterdir()} == {"live"}


@pytest.mark.long
@pytest.mark.parametrize("runtime", ["tensorflow", "fused_onnx"])
def test_twenty_publications_under_load(runtime, repository, capsys):
    export(repository, 1, 1, runtime=runtime)
    switches, calm = [], []
    with TritonServer(repository) as server, Load.of(server.grpc_url) as load:
        for version in range(2, 22):
            export(repository, version, version, runtime=runtime)
            start = time.perf_counter()
            assert server.publish("live") == version
            end = time.perf_counter()
            load.expect(version, answers=200)
            switches.append((start, end))
            calm.append((end, time.perf_counter()))
    assert load.generations == {*range(1, 22)}
    inside, outside = load.percentile(switches, 99), load.percentile(calm, 99)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{runtime}: {len(load.answers):,} answers of 4 clients, 0 failed; p99 {1e3 * inside:.1f} ms "
            f"in a publication, {1e3 * outside:.1f} ms after one: {inside / outside:.1f} times\n"
        )


@pytest.mark.long
def test_one_kept_version_is_enough_to_publish_without_an_interruption(repository):
    """The steps with which the server answers are no longer in the repository."""
    export(repository, 1, 1, keep_versions=1)
    with TritonServer(repository) as server, Load.of(server.grpc_url) as load:
        for version in (2, 3):
            export(repository, version, version, keep_versions=1)
        server.publish("live")
        load.expect(3)
        names = {".live_nvt@candidate", ".live_tf@candidate"}
        assert loaded(server) == {(name, 3) for name in names} | {("live", 3)}
        export(repository, 4, 4, keep_versions=1)
        server.publish("live")
        load.expect(4)
        assert loaded(server) == {("live_nvt", 4), ("live_tf", 4), ("live", 4)}
    assert load.generations == {1, 3, 4}
    assert {path.name for path in repository.iterdir()} == {"live", "live_nvt", "live_tf"}


def truncated(repository, version):
    (repository / "live_nvt" / version / "program.json").write_bytes(b"{")


def without_code(repository, version):
    (repository / "live_nvt" / version / "model.py").unlink()


def garbage(repository, version):
    graph = repository / "live_tf" / version / "model.savedmodel" / "saved_model.pb"
    graph.write_bytes(b"garbage")


def without_golden_rows(repository, version):
    (repository / "live" / version / "golden.json").unlink()


def changed_golden_rows(repository, version):
    path = repository / "live" / version / "golden.json"
    path.write_text(path.read_text().replace("zeros", "zeroes"))


def sealed_again(break_, model):
    """Broken with checksums that fit, as by a file that no export could have proven."""

    def broken(repository, version):
        break_(repository, version)
        step = repository / model / version
        path = repository / "live" / version / "manifest.json"
        manifest = unsealed(path.read_bytes(), str(path))
        if model != "live":
            files = {n: h for n, h in file_hashes(step).items() if n != "manifest.json"}
            manifest["models"][model] = files
            part = json.loads((step / "manifest.json").read_text())
            (step / "manifest.json").write_text(json.dumps(part | {"files": files}))
        manifest["golden"] = file_hash(path.with_name("golden.json"))
        path.write_bytes(sealed(manifest))

    return broken


def other_answers(repository, version):
    path = repository / "live" / version / "golden.json"
    rows = json.loads(path.read_text())
    rows["rows"][0]["outputs"][0]["data"][0] += 1
    path.write_text(json.dumps(rows))


def failing_when_it_is_asked_again(repository, version):
    """The first answers to the golden rows are right, and so the server takes the version over."""
    rows = len(json.loads((repository / "live" / version / "golden.json").read_text())["rows"])
    with (repository / "live_nvt" / version / "model.py").open("a") as model:
        model.write(f"""

class TritonPythonModel(TritonPythonModel):
    golden = 0

    def _read(self, request):
        self.golden += request.request_id() == HEALTH_CHECK_ID
        if self.golden > {rows}:
            raise InputError("it was asked before")
        return super()._read(request)
""")


def damaging(repository, version):
    """A step that damages the memory it shares with the server, as Triton's own race does."""
    with (repository / "live_nvt" / version / "model.py").open("a") as model:
        model.write("""
import re
from pathlib import Path

class TritonPythonModel(TritonPythonModel):
    def initialize(self, args):
        for region in set(re.findall("/dev/shm/.*", Path("/proc/self/maps").read_text())):
            with open(region, "r+b") as memory:
                memory.write(b"\\xff" * Path(region).stat().st_size)
""")


def killing_once(repository, version):
    """A step whose server is killed while it is loaded for the first time, as for lack of memory."""
    killed = repository.with_name("killed")
    with (repository / "live_nvt" / version / "model.py").open("a") as model:
        model.write(f"""
import os
from pathlib import Path

if not Path({str(killed)!r}).exists():
    Path({str(killed)!r}).touch()
    os.kill(os.getppid(), 9)
""")


def test_a_server_that_is_killed_in_a_publication_needs_no_rollback(repository):
    export(repository, 1, 1)
    with TritonServer(repository) as server:
        export(repository, 2, 2)
        sealed_again(killing_once, "live_nvt")(repository, "2")
        with pytest.raises(ServerError, match="Publish again when it does") as refusal:
            server.publish("live")
        assert "publishes the version before it again" not in str(refusal.value)
    with TritonServer(repository) as server:
        expect_parity(server, 2)
        assert server.publish("live") == 2


def test_a_server_that_is_killed_when_it_has_taken_a_version_over(repository, monkeypatch):
    export(repository, 1, 1, runtime="onnx")
    with TritonServer(repository) as server:
        export(repository, 2, 2, runtime="onnx")
        found = processes(identity_of(server)).items()
        (pid,) = [process for process, name in found if name == "tritonserver"]
        versions = Administration.versions

        def killing(administration, model, seconds):
            found = versions(administration, model, seconds)
            if model == "live" and found.get(2) == "READY":
                os.kill(pid, signal.SIGKILL)
            return found

        monkeypatch.setattr(Administration, "versions", killing)
        assert server.publish("live") == 2
    assert not list(repository.glob(".*"))


@pytest.mark.parametrize("tolerance", [float("nan"), float("inf"), -1])
def test_a_tolerance_within_which_all_answers_are_right_is_refused(tolerance, repository):
    with pytest.raises(ServerError, match=f"Expected a finite tolerance.*Received: {tolerance}"):
        LiveServer(repository, "127.0.0.1:1", "key").publish("live", tolerance=tolerance)
    assert not repository.exists()


@pytest.mark.parametrize(
    ("name", "received"), [("lvie", "no config"), ("live", "a config without a version")]
)
def test_a_model_that_no_export_wrote_is_named(name, received, repository):
    (repository / "live").mkdir(parents=True)
    (repository / "live" / "config.pbtxt").write_text('platform: "ensemble"')
    with pytest.raises(ServerError, match=rf"exported model in .*{name}\. Received: {received}"):
        LiveServer(repository, "127.0.0.1:1", "key").publish(name)


@pytest.mark.flaky(reruns=0)
def test_a_server_that_a_publication_ends_is_told_from_a_wrong_version(repository):
    export(repository, 1, 1)
    with TritonServer(repository) as server:
        export(repository, 2, 2)
        sealed_again(damaging, "live_nvt")(repository, "2")
        with pytest.raises(ServerError, match=f"{RACE}.*start it again"):
            server.publish("live")


@pytest.mark.parametrize("cached", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_version_that_fails_after_it_took_over_is_taken_back(cached, repository):
    export(repository, 1, 1, response_cache=cached)
    with TritonServer(repository, response_cache_bytes=2**20 * cached) as server:
        export(repository, 2, 2, response_cache=cached)
        manifest = repository / "live" / "2" / "manifest.json"
        whole = manifest.read_bytes()
        sealed_again(failing_when_it_is_asked_again, "live_nvt")(repository, "2")
        with pytest.raises(ServerError, match="asked before") as refusal:
            server.publish("live")
        refusal.match("Version 1 continues to serve")
        probe(server.http_url, "live")  # Behind a cache it asks the steps of version 1.
        expect_parity(server, 1)
        assert {each for each in loaded(server) if each[0] == "live"} == {("live", 1)}
        manifest.write_bytes(whole)
        rollback(repository, "live")
        export(repository, 3, 3, response_cache=cached)
        assert server.publish("live") == 3
        expect_parity(server, 3)


def test_a_first_version_that_fails_after_it_took_over_does_not_serve(repository):
    export(repository, 1, 1)
    export(repository, 2, 2)
    sealed_again(failing_when_it_is_asked_again, "live_nvt")(repository, "2")
    with TritonServer(repository, ["live_tf"]) as server:
        with pytest.raises(ServerError, match="asked before") as refusal:
            server.publish("live")
        refusal.match("The server has no version of it")
        assert "live" not in {name for name, _ in loaded(server)}


def test_a_server_that_cannot_take_a_version_is_named_without_a_rollback(repository, unwatched):
    export(repository, 1, 1, runtime="onnx")
    with pytest.raises(ServerError, match=r"server at 127\.0\.0\.1:1 .*UNAVAILABLE") as refusal:
        LiveServer(repository, "127.0.0.1:1", "key").publish("live")
    assert "rollback" not in str(refusal.value)
    for mode in ("none", "poll"):
        url = unwatched(f"--model-control-mode={mode}")
        with pytest.raises(ServerError, match=r"--model-control-mode=explicit") as refusal:
            LiveServer(repository, url, "key").publish("live")
        assert "rollback" not in str(refusal.value)


def test_a_server_of_another_copy_of_the_repository_is_told(repository, tmp_path):
    export(repository, 1, 1, runtime="onnx")
    copy = tmp_path / "copy"
    shutil.copytree(repository, copy)
    with TritonServer(copy, admin_key="key") as server:
        export(repository, 2, 2, runtime="onnx")
        with pytest.raises(ServerError, match=r"reads another folder than this process") as refusal:
            LiveServer(repository, server.grpc_url, "key").publish("live")
        refusal.match("Version 1 continues to serve.*Name the folder that the server reads")
        assert "rollback" not in str(refusal.value)
        expect_parity(server, 1)


def test_a_repository_that_cannot_be_written_is_named_without_a_rollback(repository):
    export(repository, 1, 1, runtime="fused_onnx")
    with TritonServer(repository) as server:
        export(repository, 2, 2, runtime="fused_onnx")
        in_the_way = repository / ".live@candidate"
        in_the_way.touch()
        with pytest.raises(ServerError, match="where that can be written") as refusal:
            server.publish("live")
        refusal.match("Version 1 continues to serve.*live@candidate")
        assert "rollback" not in str(refusal.value)
        in_the_way.unlink()
        assert server.publish("live") == 2


BROKEN = {
    "truncated": (truncated, r"program\.json is not what the export wrote"),
    "without_code": (without_code, r"Expected .*live_nvt/\d/model\.py, which was exported"),
    "garbage": (garbage, r"saved_model\.pb is not what the export wrote"),
    "without_golden_rows": (without_golden_rows, r"No such file or directory: .*golden\.json"),
    "changed_golden_rows": (changed_golden_rows, r"golden\.json is not what the export wrote"),
    "sealed_truncated": (
        sealed_again(truncated, "live_nvt"),
        "load failed for model 'live_nvt'",
    ),
    "sealed_garbage": (sealed_again(garbage, "live_tf"), "load failed for model 'live_tf'"),
    "sealed_other_answers": (
        sealed_again(other_answers, "live"),
        (
            r"\.live@candidate to answer the golden row '.*' as its export did\. "
            r"Received: the output 'score' differs in 1 of 1 values"
        ),
    ),
}


@pytest.mark.parametrize(
    "kinds",
    [
        ["without_code", "sealed_truncated", "sealed_other_answers"],
        pytest.param(list(BROKEN), marks=pytest.mark.long),
    ],
    ids=["some", "all"],
)
def test_a_broken_version_leaves_the_old_one_serving(kinds, repository):
    """Each kind in turn, under load; the last step is a version that is whole."""
    export(repository, 1, 1)
    with TritonServer(repository) as server, Load.of(server.grpc_url, pause=0.02) as load:
        for number, (break_, reason) in enumerate((BROKEN[kind] for kind in kinds), start=2):
            export(repository, 2, number)
            manifest = repository / "live" / str(number) / "manifest.json"
            whole = manifest.read_bytes()
            break_(repository, str(number))
            with pytest.raises(ServerError, match=reason) as refusal:
                server.publish("live")
            refusal.match(rf"Version {number} of live was not published .* 1 continues to serve")
            refusal.match("`ensemble rollback live` publishes the version before it again")
            manifest.write_bytes(whole)
            assert rollback(repository, "live") == 1
        assert load.generations == {1}
        export(repository, 2, number + 1)
        server.publish("live")
        load.expect(2)
    assert load.generations == {1, 2}
