"""For tests of the page: what a browser would make of it, as far as a parser can tell."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset(("meta", "input", "br"))
RAW = frozenset(("script", "style"))


@dataclass(frozen=True)
class Element:
    """An element, with all text inside of it."""

    tag: str
    attributes: dict[str, str | None]
    path: tuple[str, ...]
    texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def get(self, name: str) -> str:
        return self.attributes.get(name) or ""


class ReadPage(HTMLParser):
    """A page's elements in order, what is open where it is closed held against each other."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self._open: list[Element] = []
        self.feed(page)
        self.close()
        assert not self._open, self._open[-1]

    def handle_starttag(self, tag, attrs):
        path = tuple(element.tag for element in self._open)
        assert len(attrs) == len(dict(attrs)), f"an attribute twice: {attrs}"
        element = Element(tag, dict(attrs), path)
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag, attrs):
        path = tuple(element.tag for element in self._open)
        assert "svg" in path, f"<{tag}/> closes nothing outside of SVG"
        self.elements.append(Element(tag, dict(attrs), path))

    def handle_endtag(self, tag):
        assert self._open[-1].tag == tag, (tag, self._open[-1])
        self._open.pop()

    def handle_data(self, data):
        for element in self._open:
            element.texts.append(data)

    def all(self, tag: str) -> list[Element]:
        return [element for element in self.elements if element.tag == tag]

    def of_class(self, name: str) -> list[Element]:
        return [element for element in self.elements if name in element.get("class").split()]

    def one(self, id_: str) -> Element:
        [element] = [element for element in self.elements if element.get("id") == id_]
        return element

    @property
    def text(self) -> str:
        """All that can be read."""
        return " ".join(
            element.text
            for element in self.elements
            if element.tag in ("header", "main", "section")
        )
