"""Checked budgets as text, Markdown, GitHub's annotations and JUnit's XML."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tracelab.base.safe_text import clean, counted
from tracelab.comparison.budgets import BudgetResult
from tracelab.render.markdown import MAX_TEXT_LETTERS, chapter_blocks, comment
from tracelab.render.section import PROSE, Chapter, Section, Tone, table

# Longer places are printed below the figures, at 80 columns.
_MAX_LETTERS_BESIDE = 24
_NOT_IN_XML = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # compiled when needed


def render_budgets(results: Sequence[BudgetResult], *, width: int, color: bool) -> str:
    """Return text of at least 80 columns."""
    from tracelab.render.text.report import draw

    tone = Tone.STRONG if all(result.passed for result in results) else Tone.WARNING
    summary = Section("", (_verdict(results),), tone=tone)
    chapter = Chapter("", (*_sections(results, _MAX_LETTERS_BESIDE), summary))
    return draw([chapter], width=width, color=color)


def render_markdown(results: Sequence[BudgetResult]) -> str:
    """Return a comment, failed budgets first."""
    heading = f"### tracelab check: {_verdict(results).rstrip('.')}"
    failed_first = sorted(results, key=lambda result: result.passed)
    chapter = Chapter("", _sections(failed_first, MAX_TEXT_LETTERS))
    return comment("check", [heading, *chapter_blocks(chapter)])


def _sections(results: Sequence[BudgetResult], most_letters: int) -> tuple[Section, Section]:
    windows = list(dict.fromkeys(result.window for result in results if result.window))
    details = {
        result.name: ", ".join(filter(None, (result.where, result.window * (len(windows) > 1))))
        for result in results
    }
    listed = table(
        "",
        results,
        ("budget", "name", PROSE),
        ("found", "measured"),
        ("allowed", "allowed"),
        ("", lambda x: "passed" if x.passed else "FAILED"),
        (
            "where",
            lambda x: details[x.name] if len(details[x.name]) <= most_letters else "see below",
            PROSE,
        ),
    )
    below = [f"{name}: {where}." for name, where in details.items() if len(where) > most_letters]
    measured = [f"Measured over {windows[0]}."] if len(windows) == 1 else []
    return listed, Section("", (*below, *measured))


def _verdict(results: Sequence[BudgetResult]) -> str:
    failed = sum(not result.passed for result in results)
    count = counted(len(results), "budget", "budgets")
    return f"{failed} of {count} FAILED." if failed else f"{count} passed."


def _place(result: BudgetResult) -> dict[str, str]:
    if result.file is None:
        return {}
    line = {} if result.line is None else {"line": str(result.line)}
    return {"file": result.file, **line}


def _sentence(result: BudgetResult) -> str:
    where = ", ".join(filter(None, (result.where, result.window)))
    found = f"{result.name}: {result.measured}, allowed: {result.allowed}"
    return f"{found}; {where}" if where else found


def github_annotations(results: Sequence[BudgetResult]) -> str:
    """GitHub's workflow commands, a line a failed budget."""
    lines = []
    for result in results:
        if result.passed:
            continue
        properties = {"title": f"tracelab: {result.name}", **_place(result)}
        listed = ",".join(f"{key}={_escape_property(text)}" for key, text in properties.items())
        lines.append(f"::error {listed}::{_escape(_sentence(result))}\n")
    return "".join(lines)


def _escape(text: str) -> str:
    return clean(text).replace("%", "%25")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def junit_xml(results: Sequence[BudgetResult]) -> bytes:
    """JUnit XML, a test case a budget."""
    from xml.etree import ElementTree

    failures = str(sum(not result.passed for result in results))
    counts = {"tests": str(len(results)), "failures": failures, "errors": "0"}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "tracelab check", **counts})
    for result in results:
        name = _xml_text(result.name)
        case = ElementTree.SubElement(suite, "testcase", classname="tracelab.check", name=name)
        for key, text in _place(result).items():
            case.set(key, _xml_text(text))
        if not result.passed:
            sentence = _xml_text(_sentence(result))
            ElementTree.SubElement(case, "failure", message=sentence, type="budget").text = sentence
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _xml_text(text: str) -> str:
    return re.sub(_NOT_IN_XML, "", text)
