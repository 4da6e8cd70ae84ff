"""The page: a report as one HTML file, which needs no network and runs nothing but our own scripts.

Whatever stands in a trace is text: jinja2 escapes it, `visible` shows what a browser would act
upon, and the policy in the page's head lets only the page's own elements run.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from tracelab.base.safe_text import visible
from tracelab.render.html.assets import asset, content_security_policy, script_json
from tracelab.render.html.cells import table_of
from tracelab.render.html.charts import placed
from tracelab.render.html.content import content_of
from tracelab.render.html.served import Served
from tracelab.report.schema import Report

if TYPE_CHECKING:
    from tracelab.render.html.tables import FilePart

_STYLES = ("timeline.css", "page.css")
# Each uses those before it.
TIMELINE_SCRIPTS = ("timeline_lanes.js", "timeline_items.js", "timeline_paint.js", "timeline.js")


def render_page(
    report: Report, files: Sequence[FilePart] = (), *, served: Served | None = None
) -> str:
    """The page of a report.

    Args:
        report: what was measured; no trace is needed.
        files: what the page's timeline shows of each file; without it the page has none.
        served: what a program on this machine serves beside the page, if it does.
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
    style = "".join(map(asset, _STYLES))
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
    environment.filters |= {
        "prose": _prose,
        "placed": lambda bar: placed(bar.parts),
        "table": table_of,
    }
    return environment


def _shown(value: Any) -> Any:
    """Return the text that a template writes: visible, and escaped after this."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _prose(text: str) -> Markup:
    """A sentence in which what stands between backticks is code.

    >>> print(_prose("`a<b` waits"))
    <code>a&lt;b</code> waits
    """
    parts = visible(text).split("`")
    if len(parts) % 2 == 0:  # one has no partner
        return escape("`".join(parts))
    pieces = (
        Markup("<code>{}</code>").format(part) if i % 2 else escape(part)
        for i, part in enumerate(parts)
    )
    return Markup("").join(pieces)
