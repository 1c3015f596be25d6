"""CONTRIBUTING.md names places that exist, and docstrings open as it says."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import tables
from expected_names import expect_names

from exporter import ServingOptions
from exporter.plan.runtime import AUTO, RUNTIMES
from workflow import ops
from workflow.operator.operator import OPERATORS
from workflow.schema.dtypes import DTYPES, dtype_of

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
PACKAGES = ("workflow", "loader", "training", "exporter", "serving", "triton_models")
# "Whether" asks for an answer that the function returns.
HEADLESS = re.compile(r"(What|Those|That of|Of|Which|Who|How|Where|When|Why|By|For|From|If)\b")
PLACE = re.compile(
    r"\b(?:(?:workflow|loader|training|exporter|serving|triton_models|tests|docs)/[\w/.-]*\w)"
)


def test_every_file_and_folder_that_it_names_is_there():
    named = set(PLACE.findall(TEXT))
    assert len(named) > 40
    assert not [place for place in sorted(named) if not (ROOT / place).exists()]


def test_each_operator_of_a_file_is_public():
    for module in pkgutil.walk_packages(ops.__path__, "workflow.ops."):
        importlib.import_module(module.name)
    own = [name for name, kind in OPERATORS.items() if kind.__module__.startswith("workflow.ops.")]
    expect_names("the imports and __all__ of workflow/ops/__init__.py", {*ops.__all__}, own)


@pytest.mark.parametrize("place", ["tests/workflow/ops", "tests/conformance/random_workflows.py"])
def test_the_tests_name_each_operator(place):
    files = [*(ROOT / place).glob("*.py")] or [ROOT / place]
    words = set(re.findall(r"\w+", "".join(file.read_text() for file in files)))
    expect_names(f"{place}, as CONTRIBUTING.md says", words.intersection(ops.__all__), ops.__all__)


def test_the_guide_has_each_operator_in_its_table():
    guide = (ROOT / "docs" / "guide" / "workflow.md").read_text()
    table = guide.split("## The operators")[1].split("\n\n")[2]
    named = set(re.findall(r"`([A-Z]\w+)`", table))
    expect_names('the table of "The operators" in docs/guide/workflow.md', named, ops.__all__)


# Other widths of kinds that the tables have.
WITHOUT_COLUMNS = {"int16", "int32", "uint8", "uint32"}


def test_the_tables_of_the_references_have_each_dtype():
    dtypes = (getattr(dtype, "inner", dtype) for dtype in tables.DTYPES.values())
    names = {dtype_of(dtype).name for dtype in dtypes if not dtype.is_temporal()}
    expect_names("DTYPES of tests/reference/tables.py", names, DTYPES.keys() - WITHOUT_COLUMNS)


def test_dtypes_are_in_the_order_in_which_advice_takes_them():
    kinds = ["bool", "int", "uint", "float", "string"]
    rows = sorted(DTYPES.values(), key=lambda d: (kinds.index(d.kind), d.numpy.itemsize))
    assert [*DTYPES] == [row.name for row in rows], "in DTYPES of workflow/schema/dtypes.py"


@pytest.mark.parametrize("page", ["export", "overview"])
def test_a_guide_has_each_runtime_in_its_table_and_only_the_fused_ones_as_one_model(page):
    guide = (ROOT / "docs" / "guide" / f"{page}.md").read_text()
    rows = re.findall(r'^\| `"(\w+)"`[^|]*\| ([^|]+) \|', guide, re.MULTILINE)
    place = f"the table of runtimes in docs/guide/{page}.md"
    expect_names(place, [name for name, _ in rows], list(RUNTIMES))
    fused = [name for name, kind in RUNTIMES.items() if kind.is_fused]
    as_one = [name for name, models in rows if models.startswith("one ")]
    expect_names(f'{place} that are "one ..." model', as_one, fused)
    # The docstring of ServingOptions is the reference.
    described = re.findall(r'^ +"(\w+)":', ServingOptions.__doc__, re.MULTILINE)
    expect_names("ServingOptions of exporter/plan/options.py", described, [*RUNTIMES, AUTO])


def docstrings(file):
    """Each docstring of a file, with the line at which it stands."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text


