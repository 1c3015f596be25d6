"""A view of a running server's metrics in the terminal."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from exporter.command_line.guard import CommandError
from exporter.command_line.words import answer

if TYPE_CHECKING:
    from rich.console import Group

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
    interval: Annotated[float, typer.Option(min=0.5, help="Seconds between two looks.")] = 5.0,
    window: Annotated[float, typer.Option(min=1, help="Compare the rows of these minutes.")] = 15.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --once: print the inputs' deviations as JSON.")
    ] = False,
) -> None:
    """Show a server's requests, latencies, failures and inputs.

    Inputs are compared with those of the training. A figure is marked with << where it deviates.
    With `--once` the exit code is 1 if one does.

    Example: `ensemble watch 127.0.0.1:8002`
    """
    # So that help is shown at once.
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415

    from serving.watch.metrics import scrape  # noqa: PLC0415
    from serving.watch.view import WIDTH, View  # noqa: PLC0415

    if as_json and not once:
        raise CommandError("Expected --once with --json. Received: --json alone.")
    addresses = urls or ["http://127.0.0.1:8002/metrics"]
    console = Console(width=WIDTH)
    if once:
        view = View(scrape(addresses))
        skews = view.skews()
        if as_json:
            answer(as_json, "", inputs=[asdict(skew) for skew in skews])
        else:
            console.print(_page(view))
        if any(skew.deviates for skew in skews):
            raise typer.Exit(1)
        return
    seen = deque([scrape(addresses)])
    with Live(_page(View(seen[0])), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            now = scrape(addresses)
            live.update(_page(View(now, seen[-1], seen[0])), refresh=True)
            seen.append(now)
            while now.time - seen[0].time > window * 60:
                seen.popleft()


def _page(view: View) -> Group:
    from rich.console import Group  # noqa: PLC0415 - so that help is shown at once

    inputs = view.inputs()
    return Group(view.models(), inputs if inputs.row_count else "No inputs were counted.")
