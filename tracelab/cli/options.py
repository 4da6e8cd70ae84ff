"""The options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

StepOn = Annotated[
    str | None, typer.Option(metavar="REGEX", help="Host annotations that are the steps.")
]
CommPattern = Annotated[
    list[str] | None,
    typer.Option(metavar="REGEX", help="Kernels that communicate, beside the known ones."),
]
NoCache = Annotated[
    bool,
    typer.Option("--no-cache", help="Neither keep what is read of large files nor use what was."),
]
