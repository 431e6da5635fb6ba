"""A small XML tree, parsed so that a hostile file can do no harm.

The standard library's expat is used directly and every document type declaration is refused: entities, which bombs and
references to other files are made of, can only be declared there. Depth and number of elements are bounded. A package
for this (defusedxml) would add a dependency for what are four lines here, since NCCL writes no declaration at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn
from xml.parsers import expat

from planner.errors import FileFormatError

MOST_DEPTH = 64
MOST_ELEMENTS = 200_000


@dataclass
class Element:
    """An element with its attributes, the line where it begins, and its children."""

    name: str
    attributes: Mapping[str, str]
    line: int
    children: list[Element] = field(default_factory=list)

    def get(self, name: str) -> str:
        """An attribute, or nothing."""
        return self.attributes.get(name, "").strip()

    def all(self, *names: str) -> Iterator[Element]:
        """Children of these names."""
        return (child for child in self.children if child.name in names)


def parse_xml(text: str, *, first_line: int = 1) -> Element:
    """The root element of a text. Raises FileFormatError, with the line, for what is no plain XML."""
    builder = _Builder(first_line)
    try:
        builder.parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        line, reason = error.lineno + first_line - 1, expat.ErrorString(error.code)
        raise FileFormatError(f"line {line}: XML that cannot be parsed ({reason}); is the file complete?") from error
    return builder.root


class _Builder:
    """Builds the tree from the parser's events."""

    def __init__(self, first_line: int) -> None:
        self.root = Element("", {}, first_line)
        self._open: list[Element] = []
        self._first_line, self._count = first_line, 0
        self.parser = expat.ParserCreate("utf-8")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._refuse

    def _line(self) -> int:
        return self.parser.CurrentLineNumber + self._first_line - 1

    def _refuse(self, *_: object) -> NoReturn:
        raise FileFormatError(
            f"line {self._line()}: XML with a document type declaration is not read; a topology of NCCL has none"
        )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if self._count > MOST_ELEMENTS or len(self._open) >= MOST_DEPTH:
            raise FileFormatError(
                f"line {self._line()}: XML of more than {MOST_ELEMENTS:,} elements or {MOST_DEPTH} levels is not read"
            )
        element = Element(name, attributes, self._line())
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def _end(self, _name: str) -> None:
        self._open.pop()
