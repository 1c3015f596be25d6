"""The page of what the parity suite covers is true, and has no holes."""

from pathlib import Path

import matrix
import test_runtimes

from exporter.plan import runtime

PAGE = Path(__file__).parents[2] / "docs" / "parity.md"


def test_the_page_says_what_the_suite_does():
    remedy = "run `python tests/end_to_end/matrix.py > docs/parity.md`"
    assert PAGE.read_text() == matrix.page(), remedy


def test_the_page_claims_nothing_of_a_runtime_that_is_not_served(monkeypatch):
    page = matrix.page()
    monkeypatch.setitem(runtime.RUNTIMES, "elsewhere", runtime.RuntimeKind(is_served=False))
    (line,) = set(matrix.page().splitlines()) - set(page.splitlines())
    names = [f"`{name}`" for name, kind in runtime.RUNTIMES.items() if not kind.is_served]
    assert line == f"Exported, and not served here: {', '.join(names)}."


def test_every_runtime_is_asked_in_every_layout():
    made = {(runtime, batch > 0): sent for runtime, batch, sent, _ in matrix.layouts()}
    assert len(made) == 2 * len(test_runtimes.SERVED)
    for (_, is_joined), sent in made.items():
        assert set(sent) == {"scalar", "padded" if is_joined else "flat"}


def test_all_that_is_hard_is_among_the_rows():
    """Each kind of value in a column of its own dtype, and what lists hold as well."""
    scalars, lists = {}, set()
    for _, dtype, found in matrix.columns():
        if matrix.kind_of(dtype) == "list":
            lists |= set(found)
        else:
            scalars.setdefault(matrix.kind_of(dtype), set()).update(found)
    for kind in ("whole", "real", "text"):
        assert scalars[kind] >= {*matrix.KINDS[kind], "null", "unseen"}
    inside = [*matrix.KINDS["whole"], *matrix.KINDS["text"], "null", "unseen"]
    assert lists == {*matrix.KINDS["list"], *(f"in a list {kind}" for kind in inside)}
