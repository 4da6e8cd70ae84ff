"""Pages of the site about the bundled captures: a picture, the verdict, what is wrong, what helped.

A variant that was captured with event records and without them is shown with them. What is made of
a capture is kept beside its picture, for as long as neither its files nor the package change.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from io import BytesIO
from pathlib import Path

from PIL import Image

from tests.build.capture_tables import PAIRS as MORE_PAIRS
from tests.build.pairs import PAIRS
from tests.build.site_parts import Pages, slug, tree
from tests.corpus import CAPTURES, LINES
from tracelab.analysis.reports import analyze_file, merge_results
from tracelab.base.options import DEFAULTS
from tracelab.outputs.picture import draw_results, part_of
from tracelab.read.sources import find_sources
from tracelab.render.first_screen import first_screen
from tracelab.render.glossary import capitalized
from tracelab.render.markdown import prose
from tracelab.render.palette import DARK, LIGHT
from tracelab.render.picture.save import Look
from tracelab.render.registry import render_as
from tracelab.report.glossary import FAMILIES
from tracelab.report.schema import Report
from tracelab.workloads.catalog import find

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tracelab" / "docs" / "gallery" / "pictures"
JOBS, OTHERS = "several ranks: who waits for whom", "programs of which no step is wrong"
_WIDTH_PX, _THUMBNAIL_PX, _COLUMNS = 1100, 320, 100
_THEMES = (("", "light"), ("-dark", "dark"))
# Of captures whose workload does not name it.
_FIXES = {
    defect.removesuffix("_rank0"): fix.removesuffix("_rank0")
    for defect, fix in [*((x.defect, x.fix) for x in reversed(PAIRS)), *MORE_PAIRS]
}


@dataclass(frozen=True)
class Shown:
    """What a page shows of a capture beside its pictures.

    Attributes:
        key: of its files and of the code that made it.
        verdict: the first screen in a sentence.
        screen: the first screen.
        step_ms: what a step took without the profiler; None where it was not timed.
    """

    key: str
    verdict: str
    screen: str
    step_ms: float | None


def pages() -> Pages:
    """A page for each workload, and an index with a thumbnail of each capture."""
    captures = chosen()
    package = [x for x in (ROOT / "tracelab").rglob("*") if x.suffix in {".py", ".toml"}]
    code = hashlib.sha256(b"".join(map(Path.read_bytes, [Path(__file__), *sorted(package)])))
    FOLDER.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor() as pool:
        made = pool.map(partial(shown, code=code.hexdigest()), captures)
        every = dict(zip(captures, made, strict=True))
    workloads = defaultdict(list)
    for name in captures:
        workloads[_workload(name)].append(name)
    found = {f"gallery/{key}": _page(key, names, every) for key, names in workloads.items()}
    return {**found, "_gallery": _index(workloads) + tree(found)}


def chosen() -> list[str]:
    """The captures that are shown, in the order of the manifest: one of each variant.

    >>> "events_item" in chosen(), "events_item_plain" in chosen()
    (True, False)
    """
    found: dict[tuple[str, ...], str] = {}
    for name, line in LINES.items():
        arguments = [x for x in line["arguments"] if x != "--plain"]
        found.setdefault((line["workload"], *arguments), name)
    return [*found.values()]


def shown(name: str, *, code: str) -> Shown:
    """What was made of the same files by the same code before; else what is made now.

    Args:
        name: the capture.
        code: a hash of it.
    """
    kept = FOLDER / f"{name}.json"
    key = hashlib.sha256(json.dumps([code, LINES[name]["sha256"]]).encode()).hexdigest()
    if kept.exists() and (before := Shown(**json.loads(kept.read_text()))).key == key:
        return before
    with contextlib.chdir(ROOT):  # no page names a folder of this machine
        made = _make(name, key)
    kept.write_text(json.dumps(asdict(made)))
    return made


def _make(name: str, key: str) -> Shown:
    paths = [str(path.relative_to(ROOT)) for path in CAPTURES[name]]
    results = [analyze_file(source, DEFAULTS, then=part_of) for source in find_sources(paths)]
    report = merge_results(results, paths, DEFAULTS)
    for which, palette in (("", LIGHT), ("-dark", DARK)):
        look = Look(_WIDTH_PX, None, palette)
        png = draw_results(report, results, look=look).png()
        picture = Image.open(BytesIO(png)).convert("RGB")
        small = picture.resize((_THUMBNAIL_PX, picture.height * _THUMBNAIL_PX // _WIDTH_PX))
        for image, size in ((picture, ""), (small, "-small")):
            image.quantize().save(FOLDER / f"{name}{which}{size}.png", optimize=True)
    screen = render_as(report, "text", width=_COLUMNS, color=False)
    return Shown(key, first_screen(report).verdict, str(screen), _step_ms(report))


def _step_ms(report: Report) -> float | None:
    lengths_ns = [row.unprofiled_step_ns for row in report.steady]
    return max(lengths_ns) / 1e6 if lengths_ns and None not in lengths_ns else None


def won(name: str, every: Mapping[str, Shown]) -> str:
    """What the fix of a variant is, and what it saves of a step without the profiler."""
    variant, turns = _variant(name), LINES[name].get("without_profiler_ms", {})
    captured = {_variant(x): x for x in reversed(chosen()) if _workload(x) == _workload(name)}
    fix = find(_workload(name), variant).fix or _variant(_FIXES.get(name, name))
    if fix == variant:
        return ""
    if fix in turns:
        before, after = turns[variant][0], turns[fix][0]
    else:
        before, after = every[name].step_ms, every[captured[fix]].step_ms
    if before is None or after is None:
        return ""
    share = 100 * (1 - after / before)
    link = f"[{fix}](#{slug(fix)})" if fix in captured else fix
    much = f"{abs(share):.0f} % {'shorter' if share >= 0 else 'longer'}"
    return f"{link}: {before:.3g} → {after:.3g} ms a step, {much}."


def _workload(name: str) -> str:
    return str(LINES[name]["workload"])


def _variant(name: str) -> str:
    return str(LINES[name]["arguments"][0])


def _page(workload: str, names: Iterable[str], every: Mapping[str, Shown]) -> str:
    source = ast.parse((ROOT / "workloads" / f"{workload}.py").read_text(encoding="utf-8"))
    about = (ast.get_docstring(source) or "").partition("\n\n")[0]
    sections = (_section(name, every) for name in names)
    return "\n".join([f"# {workload}\n", f"{' '.join(about.split())}\n", *sections])


def _section(name: str, every: Mapping[str, Shown]) -> str:
    helped = won(name, every)
    facts = [f"- **The program:** {prose(LINES[name]['shows'])}"]
    facts += [f"- **tracelab:** {prose(every[name].verdict)}"]
    facts += [f"- **The fix:** {helped}"] if helped else []
    files = [path.name for path in CAPTURES[name]]
    command = f"tracelab analyze traces/{files[0]}"
    if len(files) > 1:
        command = f"tracelab analyze traces/{name}_rank*"
    return "\n".join(
        [
            f"## {_heading(name)}\n",
            *facts,
            "",
            _picture(name, every[name].verdict),
            f"```text\n$ {command}\n{every[name].screen}```\n",
        ]
    )


def _heading(name: str) -> str:
    """The variant and, of a job that was captured with more ranks as well, how many."""
    line = LINES[name]
    same = [x for x in chosen() if _workload(x) == _workload(name)]
    alike = [x for x in same if _variant(x) == _variant(name)]
    ranks = len(line["files"])
    return _variant(name) if name == alike[0] else f"{_variant(name)}, {ranks} ranks"


def _picture(name: str, alt: str) -> str:
    text = " ".join(alt.replace("`", "").split())
    return "\n".join(
        f"```{{image}} pictures/{name}{which}.png\n:class: only-{theme}\n:alt: {text}\n```\n"
        for which, theme in _THEMES
    )


def _index(workloads: Mapping[str, list[str]]) -> str:
    groups = defaultdict(list)
    for workload, names in workloads.items():
        groups[_group(names)].append(workload)
    lines = []
    for title in filter(groups.get, [*FAMILIES.meanings.values(), JOBS, OTHERS]):
        lines.append(f"## {capitalized(title)}\n")
        for workload in groups[title]:
            thumbnails = map(_thumbnail, workloads[workload])
            lines += [f"### {workload}\n", "{.thumbnails}", *thumbnails, ""]
    return "\n".join(lines)


def _group(names: Iterable[str]) -> str:
    """The heading of a workload: jobs, else the family of most of the planted defects."""
    lines = [LINES[name] for name in names]
    if any("job" in line for line in lines):
        return JOBS
    families = Counter(rule[:3] for line in lines for rule, _ in line["expect"]["findings"])
    [(family, _)] = families.most_common(1) or [("", 0)]
    return next((x.meaning for x in FAMILIES.terms if x.key == family), OTHERS)


def _thumbnail(name: str) -> str:
    images = "".join(
        f"![](gallery/pictures/{name}{which}-small.png){{.only-{theme}}}"
        for which, theme in _THEMES
    )
    target = f"gallery/{LINES[name]['workload']}.md#{slug(_heading(name))}"
    return f"- [{images} {_heading(name)}]({target})"
