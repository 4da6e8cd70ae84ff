"""The pages of the site that its build makes; ``tracelab/docs/conf.py`` writes them."""

from __future__ import annotations

from pathlib import Path

from tests.build import site_gallery, site_json, site_python, site_words


def write(docs: Path) -> None:
    """Write each page that is not there yet as it is today, and remove those of yesterday."""
    sources = (site_words, site_json, site_python, site_gallery)
    made = {docs / f"{name}.md": text for x in sources for name, text in x.pages().items()}
    for path, text in made.items():
        path.parent.mkdir(exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for folder in {path.parent for path in made if path.name[0] != "_"}:
        for old in {*folder.glob("*.md")}.difference(made):
            old.unlink()
