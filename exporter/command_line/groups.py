"""Groups of options that several commands have: a dataclass, each field of which is an option."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from typing import Any


def parameters_of(command: Callable[..., None]) -> list[inspect.Parameter]:
    """The parameters of a command, with the fields of each group in the group's place.

    Example:
        >>> from exporter.command_line.commands.openapi import openapi
        >>> [parameter.name for parameter in parameters_of(openapi)][:3]
        ['name', 'url', 'model_version']
    """
    parameters: list[inspect.Parameter] = []
    for parameter in _signature(command).values():
        group = _group(parameter)
        parameters += [parameter] if group is None else _signature(group).values()
    # So that those without a default, as a group has, may follow others.
    return [parameter.replace(kind=parameter.KEYWORD_ONLY) for parameter in parameters]


def grouped(command: Callable[..., None], values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a command, from the values of its parameters as `parameters_of` has them."""
    arguments = {}
    for name, parameter in _signature(command).items():
        group = _group(parameter)
        if group is None:
            arguments[name] = values[name]
        else:
            arguments[name] = group(**{field: values[field] for field in _signature(group)})
    return arguments


def _group(parameter: inspect.Parameter) -> type[Any] | None:
    annotation = parameter.annotation
    return annotation if isinstance(annotation, type) and is_dataclass(annotation) else None


def _signature(of: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(of, eval_str=True).parameters
