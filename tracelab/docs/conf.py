"""The site of the documents, by Sphinx: ``make docs`` builds it in build/site."""

import sys
from pathlib import Path

DOCS = Path(__file__).parent
ROOT = DOCS.parents[1]
sys.path.insert(0, str(ROOT))

from tests.build import site_pages  # noqa: E402 (found by the line above)
from tracelab import __version__  # noqa: E402

project = "tracelab"
author = "the maintainers of tracelab"
version = release = __version__
extensions = ["myst_parser"]
exclude_patterns = ["**/_*.md"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "tracelab"
html_copy_source = False
html_show_sphinx = False
html_extra_path = [name for name in ("llms.txt", "SKILL.md") if (DOCS / name).exists()]

site_pages.write(DOCS)
