"""Budgets that were checked, as continuous integration wants them: GitHub's annotations, JUnit."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tracelab.base.safe_text import clean
from tracelab.comparison.budgets import BudgetResult

_NOT_IN_XML = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # compiled when needed
# GitHub reads a command at the beginning of a line, or after ##[ anywhere.
_GITHUB_COMMAND = re.compile(r"^(\s*):(?=:)|##(?=\[)", re.MULTILINE)


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
        properties = {"title": f"tracelab: {result.name}"}
        if result.file is not None:
            properties["file"] = result.file
            if result.line is not None:
                properties["line"] = str(result.line)
        listed = ",".join(f"{key}={_escape_property(text)}" for key, text in properties.items())
        lines.append(f"::error {listed}::{_escape(_sentence(result))}\n")
    return "".join(lines)


def _escape(text: str) -> str:
    return clean(text).replace("%", "%25")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")


def escape_github_commands(text: str) -> str:
    """The text, in which GitHub finds no workflow command, whatever names a trace has.

    >>> escape_github_commands("::error::a kernel's name")
    ": :error::a kernel's name"
    """
    return _GITHUB_COMMAND.sub(_disarmed, text)


def _disarmed(command: re.Match[str]) -> str:
    """Put a space into a text that GitHub would take for a command."""
    return f"{command[1]}: " if command[1] is not None else "# #"


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
        if result.file is not None:
            case.set("file", _xml_text(result.file))
            if result.line is not None:
                case.set("line", str(result.line))
        if not result.passed:
            sentence = _xml_text(_sentence(result))
            ElementTree.SubElement(case, "failure", message=sentence, type="budget").text = sentence
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _xml_text(text: str) -> str:
    """The text without the characters that XML does not allow."""
    return re.sub(_NOT_IN_XML, "", text)
