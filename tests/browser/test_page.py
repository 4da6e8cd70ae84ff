"""The whole page in a browser: what a reader sees, clicks and types, on paper, without scripts."""

import csv
import json
import re

import pytest

import tracelab
from tests.browser.using import drag, ready, shown, view, wait_until, wheel
from tests.build import files
from tests.bundled_traces import FOLDER, report_of
from tracelab.render.first_screen import first_screen

TRACE = FOLDER / "train_step_sinful.pt.trace.json.gz"
FIRST_SCREEN_PX = 900


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    page = tmp_path_factory.mktemp("page") / "step.html"
    tracelab.write_page(TRACE, page)
    return page


@pytest.fixture(scope="module")
def job_path(tmp_path_factory):
    page = tmp_path_factory.mktemp("job_page") / "job.html"
    ranks = [FOLDER / f"straggler_more_work_rank{rank}.pt.trace.json.gz" for rank in (0, 1)]
    tracelab.write_page(ranks, page)
    return page


@pytest.fixture(scope="module")
def meta(path):
    """What the page's timeline is made from."""
    element = r'<script type="application/json" id="timeline-meta">(.*?)</script>'
    return json.loads(re.search(element, path.read_text(), re.DOTALL)[1])


def visible_text(page):
    """The text of the page as it is shown, with every white space as one space."""
    return re.sub(r"\s+", " ", page.inner_text("body"))


@pytest.mark.parametrize("which", ["path", "job_path"])
def test_what_matters_is_on_the_first_screen(open_page, request, which):
    page = ready(open_page(request.getfixturevalue(which)))
    assert page.evaluate("document.documentElement.scrollWidth") <= 1440
    for part in ("#summary", "#findings li.finding:first-child", "#overview", "#lanes"):
        box = page.locator(part).first.bounding_box()
        assert box["height"] > 10, part
        assert box["y"] + box["height"] <= FIRST_SCREEN_PX, part


def test_it_says_what_the_text_says(open_page, path):
    text = visible_text(open_page(path))
    step, gpu, fixes = first_screen(report_of(TRACE)).facts
    assert f"{gpu.label} {gpu.text}" in text
    for length in re.split(r" \(|\)", step.text)[:2]:
        assert length in text
    _, _, predicted = fixes.text.partition(" -> ")
    assert predicted.partition(":")[0] in text
    for finding in report_of(TRACE).findings:
        if finding.about == "program":
            assert finding.shown_title.replace("`", "") in text


def test_a_click_on_a_finding_shows_its_evidence(open_page, path, meta):
    page = ready(open_page(path))
    for finding in meta["findings"]:
        number = finding["number"]
        page.click(f"li.finding[data-finding='{number}'] button.show")
        assert view(page) == finding["view"]
        assert page.evaluate("tracelabTimeline.finding") == number
        assert re.search(rf"#f={number}&t=", page.url)


def test_the_address_holds_the_view(open_page, path):
    first = ready(open_page(path))
    first.click("li.finding[data-finding='2'] button.show")
    shown = first.url
    first.focus("#lanes")
    first.keyboard.press("w")
    first.wait_for_url(lambda url: url != shown)  # the address follows a little later than the view
    fragment = first.url.partition("#")[2]

    second = ready(open_page(path))
    second.evaluate("text => { location.hash = text }", fragment)
    second.reload()
    ready(second)
    assert view(second) == pytest.approx(view(first), abs=1)
    assert second.evaluate("tracelabTimeline.finding") == 2


def test_a_window_too_narrow_for_the_lanes_shows_them_once_it_is_wider(open_page, path):
    page = ready(open_page(path, viewport={"width": 40, "height": 900}))  # the labels take it all
    page.set_viewport_size({"width": 1440, "height": 900})
    page.evaluate("new Promise(requestAnimationFrame)")
    assert page.locator("#lanes").bounding_box()["width"] > 500


def test_a_step_can_be_chosen(open_page, path, meta):
    page = ready(open_page(path))
    labels = page.locator("#window option").all_inner_texts()
    for window in meta["windows"]:
        assert any(label.startswith(window["label"]) for label in labels)
        page.select_option("#window", label=next(x for x in labels if window["label"] in x))
        assert view(page) == [window["start"], window["end"]]


