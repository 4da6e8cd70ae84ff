"""Registry of the outputs of an analysis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tracelab.analysis.analysis import Analysis
from tracelab.analysis.reports import FileResult
from tracelab.base.errors import TracelabError
from tracelab.outputs.output import Output, Request
from tracelab.outputs.page import PAGE
from tracelab.outputs.perfetto import TRACE
from tracelab.outputs.picture import PICTURE
from tracelab.outputs.scene_of_file import scene_of_file
from tracelab.report.redact import Redaction
from tracelab.report.schema import Report

OUTPUTS = (PICTURE, PAGE, TRACE)
Requests = Mapping[str, Request]  # by output


def _chosen(requests: Requests) -> list[tuple[Output, Request]]:
    return [(output, requests[output.name]) for output in OUTPUTS if output.name in requests]


def paths_of(requests: Requests) -> list[Path]:
    """List the files that may be written; refuse other endings."""
    paths: list[Path] = []
    for output, request in _chosen(requests):
        output.require_name(request.path)
        paths += output.paths(request.path, request.files)
    return paths


def reduce_file(analysis: Analysis, requests: Requests) -> dict[str, Any]:
    """Reduce one file for the requested outputs."""
    if not requests:
        return {}
    scene = scene_of_file(analysis)
    return {output.name: output.reduce(analysis, scene) for output, _ in _chosen(requests)}


def write_files(
    report: Report,
    results: Sequence[FileResult],
    requests: Requests,
    redaction: Redaction | None = None,
) -> list[str | TracelabError]:
    """Write the requested outputs; return sentences on success or failure.

    `FileResult.more` is from `reduce_file`; `redaction` is the report's.
    """
    messages: list[str | TracelabError] = []
    if redaction is not None:
        results = [
            replace(x, more=redaction.apply(x.more), part=redaction.apply(x.part)) for x in results
        ]
    for output, request in _chosen(requests):
        parts = [replace(x, more=x.more and x.more[output.name]) for x in results]
        written = output.write(report, parts, request)
        messages += [x if isinstance(x, TracelabError) else f"{output.verb} {x}" for x in written]
        if output.hint and any(isinstance(x, Path) for x in written):
            messages.append(output.hint)
    return messages
