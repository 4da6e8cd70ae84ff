"""The first screen in at most 4 KB of JSON."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, strategies as st

from tests.build.hostile import PAYLOADS
from tests.build.json_schema import brief_schema
from tests.build.report_rows import (
    make_device,
    make_finding,
    make_report,
    make_steady,
    make_steps,
    make_trace,
)
from tests.bundled_traces import files_of, report_of
from tests.examples import examples
from tracelab import analyze
from tracelab.findings.finding import Where
from tracelab.render.brief import MAX_BYTES, render_brief
from tracelab.render.first_screen import first_screen
from tracelab.render.registry import render_as
from tracelab.render.text.savings import AT_MOST, SAVES, percent
from tracelab.report import schema
from tracelab.report.headline import headline_of
from tracelab.report.views import ranks_of

MS = 1_000_000
VALIDATOR = jsonschema.Draft202012Validator(brief_schema())


def read(written):
    """A valid brief, in one line that is short enough."""
    assert len(written) <= MAX_BYTES
    assert written.endswith(b"}\n")
    assert written.count(b"\n") == 1
    brief = json.loads(written.decode())
    VALIDATOR.validate(brief)
    return brief


def of_capture(name):
    """The report of a capture, without the names of this machine's folders, and its brief."""
    report = report_of(*files_of(name))
    traces = tuple(replace(x, path=Path(x.path).name) for x in report.traces)
    provenance = replace(report.provenance, paths=(f"{name}.json",))
    report = replace(report, traces=traces, provenance=provenance)
    return report, read(render_brief(report))


def test_published_schema_is_that_of_the_code():
    published = Path(schema.__file__).with_name("brief.schema.json")
    assert json.loads(published.read_text()) == brief_schema()


def test_schema_describes_every_key_and_accepts_more():
    schema = brief_schema()
    objects = [schema, *schema["$defs"].values()]
    described = [x for one in objects for x in one["properties"].items()]
    assert len(described) > 50
    short = [key for key, one in described if len(one.get("description", "").split()) < 3]
    assert short == []
    assert all(one["description"].endswith(".") for _, one in described)
    assert all(one.get("additionalProperties", True) is True for one in objects)
    _, brief = of_capture("events_item")
    VALIDATOR.validate(brief | {"of_a_later_version": 1})


def test_keys_that_agents_rely_on():
    _, brief = of_capture("train_step_sinful")
    assert list(brief) == [
        "schema",
        "version",
        "files",
        "file_count",
        "about",
        "verdict",
        "headline",
        "job",
        "findings",
        "recordings",
        "more",
        "notes",
        "next",
    ]
    assert list(brief["findings"][0]) == [
        "number",
        "rule",
        "remedy",
        "severity",
        "ranks",
        "saves",
        "at_most_percent",
        "takes_percent",
        "title",
        "place",
        "fix",
        "edit",
        "evidence",
    ]
    assert list(brief["findings"][0]["place"]) == [
        "file",
        "line",
        "lines",
        "function",
        "function_line",
        "code",
    ]
    assert brief["schema"] == "tracelab.brief/1"


def test_brief_of_a_file(snapshot):
    report, brief = of_capture("train_step_sinful")
    assert json.dumps(brief, indent=2, ensure_ascii=False) == snapshot
    first = brief["findings"][0]
    assert first["place"]["file"].endswith("train_step.py")
    assert (first["place"]["line"], first["place"]["code"]) == (70, "torch.cuda.empty_cache()")
    assert first["evidence"]["events"] == list(report.findings[0].evidence[:3])


def test_figures_are_those_of_the_first_screen(bundled_capture):
    report, brief = of_capture(bundled_capture)
    said, figures = first_screen(report), brief["headline"]
    assert figures["busy_percent"] + figures["idle_percent"] == 100
    assert sum(figures["idle_causes_percent"].values()) == figures["idle_percent"]
    assert figures["step_ms"] == said.headline.step_ns / 1e6
    assert said.headline in [headline_of(rank) for rank in ranks_of(report) if rank.views]
    if figures["saves"]:
        left_ms = figures["step_ms"] - figures["saves"]["ms"]
        assert left_ms == pytest.approx(figures["predicted_ms"])
    assert len(brief["findings"]) + brief["more"]["findings"] == len(said.items) + said.more
    for found, item in zip(brief["findings"], said.items, strict=False):
        assert found["number"] == item.number
        shares = {SAVES: found["saves"] and found["saves"]["percent"]}
        share = shares.get(item.figures.how, found["at_most_percent"]) or found["takes_percent"]
        assert item.price.startswith("saves nothing") or percent(share / 100) in item.price
        assert (found["at_most_percent"] is None) == (item.figures.how != AT_MOST)


