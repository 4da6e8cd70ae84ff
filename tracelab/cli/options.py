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
Cache = Annotated[
    bool,
    typer.Option("--cache/--no-cache", help="Keep what was read of large files for the next time."),
]
