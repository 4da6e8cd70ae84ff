"""Results in the cells of a notebook."""

import builtins
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

import tracelab
from tests.build.files import US, kernel, write
from tests.build.report_rows import NASTY, make_finding, make_report
from tracelab.findings.finding import Where
from tracelab.measures.measure import Table
from tracelab.render.registry import render_as
from tracelab.render.text.report import render_text

TRACE = Path(__file__).parents[3] / "traces" / "prefetch_copy_stream_synchronize.pt.trace.json.gz"
FIXED = Path(__file__).parents[3] / "traces" / "prefetch_copy_stream_pinned.pt.trace.json.gz"


@pytest.fixture(scope="module")
def report():
    return tracelab.analyze(TRACE)


@pytest.fixture(scope="module")
def shown():
    """What IPython would show of an object, by type."""
    shell = pytest.importorskip("IPython.core.interactiveshell", reason="IPython is not installed")
    return lambda thing: shell.InteractiveShell().display_formatter.format(thing)[0]


def test_a_report_shows_itself(report, shown):
    by_type = shown(report)
    assert by_type["text/plain"] == render_text(report, width=100, color=False)
    assert by_type["text/html"].startswith("<pre")
    assert "report.findings[0], tracelab.whatif(FILE, fixes=1)" in by_type["text/html"]
    assert "--" not in by_type["text/html"]
    assert "blocking calls" in by_type["text/html"]


def test_every_other_result_shows_the_same_words_as_text_and_as_html(report, shown):
    diff = tracelab.compare(report, tracelab.analyze(FIXED))
    for result in (report.findings[0], tracelab.whatif(TRACE), diff):
        by_type = shown(result)
        assert by_type["text/plain"] == str(result)
        html = unescape(re.sub("<[^>]*>", "", by_type["text/html"]))
        first = next(line.strip() for line in str(result).splitlines() if line.strip())
        assert first[:40] in html
        assert "<pre" in by_type["text/html"]


def test_a_finding_by_itself_says_place_fix_and_saving(report):
    finding = report.findings[0]
    text = " ".join(str(finding).split())
    assert finding.rule in text
    assert finding.where.function in text
    assert " ".join(finding.fix.split()) in text
    assert "saves 1" not in str(make_finding())
    assert "saves at most 1.50 ms" in str(make_finding(saves_high_ns=1_500_000))
    priced = make_finding(saves_ns=1_500_000, saves_low_ns=1_200_000, saves_high_ns=2_000_000)
    assert "saves 1.50 ms (1.20 to 2.00)" in str(priced)


def test_a_table_shows_times_as_the_screen_does_and_the_exact_figure(report, shown):
    html = shown(report.steps)["text/html"]
    first = report.steps[0]
    assert html.count("<tr>") == len(report.steps) + 1
    assert f"title='{first.length_ns:,} ns'" in html
    assert f"{first.length_ns / 1e6:.2f} ms" in html or f"{first.length_ns / 1e3:.1f} µs" in html
    assert "bubbles_ns.host_blocked" in html


def test_a_long_table_is_cut_and_counts_the_rest(report):
    long = Table([report.kernels[0]] * 50)
    assert render_as(long, "notebook").count("<tr>") == 21
    assert "… and 30 rows more" in render_as(long, "notebook")
    assert "… and 30 rows more" in str(long)
    assert str(report.kernels[:0]) == "no rows\n"
    assert render_as(report.kernels[:0], "notebook").count("<table") == 0


def test_text_of_a_table_fits_and_names_the_other_columns(report):
    lines = str(report.findings).splitlines()
    assert max(map(len, lines)) <= 100
    assert "further columns: " in str(report.findings)
    assert "saves_low_ns" in " ".join(lines)


class Kernel:
    """What IPython calls its shell in a notebook."""

    kernel = True


@pytest.fixture
def in_notebook(monkeypatch):
    monkeypatch.setattr(builtins, "get_ipython", Kernel, raising=False)