def test_a_docstring_opens_with_a_noun_phrase_or_an_imperative():
    places = (*PACKAGES, "benchmarks", "tests", "examples")
    files = [file for place in places for file in (ROOT / place).rglob("*.py")]
    assert len(files) > 700
    assert not [
        f"{file.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for file in files
        for line, text in docstrings(file)
        if HEADLESS.match(text)
        or (file.relative_to(ROOT).parts[0] != "tests" and re.match(r"(As|With)\b", text))
    ]


def test_a_folder_has_few_modules():
    many = {"workflow/ops"}  # one file an operator
    folders = {file.parent for package in PACKAGES for file in (ROOT / package).rglob("*.py")}
    counts = {
        str(folder.relative_to(ROOT)): len([*folder.glob("*.py")])
        - (folder / "__init__.py").exists()
        for folder in folders
    }
    assert len(counts) > 60
    assert {folder: count for folder, count in counts.items() if count > 16}.keys() == many


def test_every_folder_has_a_docstring_that_says_what_belongs_there():
    for package in PACKAGES:
        for file in (ROOT / package).rglob("__init__.py"):
            assert re.match(r'"""[A-Z].+\.', file.read_text()), file


def private_names(file):
    """Each private name that a file reads, imports or replaces, with its line; its own are left out."""
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name("self" | "cls")):
                continue
            case ast.Attribute(attr=name):
                names = [name]
            case ast.ImportFrom(names=aliases):
                names = [alias.name for alias in aliases]
            case ast.Call(
                func=ast.Attribute(attr="setattr"), args=[_, ast.Constant(str(name)), *_]
            ):
                names = [name]
            case _:
                continue
        for name in names:
            if re.match(r"_(?!_|repr_html_|replace\b)", name):
                yield node.lineno, name


def test_tests_ask_for_public_names():
    """A private name changes without notice, and no user misses what it does."""
    product = {
        name
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        for name in re.findall(
            r"(?:def |class |self\.|^)(_(?!_)\w+)", file.read_text(), re.MULTILINE
        )
    }
    assert len(product) > 1000
    assert not [
        f"{file.relative_to(ROOT)}:{line}: {name}"
        for file in (ROOT / "tests").rglob("*.py")
        if file.parent.name != "gpu" and file.name != "test_private_names.py"
        for line, name in private_names(file)
        if name in product
    ]


# No code of ours runs in these but what the tests beside them name.
WITHOUT_TESTS = {
    "workflow/ops/_vocabulary",  # parts of Categorify, in tests/workflow/ops
    "triton_models/preprocess",  # runs as exported, in tests/exporter/write
    "training/network",  # the networks of exports, in tests/exporter/network
}
# Tests of several packages together, and of what is no code.
ACROSS = {
    "attacks",
    "conformance",
    "end_to_end",
    "faults",
    "frameworks",
    "gpu",
    "real_data",
    "reference",
}


def folders_of(root, pattern, *places):
    return {
        file.parent.relative_to(root).as_posix()
        for place in places
        for file in (root / place).rglob(pattern)
        if file.name != "__init__.py"
    }


def test_tests_have_the_folders_of_the_product():
    product = folders_of(ROOT, "*.py", *PACKAGES)
    tests = folders_of(ROOT / "tests", "test_*.py", *PACKAGES)
    assert len(product) > 60
    assert product - tests == WITHOUT_TESTS
    assert tests - product == {"exporter/network"}  # exports of networks of training/network


def test_other_folders_of_tests_are_few():
    folders = {path.parent.name for path in ROOT.glob("tests/*/test_*.py")} - {*PACKAGES}
    assert {name for name in folders if not (ROOT / name).is_dir()} == ACROSS


GLOSSARY = (ROOT / "docs/glossary.md").read_text()
ENTRIES = re.findall(r"^\| ([^|`]+?) \| .+ \| `([^`]+)` \|$", GLOSSARY, re.MULTILINE)


def test_each_word_of_the_glossary_stands_once_and_its_place_exists():
    words = [word for word, _ in ENTRIES]
    assert len(words) > 40
    assert len(set(words)) == len(words)
    assert not [place for _, place in ENTRIES if not (ROOT / place).exists()]
    assert len(ENTRIES) == len(re.findall(r"^\| (?!word )[a-z]", GLOSSARY, re.MULTILINE))
