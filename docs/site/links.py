"""Links between the files of the repository, as links between the pages of the site."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Files outside of docs/ that are pages of the site.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
FILES = {page: file for file, page in PAGES.items()}
_LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")
_LANGUAGES = {".py": "python", ".json": "json", ".yml": "yaml"}


class Links:
    """The links of all pages, and the other files that they lead to.

    Attributes:
        files: paths in the repository, each of which gets a page that shows it.
    """

    def __init__(self) -> None:
        self.files: set[str] = set()

    def rewrite(self, text: str, page: str) -> str:
        """The Markdown of a page of the site with links to pages of the site.

        Args:
            text: Markdown with links relative to its file in the repository.
            page: the page's path in the site.
        """
        file = FILES.get(page, f"docs/{page}")

        def target(found: re.Match[str]) -> str:
            path = posixpath.normpath(posixpath.join(posixpath.dirname(file), found[1]))
            if path.startswith("..") or not (ROOT / path).exists():
                return found[1]  # the strict build names it, if it is a link
            return posixpath.relpath(self.page(path), posixpath.dirname(page) or ".")

        return _LINK.sub(target, text)

    def page(self, path: str) -> str:
        """The page that shows a file or folder of the repository."""
        if path in PAGES:
            return PAGES[path]
        inside = path.startswith("docs/")
        if inside and (ROOT / path).is_dir():
            return f"{path.removeprefix('docs/')}/index.md"
        if inside:
            return path.removeprefix("docs/")
        self.files.add(path)
        return f"files/{path}.md"


def file_page(path: str) -> str:
    """A page that shows a file of the repository."""
    language = _LANGUAGES.get(Path(path).suffix, "text")
    text = (ROOT / path).read_text()
    return f"---\nsearch:\n  exclude: true\n---\n\n# {path}\n\n````{language}\n{text}````\n"
