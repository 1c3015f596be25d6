"""The hook of MkDocs that adds pages made of other files, and the navigation."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import notebooks
from links import FILES, ROOT, Links, file_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from reference import Group, groups, pages, undocumented

DOCS = ROOT / "docs"
GUIDES = (
    "overview",
    "workflow",
    "loader",
    "training",
    "export",
    "serving",
    "clients",
    "operations",
    "migration",
)
TUTORIALS = {
    "movielens": "Movies",
    "flights": "Flights: dates, two keys",
    "baskets": "Baskets: lists, retrieval",
    "nvtabular": "From NVTabular",
    "publish": "Publish and roll back",
}
# In this order, and then whatever else is in docs/.
FACTS = ("benchmarks", "scale", "comparison", "parity", "reliability", "glossary")
FOLDERS = (("Guides", "guide"), ("Decisions", "decisions"), ("Tutorials", "tutorials"))
# Of each tutorial's page; Markdown would change the HTML of pictures.
_OUTPUTS: dict[str, list[str]] = {}
# Read once in each build.
_GROUPS: list[Group] = []
_PLACE = re.compile(r'<div data-output="(\d+)"></div>')
_LOG = logging.getLogger("mkdocs.hooks.pages")


def on_config(config: MkDocsConfig) -> None:
    """Compose the navigation of the files that there are."""
    _GROUPS[:] = groups()
    config.nav = [
        {"Start": "index.md"},
        {"Tutorials": ["tutorials/index.md", *_tutorials()]},
        {"Guides": _listed("guide")},
        {"Reference": [{group.path: _names(group)} for group in _GROUPS]},
        {"Facts": _facts()},
        {"Decisions": _listed("decisions")},
        {"Project": ["changelog.md", "contributing.md", "security.md", "releasing.md"]},
    ]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of other files."""
    for name in undocumented(_GROUPS):
        _LOG.warning("Expected a docstring of each public name. Received: none of %s.", name)
    made = [page for group in _GROUPS for page in pages(group)]
    made += [(page, (ROOT / file).read_text()) for page, file in FILES.items()]
    made += [(f"tutorials/{name}.md", _tutorial(name)) for name in TUTORIALS]
    made += [(f"{folder}/index.md", _index(title, folder)) for title, folder in FOLDERS]
    for page, text in made:
        files.append(File.generated(config, page, content=text))
    for page, text in _file_pages(files):
        level = InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, page, content=text, inclusion=level))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links to files of the repository to the pages that show them."""
    return Links().rewrite(markdown, page.file.src_uri)


def on_page_content(html: str, page: Page, **_: Any) -> str:
    """Put the outputs of a tutorial into their places."""
    outputs = _OUTPUTS.get(page.file.src_uri, [])
    return _PLACE.sub(lambda found: outputs[int(found[1])], html) if outputs else html


def _file_pages(files: Files) -> Iterator[tuple[str, str]]:
    links = Links()
    for file in files.documentation_pages():
        links.rewrite(file.content_string, file.src_uri)
    for path in sorted(links.files):
        yield links.page(path), file_page(path)


def _tutorials() -> list[dict[str, str]]:
    return [{title: f"tutorials/{name}.md"} for name, title in TUTORIALS.items()]


def _tutorial(name: str) -> str:
    text, outputs = notebooks.page(notebooks.FOLDER / f"{name}.ipynb")
    _OUTPUTS[f"tutorials/{name}.md"] = outputs
    return text


def _facts() -> list[str]:
    found = {file.stem for file in DOCS.glob("*.md")} - {"releasing"}
    return [f"{name}.md" for name in [*FACTS, *sorted(found - set(FACTS))] if name in found]


def _names(group: Any) -> list[str]:
    return [group.index, *[group.page(name) for name in sorted(group.names, key=str.lower)]]


def _listed(folder: str) -> list[str]:
    """The pages of a folder: its index, then guides in the order of the data, others by name."""
    files = sorted((DOCS / folder).glob("*.md"), key=_place)
    return [f"{folder}/index.md", *[f"{folder}/{file.name}" for file in files]] if files else []


def _place(file: Path) -> tuple[int, str]:
    return GUIDES.index(file.stem) if file.stem in GUIDES else len(GUIDES), file.name


def _index(title: str, folder: str) -> str:
    lines = [f"# {title}\n"]
    if folder == "tutorials":
        lines += [f"- [{text}]({name}.md)" for name, text in TUTORIALS.items()]
    for page in _listed(folder)[1:]:
        text = (DOCS / page).read_text()
        heading = re.match(r"# (.+)", text)
        lines.append(f"- [{heading[1] if heading else page}]({Path(page).name})")
    return "\n".join(lines) + "\n"
