"""Report of an internal error: one sentence, and a file with the details."""

from __future__ import annotations

import sys

from tracelab.base.safe_text import escape_commands, hide_secrets
from tracelab.base.version import __version__


def report_crash(error: Exception) -> str:
    """Save the details of an unexpected error; returns the sentence that says where they are."""
    import tempfile  # only where it is needed: it takes a while to import

    what = f"{type(error).__name__}: {error}"
    sentence = f"this is a bug in tracelab, not in your input: {what}. Please report it as an issue"
    try:
        descriptor, path = tempfile.mkstemp(prefix="tracelab-error-", suffix=".txt")
        with open(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(_details(error))
    except OSError:
        print(escape_commands(_details(error)), file=sys.stderr)
        return f"{sentence}, with the details above"
    return (
        f"{sentence}, with the details in {path} (they may quote your files: "
        "review them before you send them)"
    )


def _details(error: Exception) -> str:
    import platform
    import traceback

    return hide_secrets(
        f"tracelab {__version__}, Python {sys.version}\n{platform.platform()}\n"
        f"{sys.argv}\n\n{''.join(traceback.format_exception(error))}"
    )
