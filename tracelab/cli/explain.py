"""``tracelab explain``: meanings of rules and words."""

from __future__ import annotations

from typing import Annotated

import typer

from tracelab.system.console import output_width, write_result


def _complete(incomplete: str) -> list[str]:
    from tracelab.render.glossary import words_that_begin

    return words_that_begin(incomplete)


def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD",
            autocompletion=_complete,
            help="A rule (TL203), a family of rules (TL2), a remedy, a cause, a column or any "
            "other word of a report; without one, all are listed.",
        ),
    ] = None,
) -> None:
    """Explain rules, remedies and words of a report, or list them."""
    from tracelab.render.glossary import explanation, overview

    width = output_width()
    write_result(explanation(words, width) if words else overview(width))
