"""The page of a report: what it says, and that nothing but its own scripts can run in it."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import tracelab
from tests.build import files as made
from tests.build.files import US
from tests.build.hostile import PAYLOADS, poisoned
from tests.build.read_page import ReadPage
from tests.bundled_traces import FOLDER, files_of, report_of
from tests.figures import figures
from tracelab import load_report
from tracelab.base.options import Options
from tracelab.base.safe_text import visible
from tracelab.findings.remedies import REMEDIES
from tracelab.render import html
from tracelab.render.first_screen import first_screen
from tracelab.render.html.content import page_findings
from tracelab.render.html.page import Served, asset, render_page
from tracelab.render.registry import render_as
from tracelab.report.views import ranks_of

SINFUL = "train_step_sinful"
JOB = "fsdp_item"
NO_JOB = ("copies_one_stream", "copies_own_stream")
ADDRESSES = {remedy.url for remedy in REMEDIES}
# What a browser acts upon, or does not show.
UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
SOURCES = Path(html.__file__).parent
NAMES = sorted(path.name for path in SOURCES.iterdir() if path.suffix in {".js", ".css"})


@cache
def report(*names, **options):
    paths = [path for name in names for path in files_of(name)]
    return report_of(*paths, options=Options(**options))


@cache
def page(*names, **options):
    return ReadPage(render_page(report(*names, **options)))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A page with its timeline, of a trace with something hostile in each of its names."""
    folder = tmp_path_factory.mktemp("hostile")
    target = folder / "page.html"
    trace = poisoned(FOLDER / "events_item.pt.trace.json.gz", folder)
    made_of = tracelab.write_page(trace, target)
    return target.read_text("utf-8"), made_of


def numbers(read):
    return sorted(int(x.get("data-finding")) for x in read.of_class("finding"))


@pytest.mark.parametrize("names", [(SINFUL,), (JOB,), NO_JOB, ("pipeline_1f1b_few_4",)])
def test_every_finding_is_in_the_page_once(names):
    findings = report(*names).findings
    assert numbers(page(*names)) == list(range(1, len(findings) + 1))
    for finding in findings:
        titles = (visible(x).replace("`", "") for x in (finding.title, finding.shown_title))
        assert any(title in page(*names).text for title in titles)
        assert visible(finding.fix).replace("`", "") in page(*names).text


@pytest.mark.parametrize("names", [(SINFUL,), (JOB,), NO_JOB, ("pipeline_1f1b_few_4",)])
def test_findings_are_numbered_from_one_as_they_are_read(names):
    # GIVEN a report, whose first screen has the first findings
    made_of = report(*names)
    # THEN the page lists them by the same numbers, without a gap
    shown = [int(x.text) for x in page(*names).of_class("number")]
    assert shown == list(range(1, len(shown) + 1))
    assert len(shown) > 1
    found = page_findings(made_of, ranks_of(made_of), about="program")
    assert [x.item.number for x in found] == shown
    if names != NO_JOB:
        items = first_screen(made_of).items
        assert [x.number for x in items] == shown[: len(items)]


def test_what_ran_comes_before_what_would_save_time(hostile):
    ids = [x.get("id") for x in ReadPage(hostile[0]).of_class("part")]
    assert ids[:3] == ["kernels", "causal", "whatif"]


@pytest.mark.parametrize(
    ("name", "ranks", "chosen"),
    [(JOB, 2, 0), ("straggler_more_work", 2, 0), ("pipeline_1f1b_few_4", 4, 1)],
)
def test_a_job_has_kernels_and_lines_of_each_rank_and_shows_the_one_others_wait_for(
    name, ranks, chosen
):
    read = page(name)
    options = [x for x in read.all("option") if "section" in x.path]
    names = [f"rank {rank}" for rank in range(ranks)]
    parts = 2 if name == "straggler_more_work" else 1  # the others have no stacks, so no lines
    assert [x.text for x in options] == parts * names
    assert [x.text for x in options if "selected" in x.attributes] == parts * [f"rank {chosen}"]
    titles = [x.get("aria-label").lower().partition(": ") for x in read.all("table")]
    assert [rank for rank, _, of in titles if of.startswith(("kernels", "lines"))] == parts * names
    # THEN no rank has them once more
    assert not [x for x in read.elements if re.fullmatch("(kernels|lines)-.*", x.get("id"))]


