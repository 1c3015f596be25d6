"""A view of a running server's metrics in the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from exporter.command_line.guard import CommandError
from exporter.command_line.places import expect_place, write_text
from exporter.command_line.words import answer

if TYPE_CHECKING:
    from rich.console import Group

    from serving.watch.skew_history import SkewHistory
    from serving.watch.view import View


def watch(
    urls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[URL]...",
            help="Addresses of metrics, of servers and of monitors; by default that of `serve`.",
            show_default=False,
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Print numbers since the server's start, and end.")
    ] = False,
    interval: Annotated[
        float, typer.Option(min=0.5, max=86_400, help="Seconds between two looks.")
    ] = 5.0,
    window: Annotated[float, typer.Option(min=1, help="Compare the rows of these minutes.")] = 15.0,
    html: Annotated[
        Path | None,
        typer.Option(help="A page of charts of the inputs over time, written at each look."),
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(help="The same charts as a picture, written at each look.")
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(help="With --html or --svg: a column to draw; may be repeated."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --once: print the inputs' deviations as JSON.")
    ] = False,
) -> None:
    """Show a server's requests, latencies, failures and inputs.

    Inputs are compared with those of the training. A figure is marked with << where it deviates.
    With `--once` the exit code is 1 if one does. Ctrl-C ends it otherwise.

    Example: `ensemble watch 127.0.0.1:8002`
    """
    if as_json and not once:
        raise CommandError("Expected --once with --json. Received: --json alone.")
    if once and (html or svg):
        raise CommandError("Expected --html and --svg without --once: one look has no curve.")
    if column and not (html or svg):
        raise CommandError("Expected --html or --svg with --column. Received: --column alone.")
    expect_place(html)
    expect_place(svg)
    addresses = urls or ["http://127.0.0.1:8002/metrics"]
    if once:
        _look_once(addresses, as_json)
    else:
        _look_again(addresses, interval, window, partial(_write, html, svg, column or ()))


def _look_once(urls: Sequence[str], as_json: bool) -> None:
    from rich.console import Console  # noqa: PLC0415 - so that help is shown at once

    from serving.watch.metrics import scrape  # noqa: PLC0415
    from serving.watch.view import WIDTH, View  # noqa: PLC0415

    view = View(scrape(urls))
    skews = view.skews()
    if as_json:
        answer(as_json, "", inputs=[asdict(skew) for skew in skews])
    else:
        Console(width=WIDTH).print(_page(view))
    if any(skew.deviates for skew in skews):
        raise typer.Exit(1)


def _look_again(
    urls: Sequence[str], interval: float, window: float, write: Callable[[SkewHistory], None]
) -> None:
    from rich.console import Console  # noqa: PLC0415 - so that help is shown at once
    from rich.live import Live  # noqa: PLC0415

    from serving.watch.skew_history import SkewHistory  # noqa: PLC0415
    from serving.watch.view import WIDTH  # noqa: PLC0415

    history, console = SkewHistory(urls, window), Console(width=WIDTH)
    live = Live(console=console, auto_refresh=False)
    # Elsewhere than in a terminal, `Live` prints the last look alone, at its end.
    in_place = console.is_terminal
    show = partial(live.update, refresh=True) if in_place else console.print
    with live if in_place else nullcontext():
        show(_page(history.view))
        while True:
            time.sleep(interval)
            history.look()
            show(_page(history.view))
            write(history)


def _write(
    html: Path | None, svg: Path | None, columns: Sequence[str], history: SkewHistory
) -> None:
    """Draw the charts anew."""
    from workflow.picture.page import as_page  # noqa: PLC0415 - so that help is shown at once

    if html:
        page = as_page("Inputs over time", history.to_html(*columns))
        write_text(html, page)
    if svg:
        write_text(svg, history.to_svg(*columns))


def _page(view: View) -> Group:
    from rich.console import Group  # noqa: PLC0415 - so that help is shown at once

    inputs = view.inputs()
    return Group(view.models(), inputs if inputs.row_count else "No inputs were counted.")
