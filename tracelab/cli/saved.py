"""Files that are saved reports (``analyze --json``), where a command takes traces as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelab.errors import UnreadableInputError

if TYPE_CHECKING:
    from tracelab.read.streams import Source
    from tracelab.report.schema import Report

_HEAD = 4096  # bytes in which a saved report names its schema


def is_report(source: Source) -> bool:
    """Whether a file is a saved report, by the schema that stands at its beginning.

    Raises:
        TracelabError: it cannot be opened.
    """
    from tracelab.read.streams import READ_ERRORS, open_source

    with open_source(source) as stream:
        try:
            head = stream.read(_HEAD)
        except READ_ERRORS:
            return False  # the reader of traces says what is wrong with it
    return b'"schema"' in head and b'"tracelab.report/' in head


def is_report_in_any_order(source: Source) -> bool:
    """Whether it is one that something saved again with its keys in another order."""
    import orjson

    from tracelab.read.streams import READ_ERRORS, open_source

    try:
        with open_source(source) as stream:
            data = orjson.loads(stream.read())
    except (*READ_ERRORS, ValueError):
        return False
    return isinstance(data, dict) and str(data.get("schema")).startswith("tracelab.report/")


def load(source: Source) -> Report:
    """A saved report, wherever it lies and however it is packed.

    Raises:
        UnreadableInputError: it cannot be read, or is no report of this schema.
    """
    from tracelab.read.streams import READ_ERRORS, open_source
    from tracelab.report.schema import parse_report

    try:
        with open_source(source) as stream:
            content = stream.read()
    except READ_ERRORS as error:
        raise UnreadableInputError(f"{source.path}: {error}") from None
    return parse_report(content, source.path)
