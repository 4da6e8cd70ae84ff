"""``tracelab explain``: what a rule finds and how it decides, what a word of the report means."""

from __future__ import annotations

from typing import Annotated

import typer

from tracelab.system.console import output_width, write_result


def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD",
            help="A rule (TL203), a family of rules (TL2), a cause, a column or any other word of "
            "a report; without one, all of them.",
        ),
    ] = None,
) -> None:
    """Say what a rule finds and how it decides, or what a word of the report means."""
    from tracelab.render.glossary import explanation, overview

    width = output_width()
    write_result(explanation(words, width) if words else overview(width))
