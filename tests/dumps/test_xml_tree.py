"""XML that wants to do harm is refused in a line; plain XML keeps its lines."""

import time

import pytest

from planner.dumps.xml_tree import MOST_DEPTH, MOST_ELEMENTS, parse_xml
from planner.errors import FileFormatError

LAUGHS = "".join(f'<!ENTITY l{i + 1} "{f"&l{i};" * 10}">' for i in range(9))
BOMB = f'<?xml version="1.0"?>\n<!DOCTYPE s [<!ENTITY l0 "lol">{LAUGHS}]>\n<system>&l9;</system>'
OTHERS_FILE = '<!DOCTYPE s [<!ENTITY x SYSTEM "file:///etc/passwd">]><system>&x;</system>'


@pytest.mark.parametrize("text", [BOMB, OTHERS_FILE, "<!DOCTYPE system><system/>"])
def test_a_document_type_declaration_is_refused_at_once(text):
    start = time.perf_counter()
    with pytest.raises(FileFormatError, match="document type declaration is not read"):
        parse_xml(text)
    assert time.perf_counter() - start < 0.5


def test_an_entity_without_declaration_is_an_error_of_its_line():
    with pytest.raises(FileFormatError, match="line 2: XML that cannot be parsed"):
        parse_xml("<system>\n&x;</system>")


def test_depth_and_number_of_elements_are_bounded():
    deep = "<pci>" * (MOST_DEPTH + 1) + "</pci>" * (MOST_DEPTH + 1)
    wide = "<system>" + "<pci/>" * (MOST_ELEMENTS + 1) + "</system>"
    for text in (deep, wide):
        with pytest.raises(FileFormatError, match="is not read"):
            parse_xml(text)


def test_a_truncated_file_is_said_to_be_incomplete():
    with pytest.raises(FileFormatError, match=r"line 3: .*is the file complete"):
        parse_xml('<system version="1">\n<cpu>\n<pci>')


def test_elements_know_their_lines_and_a_declared_encoding_does_no_harm():
    root = parse_xml('<?xml version="1.0" encoding="UTF-16"?>\n<system>\n  <cpu numaid=" 0 "/>\n</system>')
    assert [(child.name, child.line, child.get("numaid")) for child in root.children] == [("cpu", 3, "0")]
