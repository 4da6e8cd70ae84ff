"""Registry of renderers, which turn a result and their options into text or bytes."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, cast

from tracelab.base.arrays import Record
from tracelab.base.errors import UsageError

REPORT = "tracelab.report.schema:Report"
DIFF = "tracelab.comparison.diff:Diff"
FINDING = "tracelab.findings.finding:Finding"
TABLE = "tracelab.measures.measure:Table"
WHATIF = "tracelab.report.schema:WhatIf"
BUDGETS = "tracelab.comparison.budgets:BudgetResult"  # a list
PICTURE = "tracelab.render.picture.save:Picture"


class Renderer(Record):
    """One way to show one sort of result.

    Attributes:
        name: the form that requests it.
        takes: the class of the result, as MODULE:CLASS; of budgets a list of it.
        function: of the result and options; or MODULE:FUNCTION, imported when used.
        endings: of its files.
    """

    name: str
    takes: str
    function: Callable[..., str | bytes] | str
    endings: tuple[str, ...] = ()


RENDERERS = (
    Renderer("text", REPORT, "tracelab.render.text.report:render_text", (".txt",)),
    Renderer("json", REPORT, "tracelab.report.schema:Report.to_json", (".json",)),
    Renderer("html", REPORT, "tracelab.render.html.page:render_page", (".html",)),
    Renderer("notebook", REPORT, "tracelab.render.text.report:render_notebook"),
    Renderer("markdown", REPORT, "tracelab.render.markdown:render_markdown", (".md",)),
    Renderer("brief", REPORT, "tracelab.render.brief:render_brief"),
    Renderer("text", WHATIF, "tracelab.render.text.report:render_result", (".txt",)),
    Renderer("notebook", WHATIF, "tracelab.render.text.report:render_notebook"),
    Renderer("text", FINDING, "tracelab.render.text.report:render_result", (".txt",)),
    Renderer("notebook", FINDING, "tracelab.render.text.report:render_notebook"),
    Renderer("text", TABLE, "tracelab.render.text.report:render_result", (".txt",)),
    Renderer("notebook", TABLE, "tracelab.render.text.report:render_table"),
    Renderer("text", DIFF, "tracelab.render.text.report:render_result", (".txt",)),
    Renderer("notebook", DIFF, "tracelab.render.text.report:render_notebook"),
    Renderer("json", DIFF, "tracelab.comparison.diff:Diff.to_json", (".json",)),
    Renderer("markdown", DIFF, "tracelab.render.markdown:render_diff", (".md",)),
    Renderer("text", BUDGETS, "tracelab.render.budgets:render_budgets", (".txt",)),
    Renderer("markdown", BUDGETS, "tracelab.render.budgets:render_markdown", (".md",)),
    Renderer("github", BUDGETS, "tracelab.render.budgets:github_annotations"),
    Renderer("junit", BUDGETS, "tracelab.render.budgets:junit_xml", (".xml",)),
    Renderer("png", PICTURE, "tracelab.render.picture.save:Picture.png", (".png",)),
    Renderer("svg", PICTURE, "tracelab.render.picture.save:Picture.svg", (".svg",)),
    Renderer("pdf", PICTURE, "tracelab.render.picture.save:Picture.pdf", (".pdf",)),
)


def render_as(
    result: Any, form: str, *, renderers: Sequence[Renderer] = RENDERERS, **options: Any
) -> str | bytes:
    """Render a report, a difference, checked budgets or a picture as text or bytes.

    Args:
        result: of `analyze`, `compare`, `check` or `draw`.
        form: a renderer's name or the ending of a file: "text", "json", ".json".
        renderers: ``(*RENDERERS, MINE)`` adds one.
        options: of the renderer: ``width=100, color=False`` of "text".

    Raises:
        UsageError: nothing renders this result in this form.
    """
    item = result[0] if isinstance(result, list | tuple) and result else result
    classes = {f"{base.__module__}:{base.__qualname__}" for base in type(item).__mro__}
    able = [renderer for renderer in renderers if renderer.takes in classes]
    for renderer in able:
        if form == renderer.name or form in renderer.endings:
            named = renderer.function
            function = named if callable(named) else resolve(named)
            rendered: str | bytes = function(result, **options)
            return rendered
    known = ", ".join(renderer.name for renderer in able) or "none"
    raise UsageError(f"{type(item).__name__} has no form {form!r}; there are: {known}")


def resolve(name: str) -> Any:
    """Import MODULE:CLASS, MODULE:FUNCTION or MODULE:CLASS.METHOD."""
    module, _, path = name.partition(":")
    names = path.split(".")
    return reduce(getattr, names, cast("Any", importlib.import_module(module)))
