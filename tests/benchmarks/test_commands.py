"""Commands of benchmarks: each explains itself, and runs at a small size."""

import re
from importlib import import_module
from pathlib import Path

import pytest
import tensorflow as tf

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(
    path.stem
    for path in (ROOT / "benchmarks").glob("*.py")
    if "def main(arguments:" in path.read_text()
)


def run(command, *arguments):
    import_module(f"benchmarks.{command}").main([*map(str, arguments)])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_says_how_a_command_is_called(command, capsys):
    with pytest.raises(SystemExit) as end:
        run(command, "--help")
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert f"python -m benchmarks.{command}" in said
    assert re.search(r"--rows|--seconds|--gigabytes|--batch|--sizes|--quick", said), (
        "its size can be chosen"
    )


def test_documents_name_commands_that_exist():
    texts = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), ROOT / "Makefile"]
    named = {
        name
        for text in texts
        for name in re.findall(r"(?:python |-)m\s+benchmarks\.(\w+)", text.read_text())
    }
    assert named, "no document cites a benchmark"
    for name in sorted(named):
        source = (ROOT / "benchmarks" / f"{name}.py").read_text()
        assert 'if __name__ == "__main__":' in source


def test_a_gpu_is_asked_for_where_there_is_none():
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there is one")
    with pytest.raises(SystemExit, match=r"Expected an NVIDIA GPU. Received: none"):
        run("training_step", "--device", "gpu")


def test_the_loaders_contestants_read_the_same_rows(tmp_path, capsys):
    run("loader", "--rows", 8000, "--rounds", 1, "--folder", tmp_path)
    totals = {
        name.strip(): [*map(str.strip, cells)]
        for name, *cells in (
            line[2:-2].split(" | ")
            for line in capsys.readouterr().out.splitlines()
            if "8,000," in line
        )
    }
    # Merlin's loader takes part where `make bench-peers` has made its environment.
    own = [name for name in totals if not name.startswith("Merlin")]
    assert len(own) == 14, "all but the windowed loader, which reads a sample"
    assert len({cells[-1] for cells in totals.values()}) == 1


@pytest.mark.long
def test_the_backend_of_a_server_runs_beside_tensorflow(capsys):
    run("serving", "--backend", "--seconds", 0.01)
    rows = re.findall(
        r"^\| (TensorFlow 2, signature|backend) \|", capsys.readouterr().out, re.MULTILINE
    )
    assert rows == ["TensorFlow 2, signature", "backend"]


@pytest.mark.long
def test_wide_and_deep_trains_on_whole_epochs_of_ids_and_of_hashed_integers(tmp_path, capsys):
    small = ("--shrink", 4_096, "--batch", 512, "--rounds", 1, "--folder", tmp_path)
    run("wide_and_deep", "--rows", 4_096, *small)
    said = capsys.readouterr().out
    assert "the workflow hashed 4,096 rows once" in said
    assert (
        len(re.findall(r"^\| (?:feature columns|ours), (?:identity|hashed) ", said, re.MULTILINE))
        == 4
    )
    with pytest.raises(SystemExit, match=r"Expected rows for 4 batches of 512 .*Received: 1,024"):
        run("wide_and_deep", "--rows", 1_024, *small)
