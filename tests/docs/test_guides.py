"""The guides' code is run, one guide after the other in one folder, and prints what they say."""

import contextlib
import datetime as dt
import doctest
import io
import json
import os
import re
import shutil
import subprocess
import textwrap
from functools import reduce
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import exporter
import loader
import serving
import training
import workflow
from serving import EnsembleClient, TritonServer

ROOT = Path(__file__).parents[2]
GUIDES = ("workflow", "loader", "training", "export", "serving")
# Python, and the text that it prints where one follows.
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE)
# A program, and the text that it prints: for whom it is, and how it is run.
PROGRAM = re.compile(r"^```(sh|js|java)\n(.*?)^```\n\n```text\n(.*?)^```", re.DOTALL | re.MULTILINE)
RUN = {"sh": ("bash", "client.sh"), "js": ("node", "client.mjs"), "java": ("java", "Client.java")}
# Names of ours in prose and tables.
NAME = re.compile(r"`(?:workflow|loader|training|exporter|serving|ops|models|layers)\.[\w.]+")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def page(name):
    return (ROOT / "docs" / "guide" / f"{name}.md").read_text()


def expect_printed(name, printed, said):
    """Hold what was printed to a guide, in which "..." stands for anything."""
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    same = doctest.OutputChecker().check_output(said, printed, flags)
    assert same, f"the guide {name} says\n{said}\nand printed was\n{printed}"


PROGRAMS = PROGRAM.findall(page("clients"))
# The rows that each of them asks about, in the order of the page.
ASKED = [[0, 1], [2], [0, 2], [3]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder in which the code of all guides ran, one after the other."""
    folder = tmp_path_factory.mktemp("guides")
    with contextlib.chdir(folder):
        for name in GUIDES:
            run_guide(name)
    return folder


def run_guide(name):
    names = {"__name__": f"guide_{name}"}
    blocks = BLOCK.findall(page(name))
    assert blocks, name
    for code, said in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{name}.md", "exec"), names)  # noqa: S102 - our own pages
        if said:
            expect_printed(name, printed.getvalue(), said)


@pytest.fixture(scope="module")
def server(folder):
    """A server of the model that the last guide exported."""
    with TritonServer(folder / "models", ["shop"]) as server:
        yield server


# The servers that these start come one at a time with those of other tests.
@pytest.mark.xdist_group("end_to_end")
def test_the_guides_do_what_they_say(folder):
    assert (folder / "models" / "shop").is_dir()


@pytest.mark.xdist_group("end_to_end")
@pytest.mark.parametrize(
    ("kind", "code", "said", "asked"),
    [(*program, asked) for program, asked in zip(PROGRAMS, ASKED, strict=True)],
    ids=[f"{kind}-{number}" for number, (kind, *_) in enumerate(PROGRAMS)],
)
def test_a_client_in_another_language_answers_as_ours(server, tmp_path, kind, code, said, asked):
    command, file = RUN[kind]
    if shutil.which(command) is None:
        pytest.skip(f"needs `{command}`, to run the program of docs/guide/clients.md")
    (tmp_path / file).write_text(code)
    printed = subprocess.run(
        [command, file],
        cwd=tmp_path,
        env={**os.environ, "TRITON": server.http_url},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    expect_printed("clients", printed, said)
    noon = dt.datetime(2026, 1, 31, 12)  # noqa: DTZ001 - the column has no zone
    rows = {
        "customer": ["c1", "never seen", None, "c1"],
        "category": ["shoes", "", None, "shoes"],
        "tags": [["new", "sale"], [], [None], ["new"]],
        "at": [noon, noon + dt.timedelta(days=1), None, None],
        "price": [9.9, 1.5, None, 9.9],
    }
    with EnsembleClient(server.grpc_url, "shop") as client:
        expected = client.predict(rows)["output"][:, 0]
    values = json.loads(re.findall(r"\[[^\[\]]*\]", printed)[-1])
    # Java prints the digits of float32, others those of the float64 that equals it.
    assert np.float32(values).tolist() == expected[asked].tolist()


@pytest.mark.parametrize(
    "path",
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_links_lead_to_files(path):
    lost = [
        target for target in LINK.findall(path.read_text()) if not (path.parent / target).exists()
    ]
    assert not lost


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *ROOT.glob("docs/guide/*.md")], ids=lambda path: path.name
)
def test_names_are_defined(path):
    roots = {"ops": workflow.ops, "models": training.models, "layers": training.layers}
    roots |= {m.__name__: m for m in (workflow, loader, training, exporter, serving)}
    fitted = workflow.Workflow(["price"]).fit({"price": [1.5]})
    lost = []
    for found in NAME.findall(path.read_text()):
        root, *rest = found.removeprefix("`").rstrip(".").split(".")
        # `workflow.fit` is a method of the object that every example calls so.
        start = fitted if root == "workflow" and hasattr(fitted, rest[0]) else roots[root]
        if reduce(lambda value, name: getattr(value, name, None), rest, start) is None:
            lost.append(found)
    assert not lost


@pytest.mark.parametrize("has_gpus", [True, False])
def test_slurms_variables_become_tf_config(has_gpus, monkeypatch):
    """The third task of `srun -N2 --ntasks-per-node=2` on the hosts h0 and h1 has these under Slurm 22.05."""
    slurm = {"PROCID": "2", "STEP_NUM_TASKS": "4", "STEP_NODELIST": "h[0-1]"}
    for name, value in (slurm | {"STEP_TASKS_PER_NODE": "2(x2)"}).items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setenv("TF_CONFIG", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1" if has_gpus else "")
    code = re.search(r"^    slurm = (?s:.*?)\n\n", page("training"), re.MULTILINE)[0]
    if not has_gpus:
        without = re.search(r"`(SlurmClusterResolver\(gpus.*?\))`", page("training"))[1]
        code = code.replace("SlurmClusterResolver()", without.replace("=8", "=2"))
    exec(textwrap.dedent(code), {"tf": tf, "os": os, "json": json})  # noqa: S102 - the guide's
    config = json.loads(os.environ["TF_CONFIG"])
    assert config["cluster"] == {"worker": ["h0:8888", "h0:8889", "h1:8888", "h1:8889"]}
    assert config["task"] == {"type": "worker", "index": 2}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ("0" if has_gpus else "")
