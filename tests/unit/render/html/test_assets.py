"""The page's own styles and scripts: what goes into it is what stands in the repository."""

from pathlib import Path

import pytest

from tracelab.render import html
from tracelab.render.html.assets import asset

FOLDER = Path(html.__file__).parent
NAMES = sorted(path.name for path in FOLDER.iterdir() if path.suffix in {".js", ".css"})


def lines_of_code(text):
    """The lines without indentation, comments of whole lines and empty lines."""
    is_comment = False
    for line in map(str.strip, text.splitlines()):
        begins = not is_comment and line.startswith("/*")
        was_comment, is_comment = is_comment, (is_comment or begins) and not line.endswith("*/")
        if line and not (was_comment or begins or line.startswith("//")):
            yield line


@pytest.mark.parametrize("name", NAMES)
def test_nothing_but_comments_and_indentation_is_left_out(name):
    written = (FOLDER / name).read_text()
    assert asset(name).splitlines() == [*lines_of_code(written)]
    assert len(asset(name)) < len(written)


@pytest.mark.parametrize("name", NAMES)
def test_no_text_goes_over_several_lines(name):
    assert all(line.count("`") % 2 == 0 for line in (FOLDER / name).read_text().splitlines())
