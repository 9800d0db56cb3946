"""Reads HTML strictly: what a page is made of, and whether its tags are well nested."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

_VOID = frozenset({"br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"})


@dataclass
class Element:
    """An element; `text` is what stands directly within it."""

    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Page:
    """What was read."""

    elements: list[Element] = field(default_factory=list[Element])

    def all(self, tag: str, **attributes: str) -> list[Element]:
        """The elements with this tag, and among their classes, if it is given, this one (``class_``)."""
        wanted = attributes.get("class_", "")
        return [
            e
            for e in self.elements
            if e.tag == tag and (not wanted or wanted in e.attributes.get("class", "").split())
        ]

    def values(self, attribute: str) -> list[str]:
        return [e.attributes[attribute] for e in self.elements if attribute in e.attributes]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self.open: list[Element] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        element = Element(tag, {name: value or "" for name, value in attrs})
        self.page.elements.append(element)
        if tag not in _VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert any(e.tag == "svg" for e in self.open), f"<{tag}/> is no HTML outside of SVG"
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1].tag == tag, f"</{tag}> closes {[e.tag for e in self.open][-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open:
            self.open[-1].text += data


def read_html(text: str) -> Page:
    """The elements of a page, which must be well nested."""
    assert text.startswith("<!doctype html>\n")
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert [e.tag for e in reader.open] == []
    return reader.page
