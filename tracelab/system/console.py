"""The terminal of a command: results go to stdout, everything else to stderr."""

from __future__ import annotations

import os
import sys

_PIPE_WIDTH = 100


def write_result(text: str) -> None:
    """Print a result; characters that stdout cannot show are replaced, a closed pipe is fine."""
    stream = sys.stdout
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "replace").decode(encoding))
        stream.flush()
    except BrokenPipeError:
        # The reader (a pager, `head`) has seen enough; keep Python from complaining at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def tell(text: str) -> None:
    """Print a message that is not a result to stderr."""
    print(f"tracelab: {text}", file=sys.stderr)


def output_width() -> int:
    """Columns of the terminal on stdout, or a width that suits a file."""
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return _PIPE_WIDTH
    from shutil import get_terminal_size

    return max(60, get_terminal_size().columns)


def output_in_color() -> bool:
    """Whether stdout is a terminal whose user has not asked for plain text."""
    return (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )
