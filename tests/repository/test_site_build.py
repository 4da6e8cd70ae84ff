"""The site that is built of the documents, and the pages that its build makes."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

import tracelab
from tests.build import site_json, site_python, site_words
from tests.build.site_gallery import Shown, chosen, won
from tests.corpus import LINES
from tests.repository.test_site import DOCS, MAX_WORDS, ROOT, prose_of
from tracelab.findings.registry import RULES
from tracelab.findings.remedies import REMEDIES
from tracelab.report.glossary import FAMILIES, GROUPS

WORDS, JSON, PYTHON = site_words.pages(), site_json.pages(), site_python.pages()


def headings_of(pages):
    return [x for text in pages.values() for x in re.findall(r"^##? (.*)$", text, re.MULTILINE)]


def test_every_rule_remedy_and_group_of_words_is_on_one_page():
    headings = headings_of(WORDS)
    expected = [f"{rule.id}: {rule.name}" for rule in RULES]
    expected += [remedy.id for remedy in REMEDIES]
    expected += [group.title for group in GROUPS if group is not FAMILIES]
    assert [x for x in expected if headings.count(x) != 1] == []


def test_every_key_of_the_json_is_in_a_table():
    schemas = (site_json.json_schema(), site_json.brief_schema())
    types = {name: value for schema in schemas for name, value in schema["$defs"].items()}
    headings = headings_of(JSON)
    assert [name for name in types if headings.count(name) != 1] == []
    text = "\n".join(JSON.values())
    every = [*schemas, *types.values()]
    assert [x for s in every for x in s["properties"] if f"\n| `{x}` | " not in text] == []


def test_every_name_in_front_of_the_package_has_a_page():
    assert {f"reference/python/{x}" for x in tracelab.__all__ if x[0] != "_"} <= {*PYTHON}


@pytest.mark.parametrize("pages", [WORDS, JSON, PYTHON], ids=["words", "JSON", "Python"])
def test_pages_of_the_reference_are_short(pages):
    assert {x: n for x, t in pages.items() if (n := len(prose_of(t).split())) > MAX_WORDS} == {}


def test_the_gallery_has_every_variant():
    variants = {(line["workload"], line["arguments"][0]) for line in LINES.values()}
    assert {(LINES[x]["workload"], LINES[x]["arguments"][0]) for x in chosen()} == variants
    assert len(chosen()) < len(LINES)


@pytest.mark.parametrize(
    ("name", "fix", "times"),
    [
        ("events_item", "wait", ("4.12 → 3.09", "25 % shorter")),  # as recorded
        ("graphs_work_between", None, ()),
        ("ddp_hook_default_stream", "side_stream", ("13.9 → 13.4", "3 % shorter")),  # in turns
        ("events_wait", None, ()),  # it is the fix
    ],
)
def test_gain_of_a_fix_is_of_steps_without_the_profiler(name, fix, times):
    steps = {"events_item": 4.12, "events_wait": 3.09}
    every = {x: Shown("", "", "", steps.get(x)) for x in chosen()}
    text = won(name, every)
    assert (f"[{fix}](#{fix})" in text) == (fix is not None)
    assert all(part in text for part in times)


OUTSIDE = re.compile(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//")


class Page(HTMLParser):
    """What a page is named, links to and loads.

    Attributes:
        ids: the anchors of the page.
        links: where a click leads.
        loaded: what the browser fetches with the page.
        title: of the page.
        about: its description.
        is_of_here: whether it names a folder of this machine.
    """

    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.loaded = set(), [], []
        self.about = ""
        text = path.read_text(encoding="utf-8")
        self.is_of_here = str(ROOT) in text
        self.title = re.search(r"<title>(.*?)</title>", text, re.DOTALL)[1]
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.ids |= {values.get("id"), values.get("name")}
        if tag == "a":
            self.links.append(values.get("href", ""))
        elif tag == "meta" and values.get("name") == "description":
            self.about = values["content"]
        elif tag == "link" and values["rel"] in {"next", "prev", "index", "search", "canonical"}:
            self.links.append(values["href"])
        else:
            self.loaded += filter(None, (values.get("src"), tag == "link" and values.get("href")))


def wrong_links(site):
    for path, page in site.items():
        for link in page.links:
            name, _, anchor = unquote(link).partition("#")
            if re.match(r"[a-z]+:", name):
                continue
            file = (path.parent / name).resolve() if name else path
            known = site[file].ids if file in site else ()
            if not file.is_file() or (anchor and anchor not in known):
                yield f"{path.name}: {link}"


def from_elsewhere(site):
    """Yield what pages and their styles load that is not a file of the site."""
    for path, page in site.items():
        for address in page.loaded:
            file = path.parent / unquote(address.partition("?")[0])
            if not address.startswith("data:") and not file.is_file():
                yield f"{path.name}: {address}"
            elif file.suffix == ".css":
                yield from OUTSIDE.findall(file.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_site_is_built_whole_without_a_warning(tmp_path):
    """It is one test: the build takes most of a minute, and minutes where no picture is kept."""
    pytest.importorskip("sphinx", reason="Sphinx is not installed: pip install '.[dev-docs]'")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", DOCS, tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    site = {path.resolve(): Page(path) for path in tmp_path.rglob("*.html")}
    assert sum(len(page.links) for page in site.values()) > 10_000
    assert [*wrong_links(site)] == []
    assert [*from_elsewhere(site)] == []
    assert [path.name for path, page in site.items() if page.is_of_here or not page.title] == []
    described = {path for path, page in site.items() if page.about}
    assert {path.name for path in {*site} - described} <= {"genindex.html", "search.html"}
    copied = {name for name in ("llms.txt", "SKILL.md") if (DOCS / name).exists()}
    assert copied <= {path.name for path in tmp_path.iterdir()}
    gallery = {path.stem: page for path, page in site.items() if path.parent.name == "gallery"}
    assert {*gallery} == {LINES[name]["workload"] for name in chosen()}
    assert {*chosen()} <= {Path(x).stem for page in gallery.values() for x in page.loaded}
