"""A good workflow and a good program, for the attacks to spoil, and random cases for checks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workflow import Workflow, ops
from workflow.expressions.program.program_json import save_program

# The tables of attacks are modules beside the tests.
sys.path.insert(0, str(Path(__file__).parent))

import exploring

EXPLORED: dict[str, exploring.Explorer] = {}

DATA = {
    "userId": [7, 7, 2**60],
    "movieId": [1, 2, None],
    "rating": [5.0, None, 1.0],
    "price": [1.0, 2.0, 4.0],
}
MOVIES = {"movieId": [1, 2], "genres": [["a", "é"], ["a"]], "year": [1999, None]}


def good_workflow() -> Workflow:
    movies = ["movieId"] >> ops.JoinExternal(MOVIES, on="movieId")
    ids = (["userId"] + movies["genres"]) >> ops.Categorify()
    label = ["rating"] >> ops.FillMissing(0.0) >> ops.LambdaOp(lambda c: (c > 3).cast("int8"))
    return Workflow(ids + label + (["price"] >> ops.Normalize()) + movies["year"])


@pytest.fixture(scope="session")
def good_folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("good") / "workflow"
    good_workflow().fit(DATA).save(folder)
    return folder


@pytest.fixture(scope="session")
def good_program(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("good") / "program"
    folder.mkdir()
    save_program(good_workflow().fit(DATA).program, folder)
    return folder


@pytest.fixture
def explore(request) -> exploring.Explorer:
    """Random cases for a check; all tests that use it share the time."""
    users = [item for item in request.session.items if "explore" in item.fixturenames]
    explorer = exploring.Explorer(exploring.SECONDS / len(users))
    EXPLORED[request.node.name.removeprefix("test_")] = explorer
    return explorer


def pytest_terminal_summary(terminalreporter):
    if not exploring.SECONDS:
        return
    terminalreporter.section(f"random cases, FUZZ_SEED={exploring.SEED}")
    for name, explorer in EXPLORED.items():
        outcomes = ", ".join(f"{count:,} {kind}" for kind, count in explorer.outcomes.most_common())
        terminalreporter.line(f"{sum(explorer.outcomes.values()):>9,}  {name}: {outcomes}")