def test_the_wheel_scrolls_the_page_until_the_timeline_is_clicked(open_page, path):
    page = ready(open_page(path))
    before = view(page)
    page.locator("#lanes").hover()
    wheel(page, 200)
    wait_until(page, "scrollY || document.querySelector('#lanes-scroll').scrollTop")
    assert view(page) == before

    page.evaluate("scrollTo(0, 0)")
    page.keyboard.down("Control")
    wheel(page, -200)
    page.keyboard.up("Control")
    closer = view(page)
    assert closer[1] - closer[0] < before[1] - before[0]

    page.locator("#lanes").click(position={"x": 600, "y": 60})
    wheel(page, -200)
    closest = view(page)
    assert closest[1] - closest[0] < closer[1] - closer[0]


def test_everything_can_be_reached_by_keys(open_page, path, meta):
    page = ready(open_page(path))
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "lanes":
            break
    else:
        pytest.fail("Tab does not lead to the timeline")

    said = set()
    for key in ["ArrowDown", "ArrowDown", *["ArrowRight"] * 4, "ArrowUp", "ArrowLeft"]:
        page.keyboard.press(key)
        said.add(shown(page))
    assert len(said) > 4
    assert all("duration" in text for text in said)

    length = view(page)[1] - view(page)[0]
    page.keyboard.press("w")
    assert view(page)[1] - view(page)[0] < length
    page.keyboard.press("Home")
    assert view(page) == [meta["start"], meta["end"]]

    page.keyboard.press("n")
    assert page.evaluate("tracelabTimeline.finding") == meta["findings"][0]["number"]
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("gemm")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    assert page.locator("dialog[open]").count() == 1
    page.keyboard.press("Escape")
    assert page.locator("dialog[open]").count() == 0


def test_a_dragged_range_is_measured_exactly(open_page, path):
    page = ready(open_page(path))
    drag(page, "#lanes", 0.4, 0.7)
    rows = page.locator("#measured table tbody tr, #measured table tr:has(td)").count()
    assert rows >= 3


KERNELS, RATES = (f"#kernels .section:nth-child({place}) table" for place in (1, 2))


def column(page, index):
    """The texts of a column of the kernels, of the rows that are shown."""
    cells = page.locator(f"{KERNELS} tbody tr:not([hidden]) > :nth-child({index + 1})")
    return [text.strip() for text in cells.all_inner_texts()]


def copied(page, button):
    """The text that a button copies."""
    page.evaluate(
        "Object.defineProperty(navigator, 'clipboard', { configurable: true, "
        "value: { writeText: async text => { window.copied = text; } } })"
    )
    page.click(button)
    return page.evaluate("copied")


def test_a_click_on_a_heading_sorts_by_exact_figures_or_by_words(open_page, path):
    page = open_page(path)
    titles = page.locator(f"{KERNELS} thead th").all_inner_texts()
    mean = titles.index("mean")
    cells = page.locator(f"{KERNELS} tbody tr > :nth-child({mean + 1})")
    heading = page.locator(f"{KERNELS} thead th").nth(mean)

    def exact_ns():
        texts = [x.get_attribute("title") or x.inner_text() for x in cells.all()]
        return [int(text.removesuffix(" ns").replace(",", "")) for text in texts]

    before = exact_ns()
    heading.locator("button").click()
    assert exact_ns() == sorted(before, reverse=True) != before
    assert heading.get_attribute("aria-sort") == "descending"
    heading.locator("button").focus()
    page.keyboard.press("Enter")
    assert exact_ns() == sorted(before)
    assert heading.get_attribute("aria-sort") == "ascending"

    phase = page.locator(f"{KERNELS} thead th").nth(titles.index("phase"))
    phase.locator("button").click()
    phases = column(page, titles.index("phase"))
    assert phases == sorted(phases)
    assert page.locator(f"{KERNELS} [aria-sort]").count() == 1


def test_rates_are_sorted_by_their_size(open_page, tmp_path):
    tracelab.write_page(FOLDER / "three_defects_all_three.pt.trace.json.gz", tmp_path / "page.html")
    page = open_page(tmp_path / "page.html")
    titles = page.locator(f"{RATES} thead th").all_inner_texts()
    place = titles.index("bytes/s")
    page.locator(f"{RATES} thead th").nth(place).locator("button").click()
    cells = page.locator(f"{RATES} tbody tr > :nth-child({place + 1})").all_inner_texts()
    rates = [text.split() for text in cells if text != "-"]
    assert cells[len(rates) :] == ["-"] * (len(cells) - len(rates)) != []
    sizes = [float(rate) * {"G": 1e9, "M": 1e6, "k": 1e3}[letter] for rate, letter in rates]
    assert sizes == sorted(sizes, reverse=True)
    assert len(sizes) > 2


def test_a_box_filters_rows_and_paper_has_all(open_page, path):
    page = open_page(path)
    every = column(page, 0)
    page.fill("#kernels .section:first-child .filter", "elementwise BACKWARD")
    some = column(page, 0)
    assert 0 < len(some) < len(every)
    rows = page.locator(f"{KERNELS} tbody tr:not([hidden])").all()
    assert all("elementwise" in row.inner_html() for row in rows)  # or in the whole of its name
    assert set(column(page, page.locator(f"{KERNELS} thead th").count() - 1)) == {"backward"}
    page.emulate_media(media="print")
    rows = page.locator(f"{KERNELS} tbody tr")
    assert all(row.is_visible() for row in rows.all())
    assert rows.count() == len(every)


def test_a_table_is_copied_with_exact_figures_as_it_is_shown(open_page, path):
    page = open_page(path)
    page.fill("#kernels .section:first-child .filter", "nvjet forward")
    lines = [*csv.reader(copied(page, "#kernels .section:first-child .copy").splitlines())]
    assert lines[0][:2] == ["name · kind", "count"]
    assert {"time (ns)", "mean (ns)", "of GPU time (%)"} <= set(lines[0])
    assert len(lines) - 1 == len(column(page, 0)) > 1
    kernels = {row.name: row for row in report_of(TRACE).kernels if row.step is None}
    for line in lines[1:]:
        name, _, kind = line[0].partition(" · ")
        assert kind == "compute"
        assert int(line[lines[0].index("time (ns)")]) == kernels[name].total_ns


def test_a_chosen_rank_is_shown_in_all_tables_by_rank(open_page, job_path):
    page = open_page(job_path)

    def headings(key):
        titles = page.locator(f"#{key} h3")
        return {x.inner_text().partition(":")[0] for x in titles.all() if x.is_visible()}

    assert headings("kernels") == headings("lines") == {"Rank 0"}
    page.select_option("#lines select.ranks", label="rank 1")
    assert headings("kernels") == headings("lines") == {"Rank 1"}
    assert page.locator("#kernels select.ranks").input_value() == "rank 1"


def test_without_scripts_the_tables_of_all_ranks_are_there(open_page, job_path):
    page = open_page(job_path, java_script_enabled=False)
    assert all(x.is_visible() for x in page.locator("#kernels table, #lines table").all())
    assert page.locator("#kernels table").count() >= 2
    assert page.locator("select.ranks").first.is_hidden()


def test_no_copied_name_is_a_formula(open_page, tmp_path):
    names = ["=1+1", "@SUM(A1)", ' -x,"y"', "plain"]
    events = [files.kernel(i * files.US, (i + 1) * files.US, x) for i, x in enumerate(names)]
    tracelab.write_page(files.write(tmp_path / "a.json", events), tmp_path / "page.html")
    page = open_page(tmp_path / "page.html")
    lines = [*csv.reader(copied(page, "#kernels .section:first-child .copy").splitlines())]
    read = {line[0].partition(" · ")[0] for line in lines[1:]}
    assert read == {"'=1+1", "'@SUM(A1)", '\'-x,"y"', "plain"}


@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_light_and_dark(open_page, path, scheme, is_dark):
    page = ready(open_page(path, color_scheme=scheme))

    def is_page_dark():
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", color)[:3])) < 3 * 128

    assert is_page_dark() is is_dark
    page.click("#theme")
    assert is_page_dark() is not is_dark


def test_on_paper_are_all_findings_and_their_fixes(open_page, path, tmp_path):
    page = ready(open_page(path, color_scheme="dark"))
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    text = visible_text(page)
    program = [x for x in report_of(TRACE).findings if x.about == "program"]
    assert len(program) > 3
    for finding in program:
        assert finding.shown_title.replace("`", "") in text
        assert finding.fix.replace("`", "")[:60] in text
    written = tmp_path / "page.pdf"
    page.pdf(path=written)
    assert written.read_bytes().startswith(b"%PDF")