def test_each_share_of_the_first_screen_is_one_whole_percent():
    text = page(SINFUL).one("summary").text
    for name in ("blocking calls", "CPU-bound", "launch latency", "busy", "idle"):
        assert len(set(re.findall(rf"{name}:? (\S+) %", text))) == 1, name
    assert not re.search(r"\.\d+ %", text + page(SINFUL).one("findings").text)


def test_a_finding_says_price_interval_place_and_source():
    first = page(SINFUL).of_class("finding")[0]
    assert first.get("id") == "finding-1"
    text = first.text
    assert "critical saves 23 % (6 to 30), 7.24 ms TL103" in text
    assert "train_step.py:70 in sinful torch.cuda.empty_cache()" in text
    assert "Remove it from the loop" in text
    [link] = [x for x in page(SINFUL).all("a") if x.text.endswith("torch.cuda.empty_cache")]
    assert link.get("href") in ADDRESSES


def test_the_ranks_of_a_job_share_a_finding():
    # GIVEN a job whose ranks have the same pitfall at the same line
    read = page(JOB)
    first = read.of_class("finding")[0]
    # THEN it is there once, and leads to the others
    assert first.get("data-finding") == "1"
    assert "all ranks" in first.text
    assert "Also on rank 1" in first.text


def test_a_shared_finding_is_worded_as_on_the_rank_that_pays_most():
    # GIVEN two ranks, the second of which pays more at the same place
    shared = report(JOB)
    first = next(x for x in shared.findings if x.rank == 0 and x.about == "program")
    twin = next(x for x in shared.findings if x.rank == 1 and x.title == first.title)
    costlier = replace(twin, cost_ns=twin.cost_ns * 3, bound_ns=first.bound_ns * 3)
    findings = tuple(costlier if x is twin else x for x in shared.findings)
    changed = replace(shared, findings=findings)
    # WHEN they are listed
    listed = page_findings(changed, ranks_of(changed), about="program")
    found = next(x for x in listed if x.item.finding is costlier)
    # THEN the words are of the costlier one; the number is the first one's, as everywhere
    assert findings[found.item.number - 1] is first
    assert [findings[number - 1] for number, *_ in found.others] == [costlier]


@pytest.mark.parametrize("name", [SINFUL, JOB])
def test_it_begins_with_the_facts_of_the_first_screen(name):
    facts = first_screen(report(name)).facts
    labels, texts = ([x.text for x in page(name).all(tag)][: len(facts)] for tag in ("dt", "dd"))
    assert labels == [fact.label for fact in facts]
    assert texts == [fact.text for fact in facts]


def test_why_nothing_is_predicted_is_said_once(tmp_path):
    path = tmp_path / "page.html"
    tracelab.write_page(files_of("accumulation_no_sync"), path)
    assert path.read_text(encoding="utf-8").count("teps still get faster") == 1


def test_one_step():
    read = page("events_item", step=3)
    assert next(x.text for x in read.all("dt")) == "Step 3"
    assert figures(next(x.text for x in read.all("dd")))[0] == "2.83 ms"


def test_a_trace_without_steps_or_findings(tmp_path):
    path = made.write(tmp_path / "a.json", [made.kernel(0, 5 * US), made.kernel(5 * US, 9 * US)])
    read = ReadPage(render_page(tracelab.analyze(path)))
    assert next(x.text for x in read.all("dt")) == "Trace"
    assert figures(next(x.text for x in read.all("dd")))[0] == "9.00 µs"
    assert not read.of_class("finding") or read.one("lacks")
    assert "No rule found anything to change." in read.text


def test_files_that_are_no_job_are_rows_of_a_table():
    read = page(*NO_JOB)
    assert [x.text for x in read.all("h1")] == ["2 files"]
    assert all(name in read.one("summary").text for name in NO_JOB)
    assert "Not one job:" in read.one("provenance").text


