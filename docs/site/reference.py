"""Pages of the API reference: one for each name in the `__all__` of a package."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import griffe

ROOT = Path(__file__).parents[2]
PACKAGES = ("workflow", "loader", "training", "exporter", "serving")
# A user writes its settings; its methods are for whoever writes an operator.
OPERATORS = "workflow.ops"
# Of a base that other modules use too, these are for users.
INHERITED = {"Workflow": ["is_fitted", "operators", "output_schema", "show", "to_svg"]}


@dataclass(frozen=True)
class Group:
    """The public names of a package, or of a module that a package makes public.

    Attributes:
        path: the module's full name, such as `workflow.ops`.
        names: its public objects by name, without modules. A function that is named as its module
            is behind the module: `training.models.mlp.mlp`.
        summary: the module's docstring.
    """

    path: str
    names: dict[str, griffe.Object]
    summary: str

    def page(self, name: str) -> str:
        """The page of a name, in the docs folder."""
        return f"reference/{self.path}/{name}.md"

    @property
    def index(self) -> str:
        """The page with all names."""
        return f"reference/{self.path}/index.md"


def groups() -> list[Group]:
    """Every public name, by package, found without importing the packages."""
    loader = griffe.GriffeLoader(search_paths=[ROOT], docstring_parser="google")
    modules = [loader.load(package) for package in PACKAGES]
    loader.resolve_aliases()
    return [group for module in modules for group in _groups(_object(module))]


def _groups(module: griffe.Object) -> Iterator[Group]:
    members = {str(name): _member(module, str(name)) for name in module.exports or ()}
    names = {name: value for name, value in members.items() if not value.is_module}
    yield Group(module.path, names, module.docstring.value if module.docstring else "")
    for value in members.values():
        if value.is_module:
            yield from _groups(value)


def _member(module: griffe.Object, name: str) -> griffe.Object:
    value = _object(module[name])
    return _object(value[name]) if value.is_module and name in value.members else value


def _object(value: griffe.Object | griffe.Alias) -> griffe.Object:
    return value.final_target if isinstance(value, griffe.Alias) else value


def pages(group: Group) -> Iterator[tuple[str, str]]:
    """The paths and texts of a group's pages."""
    title, *rest = group.summary.split("\n\nExample:")[0].split("\n\n")
    lines = [
        f"| [`{name}`]({name}.md) | {summary(value)} |"
        for name, value in sorted(group.names.items(), key=lambda item: item[0].lower())
    ]
    text = "\n\n".join([f"# {group.path}", title, *rest])
    yield group.index, f"{text}\n\n| name | |\n|---|---|\n" + "\n".join(lines) + "\n"
    for name, value in group.names.items():
        hidden = ("members", "inherited_members") if group.path == OPERATORS else ()
        options: dict[str, Any] = dict.fromkeys(hidden, False)
        if name in INHERITED:
            options["inherited_members"] = INHERITED[name]
        path = value.path if value.is_function else f"{group.path}.{name}"
        yield (
            group.page(name),
            f"---\ntitle: {name}\n---\n\n::: {path}\n    {json.dumps({'options': options})}\n",
        )


def summary(value: griffe.Object) -> str:
    """The first line of a docstring."""
    text = value.docstring.value if value.docstring else ""
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def undocumented(found: list[Group]) -> list[str]:
    """Public names, and public methods of public classes, that have no docstring."""
    missing = []
    for group in found:
        for name, value in group.names.items():
            shown = {name: value}
            if value.is_class and group.path != OPERATORS:
                shown |= {f"{name}.{key}": method for key, method in _methods(value)}
            missing += [f"{group.path}.{key}" for key, v in shown.items() if not v.docstring]
    return missing


def _methods(value: griffe.Object) -> Iterator[tuple[str, griffe.Object]]:
    for name, member in value.members.items():
        if not name.startswith("_") and not member.is_alias and member.is_function:
            yield name, _object(member)
