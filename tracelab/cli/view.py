"""``tracelab view``: a served page, and its traces for Perfetto."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from tracelab.cli.options import Analyzed, analyzes, require_saved_options
from tracelab.system.console import tell, write_result

if TYPE_CHECKING:
    from tracelab.analysis.reports import FileResult
    from tracelab.base.options import Options
    from tracelab.read.streams import Source


@analyzes(
    "step_on", "comm_pattern", "source", "jobs", "job", "no_prices", "no_cache", "max_unpacked"
)
def view(
    analyzed: Analyzed,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Traces (.json, .pftrace, .gz), folders of them, URLs; or a saved report.",
        ),
    ],
    port: Annotated[
        int, typer.Option(min=0, max=65_535, metavar="N", help="Serve on this port; 0: a free one.")
    ] = 0,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address, without opening a browser.")
    ] = False,
    step: Annotated[int | None, typer.Option(metavar="N", help="Only step N.")] = None,
) -> None:
    """Show the page in a browser, with the findings in Perfetto.

    Both are served on this machine only, at an unguessable address, until Ctrl-C.
    """
    from tracelab.analysis.reports import merge_results
    from tracelab.cli.many_files import map_files
    from tracelab.outputs.view import contents
    from tracelab.read.sources import find_sources
    from tracelab.system.loopback import LoopbackServer

    sources = find_sources(paths, analyzed.max_unpacked_bytes)
    options = analyzed.options(len(sources), step=step)
    with LoopbackServer(port) as server:  # a taken port fails before the analysis
        results = map_files(partial(_analyze, options=options), sources, jobs=analyzed.jobs)
        report = merge_results(results, paths, options)
        if results[0].is_saved:
            require_saved_options(report, options, {"--step": step})
        for file in report.provenance.unread:
            tell(f"left out: {file.reason}")
        served = contents(report, results)
        with suppress(KeyboardInterrupt):
            _tell_of_tunnel(server.port)
            write_result(f"{server.url}\n")
            if not no_browser and _has_browser(os.environ):
                threading.Thread(target=_open_browser, args=(server.url,), daemon=True).start()
            server.serve(served)


def _analyze(source: Source, options: Options) -> FileResult:
    from tracelab.analysis.reports import analyze_file
    from tracelab.outputs.view import viewed

    return analyze_file(source, options, then=viewed, may_be_saved=True)


def _tell_of_tunnel(port: int) -> None:
    import socket
    from getpass import getuser

    try:
        user = getuser()
    except (KeyError, OSError):  # unknown in a container
        user = "USER"
    command = f"ssh -L {port}:127.0.0.1:{port} {user}@{socket.gethostname()}"
    if os.environ.get("SSH_CONNECTION"):
        tell("over SSH: run this on your own machine, then open the address there")
        tell(f"    {command}")
    else:
        tell(f"serving until Ctrl-C; from another machine: {command}")


def _has_browser(environment: Mapping[str, str]) -> bool:
    """Return True if the user sees a browser that opens here, outside the terminal.

    >>> _has_browser({"SSH_CONNECTION": "10.0.0.9 50000 10.0.0.1 22", "DISPLAY": "localhost:10"})
    False
    """
    if environment.get("BROWSER"):  # of editors over SSH
        return True
    if environment.get("SSH_CONNECTION"):
        return False
    has_windows = sys.platform in ("darwin", "win32")
    return has_windows or bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def _open_browser(url: str) -> None:
    import webbrowser

    if not webbrowser.open(url):
        tell("no browser could be opened: open the address yourself")