def test_a_narrow_screen_scrolls_down_alone(open_page, tmp_path):
    # GIVEN the page of files whose long names are in the list of steps
    files = [FOLDER / f"copies_{name}_stream.pt.trace.json.gz" for name in ("one", "own")]
    tracelab.write_page(files, tmp_path / "page.html")
    # THEN nothing of it lies beside a telephone's screen
    page = ready(open_page(tmp_path / "page.html", viewport={"width": 390, "height": 844}))
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    name = page.locator("#kernels-0 tbody th").first.bounding_box()
    assert 120 <= name["width"] <= 250


@pytest.mark.parametrize("which", ["path", "job_path"])
def test_without_scripts_there_is_everything_but_the_timeline(open_page, request, which):
    page = open_page(request.getfixturevalue(which), java_script_enabled=False)
    text = visible_text(page)
    assert "The timeline needs JavaScript" in text
    assert page.locator("table").count() > 5
    assert page.locator("li.finding").count() >= 1
    assert page.locator("#theme").is_hidden()


def test_a_saved_report_has_a_page_without_a_timeline(open_page, tracelab, tmp_path):
    saved, path = tmp_path / "report.json", tmp_path / "page.html"
    assert tracelab("analyze", TRACE, "--json", saved).code == 0
    assert tracelab("analyze", saved, "--html", path).code == 0
    page = open_page(path)
    assert "Timeline: made only from the trace" in visible_text(page)
    assert page.locator("canvas").count() == 0
    assert page.locator("li.finding").count() >= 4
    assert page.locator(".part").first.get_attribute("id") == "kernels"
    page.fill("#kernels .section:first-child .filter", "nvjet")
    page.locator(KERNELS).get_by_role("button", name="count").click()
    counts = [int(text) for text in column(page, 1)]
    assert counts == sorted(counts, reverse=True)
    assert len(counts) > 1


@pytest.mark.parametrize("which", ["path", "job_path"])
def test_it_makes_sense_to_a_screen_reader(open_page, request, which):
    page = ready(open_page(request.getfixturevalue(which)))
    wrong = page.evaluate(
        """() => {
          const all = selector => [...document.querySelectorAll(selector)];
          const ids = all("[id]").map(one => one.id);
          const name = one => one.getAttribute("aria-label") || one.textContent.trim();
          const levels = all("h1, h2, h3, h4").map(one => Number(one.tagName[1]));
          return [
            ...ids.filter((id, i) => ids.indexOf(id) !== i).map(id => `twice: ${id}`),
            ...all("button").filter(one => !name(one)).map(one => `no name: ${one.id}`),
            ...all("table").filter(one => !one.querySelector("th[scope]")).map(() => "no header"),
            ...all("canvas").filter(one => one.getAttribute("aria-hidden") !== "true"
              && !one.getAttribute("aria-label")).map(one => `no label: ${one.id}`),
            ...all("svg:not(svg svg)").filter(one => one.getAttribute("aria-hidden") !== "true"
              && !(one.getAttribute("role") === "img" && name(one))).map(() => "svg without name"),
            ...levels.filter((level, i) => i && level > levels[i - 1] + 1).map(() => "skips"),
            ...(levels.filter(level => level === 1).length === 1 ? [] : ["not one h1"]),
            ...(document.documentElement.lang === "en" ? [] : ["no language"]),
          ];
        }"""
    )
    assert wrong == []


def test_in_the_frame_of_a_notebook_it_works_and_stays_there(open_page, tmp_path):
    # GIVEN a cell's output in a page that is no page of ours
    cell = tmp_path / "notebook.html"
    frame = tracelab.report.schema.PageFrame(report_of(TRACE), 700)._repr_html_()
    cell.write_text(f"<!DOCTYPE html><meta charset=utf-8><p>a cell</p>{frame}", encoding="utf-8")
    page = open_page(cell)
    inner = page.frames[1]
    inner.wait_for_selector("#findings li.finding")
    # WHEN a link to a part and a finding are clicked
    inner.click("a[href='#kernels']")
    wait_until(
        inner, "Math.abs(document.getElementById('kernels').getBoundingClientRect().y) < 200"
    )
    inner.click("#findings li.finding:first-child")
    # THEN the frame shows them, and neither it nor the page around it has gone elsewhere
    assert (inner.url, page.url) == ("about:srcdoc", cell.as_uri())
    assert inner.locator("li.finding[aria-current='true']").count() == 1
    assert page.inner_text("p") == "a cell"
    # AND its scripts are of no origin, so that they reach nothing around it
    assert inner.evaluate("origin") == "null"
