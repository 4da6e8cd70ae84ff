"""A page with nothing but a timeline, whose data are written by hand."""

import base64
import gzip
import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tracelab.render.html.page import (
    TIMELINE_SCRIPTS,
    asset,
    content_security_policy,
    kind_styles,
    script_json,
)

NONE = 0xFFFF_FFFF
FIRST = [("gap", 4, "plain"), ("dur", 4, "plain"), ("kind", 1, "plain")]
MORE = {
    "steps": [("name", 2, "plain")],
    "idle": [("row", 4, "delta"), ("line", 2, "plain"), ("op", 2, "plain")],
    "exposed": [("row", 4, "delta"), ("name", 2, "plain")],
    "stream": [
        ("name", 2, "plain"),
        ("op", 2, "plain"),
        ("line", 2, "plain"),
        ("call", 4, "delta"),
        ("why", 1, "plain"),
        ("source", 4, "delta"),
    ],
    "path": [("row", 4, "delta")],
    "host": [
        ("name", 2, "plain"),
        ("line", 2, "plain"),
        ("cost", 4, "plain"),
        ("row", 4, "delta"),
    ],
    "wait": [("name", 2, "plain")],
    "phase": [("name", 2, "plain"), ("level", 1, "plain")],
    "module": [("name", 2, "plain"), ("level", 1, "plain")],
    "counter": [("value", 8, "plain")],
}
ESCAPES = {"gap": 0x7FFF_FFFF, "dur": NONE, "cost": NONE}


@dataclass
class Lane:
    """One lane: `items` are (start, end, kind, *further columns of its type in order)."""

    id: str
    type: str
    label: str
    kinds: Sequence[str]
    items: Sequence[tuple[int, ...]]
    summary: bool = False
    bins: dict[str, Any] | None = None
    bin_values: Sequence[Sequence[int]] = field(default_factory=tuple)
    of_graphs: bool = False  # its items end with a name: where they were captured
    unit: str = ""
    levels: int | None = None


def written(
    lane: Lane, clock_start: int, rows: Sequence[tuple[int, ...]]
) -> tuple[dict[str, Any], bytes]:
    """What the page is told about a lane, and its bytes; rows are the items of the streams."""
    columns = [*FIRST, *MORE[lane.type], *([("captured", 2, "plain")] if lane.of_graphs else [])]
    escapes: dict[str, list[list[int]]] = {name: [] for name in ESCAPES}
    body = b""
    ends = [clock_start, *(item[1] for item in lane.items)]
    place = [name for name, *_ in columns].index("row") if ("row", 4, "delta") in columns else None
    of_rows = [NONE if place is None else item[place] for item in lane.items]
    for at, (name, size, code) in enumerate(columns):
        if name == "gap":
            before = [
                max(end, rows[row - 1][1]) if row not in {0, NONE} else end
                for row, end in zip(of_rows, ends, strict=False)
            ]
            values = [item[0] - end for item, end in zip(lane.items, before, strict=True)]
        elif name == "dur":
            values = [
                item[1] - (item[0] if row == NONE else rows[row][item[0] >= rows[row][0]])
                for item, row in zip(lane.items, of_rows, strict=True)
            ]
        else:
            values = [item[at] for item in lane.items]
        if code == "delta":
            values = [b - a for a, b in zip([0, *values], values, strict=False)]
        for i, value in enumerate(values):
            if name in ESCAPES and value > ESCAPES[name]:
                escapes[name].append([i, value])
                values[i] = ESCAPES[name]
        body += planes(values, size)
    for of_kind in lane.bin_values:
        body += planes(of_kind, 4)
    meta = {
        "id": lane.id,
        "type": lane.type,
        "label": lane.label,
        "device": None,
        "count": len(lane.items),
        "summary": lane.summary,
        "kinds": list(lane.kinds),
        "columns": columns,
        "escapes": escapes,
        "bins": lane.bins,
        "unit": lane.unit,
    }
    if lane.levels:
        meta["levels"] = lane.levels
    return meta, body


def planes(values: Sequence[int], size: int) -> bytes:
    """All lowest bytes, then all second lowest ones, and so on."""
    return b"".join(bytes(value >> 8 * k & 0xFF for value in values) for k in range(size))


def page_of(meta: dict[str, Any], lanes_of_groups: Sequence[Sequence[Lane]]) -> str:
    """The page; `meta` as the timeline has it, but without the groups' lanes."""
    groups, body = [], b""
    for group, lanes in zip(meta["groups"], lanes_of_groups, strict=True):
        rows = [item for lane in lanes if lane.type == "stream" for item in lane.items]
        pairs = [written(lane, meta["start"], rows) for lane in lanes]
        groups.append({**group, "lanes": [of_lane for of_lane, _ in pairs]})
        body += b"".join(of_lane for _, of_lane in pairs)
    scripts = [asset(name) for name in TIMELINE_SCRIPTS]
    style = kind_styles() + asset("page.css")
    findings = "".join(
        f'<li class="finding" data-finding="{x["number"]}"><button class="show">'
        f"<span class=title>finding {x['number']}</span></button></li>"
        for x in meta["findings"]
    )
    policy = content_security_policy(scripts, [style], is_served=False)
    columns = base64.b64encode(gzip.compress(body, 9, mtime=0)).decode()
    described = script_json({**meta, "groups": groups})
    elements = "".join(f"<script>{script}</script>" for script in scripts)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>lanes</title>
<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">
<style>{style}</style></head><body>
<header><select id="window" aria-label="step"></select>
<input id="search" type="search" aria-label="search"><button id="help">?</button></header>
<section id="findings"><ol>{findings}</ol></section>
<section id="timeline"><p id="timeline-note"></p><canvas id="overview"></canvas>
<div id="lanes-scroll"><canvas id="lanes"></canvas></div>
<div id="details" role="status" aria-live="polite"></div><output id="measured"></output>
<ul id="legend"></ul></section>
<script type="application/json" id="timeline-meta">{described}</script>
<script type="application/octet-stream" id="timeline-columns">{columns}</script>
{elements}</body></html>"""
