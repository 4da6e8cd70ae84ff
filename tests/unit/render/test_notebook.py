import subprocess
import sys
from pathlib import Path

import pytest

import tracelab
from tests.build.files import US, kernel, write
from tracelab.render.registry import render_as, show_reports
from tracelab.render.text.report import render_text

TRACE = Path(__file__).parents[3] / "traces" / "prefetch_copy_stream_synchronize.pt.trace.json.gz"

IPython = pytest.importorskip("IPython", reason="IPython is not installed")


@pytest.fixture
def shown(monkeypatch):
    """What a notebook would show of an object, by type."""
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    show_reports()
    return lambda thing: shell.display_formatter.format(thing)[0]


def test_report_shows_itself(shown):
    report = tracelab.analyze(str(TRACE))
    by_type = shown(report)
    assert by_type["text/plain"] == render_text(report, width=100, color=False)
    assert by_type["text/html"].startswith("<pre")
    assert "blocking calls" in by_type["text/html"]


def test_columns_of_a_page_align(shown):
    # GIVEN pages that give <pre> a font, a line height or wrapping of their own
    style = shown(tracelab.analyze(str(TRACE)))["text/html"].partition(">")[0]
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
    code = f"import tracelab; tracelab.analyze({str(TRACE)!r})"
    command = [sys.executable, "-m", "IPython", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "busy 91 %" in done.stdout


def test_without_a_running_ipython_nothing_happens(monkeypatch):
    monkeypatch.setattr(IPython, "get_ipython", lambda: None)
    show_reports()