def page_in(frame):
    """The page that a frame of HTML holds."""
    return unescape(re.search('srcdoc="([^"]*)"', frame)[1])


@pytest.mark.usefixtures("in_notebook")
def test_a_report_shows_its_page_in_a_frame_that_reaches_nothing(report, shown, capsys, tmp_path):
    # WHEN a cell ends in it
    html = shown(report.show(height=432))["text/html"]
    # THEN the page with its timeline is in the cell alone
    assert re.sub('srcdoc="[^"]*"', "", html).count('height="432"') == 1
    assert 'sandbox="allow-scripts allow-popups allow-popups-to-escape-sandbox"' in html
    assert "allow-same-origin" not in html
    page = page_in(html)
    tracelab.write_page(TRACE, tmp_path / "page.html")
    assert page == Path(tmp_path, "page.html").read_text(encoding="utf-8")
    assert "Content-Security-Policy" in page
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("in_notebook")
def test_a_page_has_no_timeline_of_a_file_that_has_gone_or_changed(tmp_path):
    path = tmp_path / "a.json.gz"
    shutil.copy(TRACE, path)
    report = tracelab.analyze(path)
    assert 'id="timeline-columns"' in page_in(report.show()._repr_html_())
    shutil.copy(FIXED, path)
    assert 'id="timeline-columns"' not in page_in(report.show()._repr_html_())
    path.unlink()
    assert 'id="timeline-columns"' not in page_in(report.show()._repr_html_())
    assert report.findings[0].where.function in page_in(report.show()._repr_html_())


@pytest.mark.usefixtures("in_notebook")
def test_a_page_of_one_step_and_of_a_job_has_its_timeline():
    step = tracelab.analyze(TRACE, step=3)
    assert 'id="timeline-columns"' in page_in(step.show()._repr_html_())
    job = tracelab.analyze(str(TRACE.parent / "straggler_more_work_rank*"))
    assert page_in(job.show()._repr_html_()).count("straggler_more_work_rank") > 1


def test_outside_of_a_notebook_it_says_what_to_call(report, capsys, monkeypatch):
    monkeypatch.setattr(tracelab.base.printing, "render", None)  # nothing is computed
    report.show()
    said = capsys.readouterr().err
    assert f"tracelab.write_page({str(TRACE)!r}, 'page.html')" in said
    assert said.count("\n") == 1


def test_hostile_names_are_text(shown):
    nasty = f"<img src=x onerror=alert(1)> '\" {NASTY}"
    where = Where(count=1, function=nasty, file=nasty, line=3)
    report = make_report(findings=[make_finding(title=nasty, where=where)])
    for thing in (report, report.findings, report.findings[0]):
        html = shown(thing)["text/html"]
        assert "<img" not in html
        assert "' onerror" not in html
        assert not {"\x1b", "\u202e", "\u2066", "\ud800", "\x9b"} & {*html}
        assert "&lt;img" in html


def test_columns_of_a_page_align(report):
    # GIVEN pages that give <pre> a font, a line height or wrapping of their own
    style = render_as(report, "notebook").partition(">")[0]
    # THEN the report has its own
    assert "white-space:pre;" in style
    assert "font-family:Menlo," in style
    assert "line-height:1.3" in style


def test_names_in_a_trace_are_escaped(tmp_path):
    path = write(tmp_path / "a.json", [kernel(0, 5 * US, "<script>alert(1)</script>")])
    page = render_as(tracelab.analyze(path), "notebook", full=True)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_picture_shows_itself(shown):
    assert shown(tracelab.draw(TRACE))["image/png"].startswith(b"\x89PNG")


def test_a_notebook_needs_no_call():
    pytest.importorskip("IPython", reason="IPython is not installed")
    code = f"import tracelab; tracelab.analyze({str(TRACE)!r})"
    command = [sys.executable, "-m", "IPython", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "busy 91 %" in done.stdout
