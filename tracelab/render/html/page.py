"""The page: a report as one HTML file, without a network and with our own scripts alone.

Text of a trace stays text: jinja2 escapes it, `visible` shows control characters, and a
policy in the page's head allows nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files as resources
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape
from msgspec.structs import asdict

from tracelab.base.arrays import Record
from tracelab.base.safe_text import visible
from tracelab.render.html.content import content_of, table_of
from tracelab.render.palette import page_kinds
from tracelab.render.scene import LANE_TYPES
from tracelab.render.words import time_text
from tracelab.report.schema import Report

if TYPE_CHECKING:
    from tracelab.render.html.content import FilePart

PERFETTO = "https://ui.perfetto.dev"
# Each uses those before it.
TIMELINE_SCRIPTS = ("timeline_lanes.js", "timeline_items.js", "timeline_paint.js", "timeline.js")
_THEMES = (
    ("@media screen and (prefers-color-scheme: dark)", ':root:not([data-theme="light"])'),
    ("@media screen", ':root[data-theme="dark"]'),
)
# Marks blocking without color as well.
_STRIPES = "repeating-linear-gradient(135deg, #ffffff73 0 1.5px, transparent 1.5px 5px)"
_ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&"}
_COMMENT = re.compile(r"^[ \t]*/\*(?:(?!\*/).)*\*/[ \t]*$", re.DOTALL | re.MULTILINE)
# No text may follow.
_END_COMMENT = re.compile(r"[ \t]+// [^\"'`\n]*$", re.MULTILINE)


class ServedTrace(Record):
    """A trace served beside the page, and its clock.

    Attributes:
        url: relative to the page.
        origin_ns: its first event, by the file's own count, ns.
        start_ns, end_ns: its extent, ns since its first event.
        clock: pairs of one moment, ns on the page's clock and since the file's first event,
            ascending, at least one; linear in between, as fast as the page's elsewhere.
    """

    name: str
    rank: int
    url: str
    origin_ns: int
    start_ns: int
    end_ns: int
    clock: tuple[tuple[int, int], ...] = ((0, 0),)


class Served(Record):
    """The traces served beside a page, and the origin of the Perfetto UI."""

    traces: tuple[ServedTrace, ...]
    perfetto: str = PERFETTO

    def script_data(self) -> dict[str, Any]:
        """The same for a script, without integers beyond 2**53."""
        traces = [{**asdict(x), "origin_ns": str(x.origin_ns)} for x in self.traces]
        return {"perfetto": self.perfetto, "traces": traces}


def render_page(
    report: Report, files: Sequence[FilePart] = (), *, served: Served | None = None
) -> str:
    """Return the page of a report.

    Args:
        report: no trace is needed.
        files: of the page's timeline, which is left out without any.
        served: traces that this machine serves.
    """
    scripts = list(map(asset, ("page.js", *(["perfetto_link.js"] if served else ()))))
    timeline: dict[str, Any] | None = None
    if files:
        from tracelab.render.html.timeline_data import timeline_data

        data = timeline_data(report, [file.scene for file in files])
        columns = base64.b64encode(data.columns).decode()
        timeline = {
            "meta": script_json(data.meta),
            "columns": Markup(columns),
            "scripts": [Markup(asset(name)) for name in TIMELINE_SCRIPTS],
        }
    style = "\n".join((kind_styles(), asset("page.css")))
    every_script = [*(timeline["scripts"] if timeline else ()), *scripts]
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            csp=content_security_policy(every_script, [style], is_served=served is not None),
            style=Markup(style),
            scripts=list(map(Markup, scripts)),
            timeline=timeline,
            served=None if served is None else script_json(served.script_data()),
            page=content_of(report, files),
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(asset),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {"prose": _prose, "table": table_of, "time": time_text}
    return environment


def _shown(value: Any) -> Any:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _prose(text: str) -> Markup:
    parts = visible(text).split("`")
    if len(parts) % 2 == 0:  # one has no partner
        return escape("`".join(parts))
    pieces = (
        Markup("<code>{}</code>").format(part) if i % 2 else escape(part)
        for i, part in enumerate(parts)
    )
    return Markup("").join(pieces)


@cache
def asset(name: str) -> str:
    """Return a file of this package; styles and scripts without comments and indentation."""
    text = resources(__package__).joinpath(name).read_text("utf-8")
    if name.endswith(".j2"):
        return text
    lines = map(str.strip, _END_COMMENT.sub("", _COMMENT.sub("", text)).splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


@cache
def kind_styles() -> str:
    """Return the styles of what a timeline shows."""
    kinds = page_kinds()
    light = "".join(f"--k-{key}: {kind.color};" for key, kind in kinds.items())
    dark = "".join(f"--k-{key}: {kind.dark};" for key, kind in kinds.items())
    light += "".join(f"--striped-{key}: 1;" for key, kind in kinds.items() if kind.is_striped)
    light += "".join(f"--height-{key}: {lane.height_px};" for key, lane in LANE_TYPES.items())
    rules = [f":root {{ {light} }}"]
    rules += [f"{media} {{ {root} {{ {dark} }} }}" for media, root in _THEMES]
    for key, kind in kinds.items():
        stripes = f" background-image: {_STRIPES};" if kind.is_striped else ""
        color = f"var(--k-{key})"
        rules.append(f".k-{key} {{ fill: {color}; background-color: {color};{stripes} }}")
    return "\n".join(rules)


def content_security_policy(
    scripts: Sequence[str], styles: Sequence[str], *, is_served: bool
) -> str:
    """Allow only these scripts and styles, and a served page's own server."""
    rules = {
        "default-src": "'none'",
        "script-src": _hashes(scripts),
        "style-src": _hashes(styles),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    if is_served:
        rules["connect-src"] = "'self'"
    return "; ".join(f"{name} {value}" for name, value in rules.items())


def _hashes(texts: Sequence[str]) -> str:
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(x).decode()}'" for x in digests) or "'none'"


def script_json(content: Any) -> Markup:
    """Return JSON that is safe in a script element."""
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_ESCAPES))
