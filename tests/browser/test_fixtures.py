"""That the browser hears what a page should not do, and that both viewers read a trace."""

import pytest

from tests.browser.conftest import Pages
from tests.build import files
from tests.build.files import US

HEAD = "<!doctype html><html lang=en><title>silent</title>"
SILENT = HEAD + "<p>A page."
POLICY = "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'\">"


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "page.html"
        path.write_text(text)
        return path

    return write


def test_a_silent_page_is_as_large_as_a_laptop(open_page, written):
    page = open_page(written(SILENT))
    assert page.inner_text("p") == "A page."
    assert page.evaluate("[innerWidth, innerHeight]") == [1440, 900]


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        ("<script>console.error('no')</script>", ["error: no"]),
        ("<script>throw new Error('no')</script>", ["uncaught: no"]),
        ("<script>alert('no')</script>", ["dialog: no"]),
        ("<script src='other.js'></script>", ["request: file:", "other.js"]),
        ("<iframe src='other.html'></iframe>", ["request: file:", "other.html"]),
        (f"{POLICY}<script>0</script>", ["error: ", "violation: script-src-elem inline"]),
    ],
    ids=["console", "uncaught", "dialog", "request", "frame", "policy"],
)
def test_what_a_page_should_not_do_is_heard(chromium, written, text, heard):
    path = written(HEAD + text)
    pages = Pages(chromium)
    pages(path)
    said = pages.close()
    assert said
    assert all(any(part in one for one in said) for part in heard), said

    pages = Pages(chromium)
    pages(path, expects=[one.partition(":")[0] for one in said])
    assert pages.close() == []


def test_what_is_expected_must_be_heard(chromium, written):
    pages = Pages(chromium)
    pages(written(SILENT), expects=["violation"])
    assert pages.close() == ["not heard: violation"]


def test_a_page_without_scripts(open_page, written):
    page = open_page(
        written(f"{SILENT}<script>document.title = 'loud'</script>"), java_script_enabled=False
    )
    assert page.title() == "silent"


@pytest.fixture(scope="module")
def two_kernels(tmp_path_factory):
    """Two kernels on one stream, 3 and 5 us long, the first launched by a call."""
    events = [
        files.launch(0, 1 * US, 1),
        files.kernel(2 * US, 5 * US, "first", correlation=1),
        files.kernel(5 * US, 10 * US, "second"),
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 100, "tid": 100, "ts": 0},
        {"ph": "f", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 0, "tid": 7, "ts": 2, "bp": "e"},
    ]
    return files.write(tmp_path_factory.mktemp("traces") / "two.json.gz", events)


@pytest.mark.slow
def test_perfetto_answers_in_sql(perfetto, two_kernels):
    opened = perfetto(two_kernels)
    rows = opened.sql("select name, dur from slice order by ts")
    assert rows == [
        {"name": "cudaLaunchKernel", "dur": 1_000},
        {"name": "first", "dur": 3_000},
        {"name": "second", "dur": 5_000},
    ]
    assert opened.sql("select count(*) as flows from flow") == [{"flows": 1}]
    assert opened.stats == {}
    assert perfetto(two_kernels) is opened


@pytest.mark.slow
def test_perfetto_says_what_it_dropped(perfetto, tmp_path):
    overlapping = [files.kernel(0, 5 * US), files.kernel(3 * US, 8 * US)]
    stats = perfetto(files.write(tmp_path / "overlapping.json", overlapping)).stats
    assert stats == {"slice_drop_overlapping_complete_event": 1}


@pytest.mark.slow
def test_catapult_says_what_it_read(catapult, two_kernels):
    model = catapult(two_kernels)
    assert model.flows == 1
    assert model.warnings == []
    by_pid = {process["pid"]: process["threads"] for process in model.processes}
    assert [(thread["tid"], thread["slices"]) for thread in by_pid[0]] == [(7, 2)]
    assert [(thread["tid"], thread["slices"]) for thread in by_pid[100]] == [(100, 1)]
