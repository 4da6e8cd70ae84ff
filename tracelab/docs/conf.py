"""The site of the documents, by Sphinx: ``make docs`` builds it in build/site."""

import html
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parents[1]))

from tests.build import site_pages, site_words  # noqa: E402 (found by the line above)
from tracelab import __version__  # noqa: E402

project = "tracelab"
author = "the maintainers of tracelab"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["SKILL.md", "_*.md", "**/_*.md"]
default_role = "literal"
highlight_language = "none"
myst_heading_anchors = 4
myst_enable_extensions = ["attrs_block", "attrs_inline"]
autodoc_preserve_defaults = True
napoleon_attr_annotations = False
napoleon_use_ivar = True
python_maximum_signature_line_length = 80
html_theme = "furo"
html_title = "tracelab"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_extra_path = [name for name in ("llms.txt", "SKILL.md") if (DOCS / name).exists()]

site_pages.write(DOCS)


def describe(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], tree: nodes.document | None
) -> None:
    """Give a page the description that search engines show: its first paragraph."""
    paragraph = next(tree.findall(nodes.paragraph), None) if tree else None
    if paragraph is not None:
        text = html.escape(" ".join(paragraph.astext().split()))
        context["metatags"] += f'<meta name="description" content="{text}">'


PLACES = site_words.places()
RULE = re.compile(r"\b(TL\d{3})\b")


def link_words(app: Sphinx, tree: nodes.document, page: str) -> None:
    """Link the names of rules and remedies in paragraphs to where they are explained."""

    def link(name: str, shown: nodes.Node) -> nodes.Node:
        target, _, heading = PLACES[name].partition("#")
        address = f"{app.builder.get_relative_uri(page, target)}#{nodes.make_id(heading)}"
        return nodes.reference("", "", shown, refuri=address, internal=True)

    for node in [*tree.findall(nodes.Text)]:
        holder = node.parent
        if isinstance(holder, nodes.paragraph):
            parts = [x for x in RULE.split(node) if x]
            texts = [link(x, nodes.Text(x)) if x in PLACES else nodes.Text(x) for x in parts]
            holder.replace(node, texts)
        elif isinstance(holder.parent, nodes.paragraph) and node in PLACES:
            holder.parent.replace(holder, link(node, holder.deepcopy()))


def setup(app: Sphinx) -> None:
    """Listen to the pages that are built."""
    app.connect("html-page-context", describe)
    app.connect("doctree-resolved", link_words)
