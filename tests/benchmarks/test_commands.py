"""Commands of benchmarks: each explains itself, and runs at a small size."""

import argparse
import importlib
import re
import shlex
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
    importlib.import_module(f"benchmarks.{command}").main([*map(str, arguments)])


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


def test_documents_name_commands_and_options_that_exist(monkeypatch):
    class Parsed(Exception):  # noqa: N818 - an end, and no error
        pass

    parse = argparse.ArgumentParser.parse_args

    def parse_alone(parser, arguments):
        parse(parser, arguments)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_alone)
    folders = ((ROOT / "docs", "*.md"), (ROOT / "serving", "*.py"))
    files = [*ROOT.glob("*.md"), *(file for f, kind in folders for file in f.rglob(kind))]
    pages = [file.read_text() for file in files]
    pages.append((ROOT / "Makefile").read_text().replace("\n", "`"))
    cited = {
        (name, re.sub(r"[\[\]]|\.\.\.", "", options))
        for page in pages
        for name, options in re.findall(r"-m\s+benchmarks\.(\w+)([^`$]*)", page)
    } - {("charts", "")}
    assert {name for name, _ in cited} == {*COMMANDS}, "each command has a figure in a document"
    for name, options in sorted(cited):
        with pytest.raises(Parsed):
            run(name, *shlex.split(options))


def test_a_gpu_is_asked_for_where_there_is_none():
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there is one")
    with pytest.raises(SystemExit, match=r"Expected an NVIDIA GPU. Received: none"):
        run("training", "mlp", "--device", "gpu")


def test_the_loaders_contestants_read_the_same_rows(tmp_path, capsys, monkeypatch):
    small = ("--rows", 8000, "--rounds", 1, "--folder", tmp_path)
    run("loader", *small)
    said = capsys.readouterr().out
    assert len(re.findall(r"^\| (?:Polars|Keras|pyarrow|TFRecord)", said, re.MULTILINE)) == 15
    monkeypatch.setattr("benchmarks.feeds.decode_only", lambda _: [])
    with pytest.raises(SystemExit, match="Expected the same rows, ids and floats of all"):
        run("loader", *small)


@pytest.mark.long
def test_wide_and_deep_trains_on_whole_epochs_of_ids_and_of_hashed_integers(tmp_path, capsys):
    small = ("--shrink", 4_096, "--batch", 512, "--rounds", 1, "--folder", tmp_path)
    run("training", "identity", "hashed", "--rows", 4_096, *small)
    said = capsys.readouterr().out
    assert "the workflow hashed 4,096 rows once" in said
    assert (
        len(re.findall(r"^\| (?:feature columns|ours), (?:identity|hashed) ", said, re.MULTILINE))
        == 4
    )
    with pytest.raises(SystemExit, match=r"Expected rows for 4 batches of 512 .*Received: 1,024"):
        run("training", "identity", "--rows", 1_024, *small)