def test_brief_of_a_job(snapshot):
    _, brief = of_capture("straggler_slow_loader")
    assert brief["file_count"] == len(brief["files"]) == 2
    assert brief["job"] == snapshot
    assert brief["findings"][0]["ranks"]


def test_brief_of_files_that_are_not_one_job():
    paths = [*files_of("two_streams_small"), *files_of("events_item")]
    brief = read(render_as(analyze(paths), "brief"))
    assert (brief["headline"], brief["findings"], brief["file_count"]) == (None, [], 2)
    assert [row["file"] for row in brief["recordings"]] == [str(path) for path in paths]
    first = brief["recordings"][0]
    assert first["saves_percent"] > 10
    assert first["step_ms"] == pytest.approx(0.917, abs=0.001)
    assert brief["next"][0].startswith("tracelab analyze ")


def test_a_hundred_files_leave_out_the_last():
    traces = [make_trace(path=f"{'long/' * 20}{i}.json", rank=i) for i in range(100)]
    windows = [window for i in range(100) for window in make_steps([10], rank=i)]
    brief = read(render_brief(make_report(*windows, traces=traces)))
    assert len(brief["recordings"]) + brief["more"]["recordings"] == 100
    assert len(brief["recordings"]) >= 3


def test_what_is_long_is_dropped_from_the_end_and_counted():
    findings = [
        make_finding(title=str(i), fix="é" * 5_000, fix_short="", bound_ns=9 * MS) for i in range(5)
    ]
    report = make_report(*make_steps([10, 10]), findings=findings)
    brief = read(render_brief(report))
    assert [x["title"] for x in brief["findings"]] == ["0", "1", "2"][: len(brief["findings"])]
    assert len(brief["findings"]) >= 1
    assert len(brief["findings"]) + brief["more"]["findings"] == 5
    assert brief["findings"][0]["fix"].endswith("…")


def test_what_is_typed_is_whole_or_left_out():
    where = Where(1, function="augment", file="train.py", function_line=42)
    findings = [
        make_finding(where=where, edit=edit, remedy="slow-" + 80 * "x")
        for edit in ("unblock:train.py:40", "unblock:" + 300 * "x")
    ]
    brief = read(render_brief(make_report(*make_steps([10, 10]), findings=findings)))
    assert [x["edit"] for x in brief["findings"]] == ["unblock:train.py:40", None]
    assert brief["findings"][0]["place"]["function_line"] == 42
    long = [make_finding(remedy=300 * "x")]
    next_of_long = read(render_brief(make_report(*make_steps([10, 10]), findings=long)))["next"]
    assert next_of_long == ["tracelab analyze run --full"]
    assert brief["next"][-1] == next_of_long[0]
    assert len(brief["next"]) == 2


any_text = st.one_of(
    st.sampled_from(PAYLOADS),
    st.text(st.characters(codec=None, categories=None), max_size=50).map(lambda x: x * 40),
)


@examples(100)
@given(st.lists(any_text, min_size=12, max_size=12), st.integers(0, 2**62), st.integers(1, 9))
def test_any_report_fits(texts, number, count):
    """GIVEN names of any letters and length, and any numbers
    THEN it is valid, and no longer than it may be."""
    title, fix, file, function, code, api, operator, kernel, edit, remedy, path, version = texts
    where = Where(
        count=number,
        api=api,
        operator=operator,
        function=function,
        file=file,
        line=number,
        activity=kernel,
        lines=(number,) * 9,
        code=code,
    )
    findings = [
        make_finding(
            title=title,
            fix=fix,
            fix_short="",
            where=where,
            edit=edit,
            remedy=remedy,
            evidence=(number,) * 5,
        )
        for _ in range(count)
    ]
    notes = [make_finding("TL902", title=title, severity="warning", cause=str(i)) for i in range(9)]
    device = make_device(busy_ns=number, idle_ns=number, bubbles={title: number, fix: 1})
    steady = make_steady(device, step_ns=max(1, number))
    report = make_report(
        *make_steps([10, 10]),
        traces=(make_trace(path=path, gpus={"0": title}, software={api: version}),),
        findings=[*findings, *notes],
        steady=(steady,),
    )
    brief = read(render_brief(replace(report, version=version)))
    assert brief["findings"]