def test_a_job_has_heat_maps_and_its_ranks_bars():
    read = page(JOB)
    assert [x.text for x in read.all("h1")] == [FOLDER.name]
    captions = [x.text for x in read.all("figcaption")]
    assert captions[0] == "How the ranks spend a steady step"
    assert {"Compute", "Wait for other ranks", "Transfer", "Idle"} <= set(captions)
    assert "How the ranks spend a steady step" in read.one("ranks").text


def test_what_could_not_be_used_and_what_is_missing_is_said_above(tmp_path):
    (tmp_path / "broken.json").write_text("{}")
    events = [made.kernel(0, 5 * US), made.step(1, 0, 9 * US)]
    path = made.write(tmp_path / "good.json", events)
    read = ReadPage(render_page(tracelab.analyze([path, tmp_path / "broken.json"])))
    banners = [x.text for x in read.of_class("banner")]
    assert banners[0].startswith("Not used: ")
    assert "broken.json" in banners[0]


def test_tables_of_steps_count_the_steps_that_they_leave_out(tmp_path):
    # 120 steps with a gap of 5 us before the next kernel; tables show 100.
    events = [
        event
        for i in range(120)
        for event in (
            made.step(i, 10 * i * US, (10 * i + 10) * US),
            made.launch(10 * i * US, (10 * i + 1) * US, i + 1),
            made.kernel((10 * i + 2) * US, (10 * i + 7) * US, correlation=i + 1),
        )
    ]
    read = ReadPage(render_page(tracelab.analyze(made.write(tmp_path / "steps.json", events))))

    assert set(re.findall(r"and (\d+) steps more", read.text)) == {"20"}


def test_a_saved_report_has_the_same_page(tmp_path):
    # GIVEN a report and what became of it in a file
    path = tmp_path / "report.json"
    report(SINFUL).save(path)
    # THEN their pages are equal, and say that the timeline needs the trace
    assert render_page(load_report(path)) == render_page(report(SINFUL))
    read = page(SINFUL)
    assert "made only from the trace" in read.one("timeline").text
    assert not read.all("canvas")
    assert not any(x.tag == "button" and x.get("class") == "show" for x in read.elements)


def test_it_is_small_without_a_timeline():
    assert len(render_page(report(SINFUL)).encode()) < 170_000


def test_the_renderers_know_it():
    assert render_as(report("events_item"), ".html") == render_page(report("events_item"))


def test_definitions_are_of_words_that_it_uses():
    facts = first_screen(report(SINFUL)).facts
    words = [x.text for x in page(SINFUL).all("dt")][len(facts) :]
    assert "blocking call a cause of idle time" in words
    assert "steady step" in words
    assert not any("pipeline" in word for word in words)
    assert len(words) == len(set(words))


def test_tables_can_be_read_aloud():
    for read in (page(SINFUL), page(JOB)):
        ids = {x.get("id") for x in read.elements if x.get("id")}
        assert len(ids) == sum("id" in x.attributes for x in read.elements)
        assert all(x.get("scope") in ("row", "col") for x in read.all("th"))
        assert all(x.get("aria-labelledby") in {"", *ids} for x in read.elements)
        for drawing in read.all("svg"):
            assert drawing.get("aria-hidden") == "true" or drawing.get("aria-label")
        assert len(read.all("h1")) == len(read.all("main")) == len(read.all("header")) == 1
        # a word beside each icon
        severities = {x.text for x in read.of_class("severity")}
        assert severities <= {"critical", "warning", "info"}


def test_links_lead_to_the_page_itself_or_to_our_own_table(hostile):
    for read in (page(SINFUL), page(JOB), ReadPage(hostile[0])):
        ids = {x.get("id") for x in read.elements}
        for link in read.all("a"):
            target = link.get("href")
            assert target in ADDRESSES or target.removeprefix("#") in ids


def test_a_source_that_is_not_ours_is_no_link():
    # GIVEN a saved report in which somebody changed a finding's source
    mine = "PyTorch documentation: x (javascript:alert(1))"
    findings = [replace(x, source=mine) for x in report(SINFUL).findings]
    read = ReadPage(render_page(replace(report(SINFUL), findings=tuple(findings))))
    # THEN it is text
    assert f"Source: {mine}" in read.text
    assert all(x.get("href").startswith("#") for x in read.all("a"))


