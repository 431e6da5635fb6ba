"""Data that stays data: words of a shell, comments, names of jobs, YAML."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

JOB_NAME_LENGTH = 40
"""Schedulers add suffixes to a job's name; DNS labels, which Kubernetes names are, end at 63 characters."""
COMMENT_WIDTH = 118
BLOCK_TEXT = re.compile(r"[\t\n\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]*")
"""What may stand in a YAML block as it is (YAML 1.2, production 1), but for LINE_ENDS."""
NO_PLAIN_KEYS = ("y", "n", "yes", "no", "on", "off", "true", "false", "null")
"""Words that are no texts in YAML 1.1."""
LINE_ENDS = re.compile("[\x85\u2028\u2029]")
"""Characters that end a line in YAML 1.1."""


def shell_word(text: str) -> str:
    r"""A text as one word of bash, whatever is in it; control characters are spelled out, so the word is one line.

    >>> print(shell_word("plain"), shell_word("a b; $(c)"), shell_word("two\nlines"))
    plain 'a b; $(c)' $'two\nlines'
    """
    if text.isprintable():
        return shlex.quote(text)
    escaped = "".join(each if each.isprintable() and each not in "\\'" else _escaped(each) for each in text)
    return f"$'{escaped}'"


def _escaped(character: str) -> str:
    known = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "'": "\\'"}
    errors = "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass"
    return known.get(character) or "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", errors))


def one_line(text: str) -> str:
    r"""A text that cannot leave the line that it stands on.

    >>> one_line("a\n#SBATCH --nodes=9\x1b[2J")
    'a #SBATCH --nodes=9?[2J'
    """
    return "".join(each if each.isprintable() else "?" for each in " ".join(text.split()))


def comment(text: str, *, indent: str = "") -> list[str]:
    """A text as comment lines of a shell script or of YAML, wrapped.

    >>> comment("one two")
    ['# one two']
    """
    lines, width = [""], COMMENT_WIDTH - len(indent)
    for word in one_line(text).split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width - 2:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return [f"{indent}# {line}".rstrip() for line in lines]


def job_name(text: str) -> str:
    """A text as a name that schedulers take: a DNS label of lower-case letters, digits and hyphens.

    >>> job_name("Llama-3.1_8B $(reboot)"), job_name("7b"), job_name("")
    ('llama-3-1-8b-reboot', 'job-7b', 'job')
    """
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:JOB_NAME_LENGTH].strip("-")
    return slug if slug[:1].isalpha() else f"job-{slug}".strip("-")


def yaml_text(data: Mapping[str, Any]) -> str:
    """A mapping of mappings, lists, texts, numbers and booleans as YAML 1.1 and 1.2.

    Texts of several lines become blocks where they can, all others are quoted; nothing is taken for a number or a date.

    >>> print(yaml_text({"a": {"b": ["x: y", 2, True]}}), end="")
    a:
      b:
        - "x: y"
        - 2
        - true
    """
    return "".join(f"{line}\n" for line in _mapping(data, ""))


def _mapping(data: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in data.items():
        yield from _entry(f"{indent}{_key(key)}:", value, indent)


def _entry(head: str, value: Any, indent: str) -> Iterator[str]:
    """A key or dash with its value, on the same line or below."""
    if isinstance(value, Mapping) and value:
        yield head
        yield from _mapping(value, f"{indent}  ")
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        yield head
        yield from _items(value, f"{indent}  ")
    elif isinstance(value, str) and _is_block(value):
        yield f"{head} |"
        yield from (f"{indent}  {line}" if line else "" for line in value[:-1].split("\n"))
    else:
        yield f"{head} {quoted(value) if isinstance(value, str) else json.dumps(value)}"


def _items(values: Sequence[Any], indent: str) -> Iterator[str]:
    for value in values:
        if isinstance(value, Mapping) and value:
            first, *rest = _mapping(value, f"{indent}  ")
            yield f"{indent}- {first.lstrip()}"
            yield from rest
        else:
            yield from _entry(f"{indent}-", value, indent)


def _is_block(text: str) -> bool:
    """Whether a text of lines can stand as it is: it ends with one line end and does not begin with a blank."""
    printable = BLOCK_TEXT.fullmatch(text) and not LINE_ENDS.search(text)
    return bool(printable) and "\n" in text and text[0] not in " \t\n" and text.endswith("\n") and text[-2:] != "\n\n"


def _key(key: str) -> str:
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", key) and key.lower() not in NO_PLAIN_KEYS
    return key if plain else quoted(key)


def quoted(text: str) -> str:
    r"""A text as a double-quoted scalar of YAML: JSON, with what YAML does not print spelled out.

    >>> print(quoted('say "hi"\n'), quoted("\x7f\x85\u2028"))
    "say \"hi\"\n" "\x7f\x85\u2028"
    """
    plain = json.dumps(text, ensure_ascii=False)
    return "".join(each if BLOCK_TEXT.fullmatch(each) and not LINE_ENDS.match(each) else _code(each) for each in plain)


def _code(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
