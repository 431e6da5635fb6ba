"""Words of shell scripts and command lines, variables filled in as far as the text itself tells them."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
VARIABLE = re.compile(r"\$\{(\w+)(?::?-([^${}]*))?\}|\$(\w+)")
ARITHMETIC = re.compile(r"\$\(\(([^$()]*)\)\)")
SUBSTITUTION = re.compile(r"\$\(\([^()]*\)\)|\$\([^()]*\)|`[^`]*`")
PIECE = re.compile(
    r"(?P<blank>[ \t\r\n]+)|(?P<comment>(?<![^ \t\r\n])#.*)|(?P<plain>[^ \t\r\n'\"\\]+)"
    r"|'(?P<single>[^']*+)'|\"(?P<double>[^\"\\]*+(?:\\.[^\"\\]*+)*+)\"|\\(?P<escaped>.)|(?P<open>.)",
    re.DOTALL,
)
"""What a line consists of: a word is what stands between blanks, quoted or not."""
DEPTH = 8
"""How often variables are filled into the values of variables."""
LONGEST = 100_000
"""Characters that variables may add to a word; longer ones stay as they are."""
MOST_FILLED = 5_000_000
"""Characters that variables may add to all words together; the words from there on stay as they are."""
OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}


def shell_words(text: str) -> list[str]:
    r"""The words of a script in order, without assignments and comments.

    What stands in branches counts as if each were taken. What a variable holds is filled in where the script says it,
    its default where that is all it says (`${TP:-8}`); other variables stay as they are.

    >>> shell_words("TP=8  # ranks\ntorchrun train.py \\\n  --tp $TP --pp ${PP:-2} --nodes $((TP / 2))")
    ['torchrun', 'train.py', '--tp', '8', '--pp', '2', '--nodes', '4']
    """
    variables: dict[str, str] = {}
    words: list[str] = []
    added = 0
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        for word in _split(line):
            found = ASSIGNMENT.fullmatch(word)
            value = found[2] if found else word
            filled = _filled(value, variables) if added < MOST_FILLED else value
            added += max(len(filled) - len(value), 0)
            if found is None:
                words += _parts(filled)
            elif value.startswith("("):  # an array, which is no value: its words follow as any others
                words += _parts(filled[1:].rstrip(")"))
            else:
                variables[found[1]] = filled
    return words


def flags(words: Iterable[str]) -> dict[str, list[str]]:
    """Option -> the words behind it up to the next one; of options given twice the last. Underscores count as hyphens.

    >>> flags(["run.py", "--tp_size", "8", "--bf16", "--lr=1e-4"])
    {'--tp-size': ['8'], '--bf16': [], '--lr': ['1e-4']}
    """
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, equals, value = word.partition("=")
            current = found[name.replace("_", "-")] = [value] if equals else []
        else:
            current.append(word)
    return found


def _split(line: str) -> list[str]:
    """The words of a line, without quotes and comments; of a quoted text that ends on another line what blanks part.

    >>> _split("run 'a b'c '' x#1  # two words")
    ['run', 'a bc', '', 'x#1']
    """
    words: list[str] = []
    pieces: list[str] | None = None
    for piece in PIECE.finditer(_joined(line)):
        kind = piece.lastgroup
        if kind == "open":
            return line.split()
        if kind not in ("blank", "comment"):
            pieces = [] if pieces is None else pieces
            pieces.append(re.sub(r'\\(["\\])', r"\1", piece["double"]) if kind == "double" else piece[kind or 0])
        elif pieces is not None:
            words.append("".join(pieces))
            pieces = None
    return words if pieces is None else [*words, "".join(pieces)]


def _joined(line: str) -> str:
    """Arithmetic and the commands whose output is a word as one word each, whatever blanks are in them."""
    return SUBSTITUTION.sub(lambda found: re.sub(r"\s+", "", found[0]), line)


def _parts(word: str) -> list[str]:
    """A word, or the several that an option with its values makes where both were quoted together."""
    word = word.rstrip(")") if word.startswith("--") else "" if word == ")" else word
    return word.split() if word.startswith("--") else [word] if word else []


def _filled(text: str, variables: Mapping[str, str]) -> str:
    for _ in range(DEPTH):
        before = text
        if sum(len(_value(found, variables)) for found in VARIABLE.finditer(text)) > LONGEST:
            break
        text = VARIABLE.sub(lambda found: _value(found, variables), text)
        text = ARITHMETIC.sub(lambda found: _sum(found[1], variables) or found[0], text)
        if text == before:
            break
    return text


def _value(found: re.Match[str], variables: Mapping[str, str]) -> str:
    name = found[1] or found[3]
    return variables.get(name, found[0] if found[2] is None else found[2].strip("'\""))


def _sum(text: str, variables: Mapping[str, str]) -> str:
    """Whole numbers and variables added, subtracted, multiplied and divided; empty where it is anything else."""
    try:
        return str(_number(ast.parse(text.strip(), mode="eval").body, variables))
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError, MemoryError):
        return ""


def _number(node: ast.expr, variables: Mapping[str, str]) -> int:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name):
            return int(variables.get(name, ""))
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in OPERATORS:
            return OPERATORS[type(sign)](_number(left, variables), _number(right, variables))
    raise ValueError("no sum")


def processes(found: Mapping[str, list[str]]) -> int:
    """Processes that torchrun, accelerate or deepspeed would start; 0 where the words do not tell."""
    total = _whole(found.get("--num-processes"))
    nodes = _whole(found.get("--nnodes")) or _whole(found.get("--num-nodes"))
    each = _whole(found.get("--nproc-per-node")) or _whole(found.get("--num-gpus"))
    if "--standalone" in found or ("--nproc-per-node" in found and "--nnodes" not in found):
        nodes = 1  # torchrun's default
    return total or nodes * each


def _whole(values: list[str] | None) -> int:
    return int(values[0]) if values and re.fullmatch(r"[1-9]\d{0,8}", values[0]) else 0