def test_the_policy_names_these_very_elements(hostile):
    for text in (hostile[0], render_page(report(SINFUL))):
        read = ReadPage(text)
        [policy] = [x for x in read.all("meta") if "http-equiv" in x.attributes]
        assert policy.get("http-equiv") == "Content-Security-Policy"
        rules = dict(rule.split(" ", 1) for rule in policy.get("content").split("; "))
        run = [x for x in read.all("script") if "type" not in x.attributes]
        assert rules == {
            "default-src": "'none'",
            "script-src": " ".join(digest(x) for x in run),
            "style-src": " ".join(digest(x) for x in read.all("style")),
            "img-src": "data:",
            "base-uri": "'none'",
            "form-action": "'none'",
        }
        # it stands before all that it is about
        order = [x.tag for x in read.elements]
        assert read.elements.index(policy) < min(order.index("style"), order.index("script"))


def test_a_served_page_may_ask_its_own_server_alone():
    text = render_page(report(SINFUL), served=Served(traces=()))
    read = ReadPage(text)
    [policy] = [x.get("content") for x in read.all("meta") if "http-equiv" in x.attributes]
    assert "default-src 'none'" in policy
    assert policy.endswith("; connect-src 'self'")
    assert read.one("served").get("type") == "application/json"


def test_many_files_are_compared_in_a_table(snapshot):
    names = ("events_device_synchronize", "events_elapsed_time", "events_event_synchronize")
    read = page(*names, "events_item", "events_wait")
    assert read.one("ranks").text == snapshot


def digest(element):
    raw = "".join(element.texts).encode()
    return f"'sha256-{base64.b64encode(hashlib.sha256(raw).digest()).decode()}'"


def test_nothing_is_inline_and_nothing_comes_from_elsewhere(hostile):
    for text in (hostile[0], render_page(report(JOB))):
        read = ReadPage(text)
        tags = {x.tag for x in read.elements}
        assert not tags & {
            "base",
            "iframe",
            "img",
            "object",
            "embed",
            "form",
            "link",
            "video",
            "use",
        }
        for element in read.elements:
            names = set(element.attributes)
            assert "style" not in names
            assert not [name for name in names if name.startswith("on")], element
            assert not names & {"src", "srcset", "srcdoc", "action", "formaction", "xlink:href"}
        types = [x.get("type") for x in read.all("script")]
        assert [x for x in types if x] in ([], ["application/json", "application/octet-stream"])


def test_hostile_names_stay_text(hostile):
    text, made_of = hostile
    read = ReadPage(text)
    assert not UNSEEN.search(text)
    assert numbers(read) == list(range(1, len(made_of.findings) + 1))
    shown = read.text
    # names of functions, files, operators and kernels are there as they are
    assert sum(payload in shown for payload in PAYLOADS) >= 12
    assert "\\u202egnp.elif\\u2066\\u200f" in text
    # and none of them is an element
    own = {"canvas", "noscript", "output", "select", "input"}
    assert {x.tag for x in read.elements} <= {x.tag for x in page(SINFUL).elements} | own


def lines_of_code(text):
    """The lines without indentation and comments, but those with quotes, and empty lines."""
    is_comment = False
    for line in map(str.strip, text.splitlines()):
        begins = not is_comment and line.startswith("/*")
        was_comment, is_comment = is_comment, (is_comment or begins) and not line.endswith("*/")
        if line and not (was_comment or begins or line.startswith("//")):
            code, _, comment = line.rpartition(" // ")
            yield line if not code or {*comment} & {*"\"'`"} else code.rstrip()


@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_comments_and_indentation_is_left_out(name):
    written = (SOURCES / name).read_text()
    assert asset(name).splitlines() == [*lines_of_code(written)]
    assert len(asset(name)) < len(written)


@pytest.mark.parametrize("name", NAMES)
def test_no_text_goes_over_several_lines(name):
    assert all(line.count("`") % 2 == 0 for line in (SOURCES / name).read_text().splitlines())
