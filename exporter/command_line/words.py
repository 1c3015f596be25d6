"""Options that several commands have, and the answer for scripts."""

from __future__ import annotations

import ast
import json
from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exporter.command_line.guard import CommandError
from workflow.schema.names import did_you_mean

if TYPE_CHECKING:
    from workflow.data.delimited import TextFiles

Data = Annotated[
    list[str],
    typer.Argument(help="Files or patterns of parquet, CSV or TSV, or folders of parquet."),
]
NullValue = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TEXT",
        help="A field of CSV or TSV that is null, such as NA; may be repeated.",
    ),
]
RowsPerFile = Annotated[int, typer.Option(min=1, help="Rows of a file; the last one has the rest.")]
StorageOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="How to connect to the store of s3://, gs:// or az://; by default the environment.",
    ),
]
Json = Annotated[
    bool,
    typer.Option(
        "--json", help='Print the result as JSON, and an error as {"error": ..., "type": ...}.'
    ),
]


def with_nulls(data: Sequence[str], null_value: Sequence[str] | None) -> Sequence[str] | TextFiles:
    """The data of a command: its paths, or its CSV and TSV with the words of --null-value.

    Raises:
        CommandError: words for null are given for other files, which have nulls of their own.
        WorkflowError: no CSV or TSV file matches.
    """
    if not null_value:
        return data
    from workflow.data.delimited import TextFiles, text_paths  # noqa: PLC0415 - so that help is shown at once

    files = text_paths(data)
    if files is None:
        raise CommandError(
            f"Expected CSV or TSV with --null-value. Received: {', '.join(data)}. Omit the option."
        )
    return TextFiles(files, null_value)


def pairs(
    words: Sequence[str] | None, option: str, form: str = "KEY=VALUE"
) -> dict[str, str] | None:
    """Values by key, from arguments such as `region=eu-west-1`; None of no arguments.

    Args:
        words: the arguments.
        option: the option, for the message.
        form: the form of its arguments, for the message.

    Raises:
        CommandError: an argument without a key or without "=", or a key twice.

    Example:
        >>> pairs(["region=eu-west-1"], "--storage-option")
        {'region': 'eu-west-1'}
    """
    by_key: dict[str, str] = {}
    for word in words or ():
        key, equals, text = word.partition("=")
        if not key or not equals:
            raise CommandError(f"Expected {option} as {form}. Received: {word!r}.")
        _expect_once(key, by_key, option)
        by_key[key] = text
    return by_key or None


def values(words: Sequence[str] | None, kinds: Mapping[str, str], option: str) -> dict[str, Any]:
    """Python values by name, from arguments such as `network_instances=2`; other text is a string.

    Args:
        words: the arguments.
        kinds: the known names, each with its annotation.
        option: the option, for the message.

    Raises:
        CommandError: another name, or one twice.

    Example:
        >>> values(["rank=8", "combiner=sum"], {"rank": "int", "combiner": "str"}, "--model-option")
        {'rank': 8, 'combiner': 'sum'}
    """
    by_name: dict[str, Any] = {}
    for word in words or ():
        name, equals, text = word.partition("=")
        if name not in kinds or not equals:
            raise CommandError(
                f"Expected {option} NAME=VALUE, the name among {', '.join(kinds)}. Received: {word!r}."
                + did_you_mean([name], kinds)
            )
        _expect_once(name, by_name, option)
        try:
            by_name[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            by_name[name] = text
        # A version such as 1.20 is no number.
        if isinstance(by_name[name], float) and kinds[name].startswith("str"):
            by_name[name] = text
    return by_name


def _expect_once(key: str, others: Container[str], option: str) -> None:
    if key in others:
        raise CommandError(f"Expected {option} once for {key}. Received: twice.")


def answer(as_json: bool, text: str, **fields: Any) -> None:
    """Print a command's result on standard output.

    Args:
        as_json: as one JSON object, in which NaN and infinities are null, instead of the text.
        text: for people.
        **fields: the members of the object; paths become texts.
    """
    if as_json:
        text = json.dumps(_finite(fields), allow_nan=False, indent=2)
    typer.echo(text)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value if value is None or isinstance(value, str | int) else str(value)
