"""Budgets that were checked: as text, as Markdown, as GitHub's annotations and as JUnit's XML."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tracelab.base.safe_text import clean, counted
from tracelab.comparison.budgets import BudgetResult
from tracelab.render.markdown.blocks import cell, comment, table as markdown_table
from tracelab.render.section import PROSE, Chapter, Section, Tone, table

# Characters that fit next to the figures at 80 columns; a longer place is printed below them.
_MAX_LETTERS_BESIDE = 24
_TITLES = ("budget", "found", "allowed", "", "where")
_NOT_IN_XML = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # compiled when needed


def render_budgets(results: Sequence[BudgetResult], *, width: int, color: bool) -> str:
    """Return the budgets as text of at least 80 columns, each with what was found."""
    from tracelab.render.text.report import draw

    return draw([_chapter(results)], width=width, color=color)


def _chapter(results: Sequence[BudgetResult]) -> Chapter:
    measured_over = _windows(results)
    details = [_detail(result, several_windows=len(measured_over) > 1) for result in results]
    listed = table(
        "",
        zip(results, details, strict=True),
        ("budget", lambda row: row[0].name, PROSE),
        ("found", lambda row: row[0].measured),
        ("allowed", lambda row: row[0].allowed),
        ("", lambda row: "passed" if row[0].passed else "FAILED"),
        ("where", lambda row: row[1] if len(row[1]) <= _MAX_LETTERS_BESIDE else "see below", PROSE),
    )
    below = tuple(
        f"{result.name}: {where}."
        for result, where in zip(results, details, strict=True)
        if len(where) > _MAX_LETTERS_BESIDE
    )
    measured = (f"Measured over {measured_over[0]}.",) if len(measured_over) == 1 else ()
    tone = Tone.STRONG if all(result.passed for result in results) else Tone.WARNING
    summary = Section("", (_verdict(results),), tone=tone)
    return Chapter("", (listed, Section("", (*below, *measured)), summary))


def _verdict(results: Sequence[BudgetResult]) -> str:
    failed = sum(not result.passed for result in results)
    count = counted(len(results), "budget", "budgets")
    return f"{failed} of {count} FAILED." if failed else f"{count} passed."


def _windows(results: Sequence[BudgetResult]) -> list[str]:
    return list(dict.fromkeys(result.window for result in results if result.window))


def _detail(result: BudgetResult, *, several_windows: bool) -> str:
    """Say where it is, and in which window if several were measured."""
    window = result.window if several_windows else ""
    return ", ".join(filter(None, (result.where, window)))


def render_markdown(results: Sequence[BudgetResult]) -> str:
    """Return the budgets as a comment: how many failed, then each, those that failed first."""
    several = len(_windows(results)) > 1
    rows = (
        (
            cell(result.name),
            cell(result.measured),
            cell(result.allowed),
            "passed" if result.passed else "**FAILED**",
            cell(_detail(result, several_windows=several)),
        )
        for result in sorted(results, key=lambda result: result.passed)
    )
    measured = f"Measured over {cell(_windows(results)[0])}." if len(_windows(results)) == 1 else ""
    heading = f"### tracelab check: {_verdict(results).rstrip('.')}"
    return comment("check", [heading, markdown_table(_TITLES, rows), measured])


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
    """GitHub's workflow commands, a line for each budget that failed."""
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
    """The results as JUnit XML, a test case for each budget."""
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
