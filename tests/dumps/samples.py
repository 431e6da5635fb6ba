"""Real excerpts (tests/data/dumps) and matrices made by hand."""

from pathlib import Path

from planner.dumps.text import read_text

DATA = Path(__file__).parents[1] / "data" / "dumps"
EXCERPTS = sorted(path for path in DATA.iterdir() if path.name != "SOURCES.md")
PUBLIC = Path(__file__).parents[3] / "shared"
"""A larger collection of public files and measured points, which is not part of the repository."""


def real(name):
    """The text of an excerpt."""
    return read_text(DATA / name)


def matrix(rows, *, nics=0, tails=None, head="CPU Affinity\tNUMA Affinity"):
    """`nvidia-smi topo -m` with a row of words for each GPU, its NICs last; `tails` are the affinities."""
    columns = [f"GPU{i}" for i in range(len(rows))] + [f"NIC{i}" for i in range(nics)]
    tails = tails or ["0-47\t0"] * len(rows)
    lines = ["\t" + "\t".join([*columns, head])]
    lines += [f"GPU{i}\t" + "\t".join([*row, tail]) for i, (row, tail) in enumerate(zip(rows, tails, strict=True))]
    return "\n".join(lines) + "\n"


def all_linked(gpus, word="NV18", *, broken=()):
    """Rows of a matrix in which every pair is linked but the `broken` ones, which go across sockets."""
    odd = {frozenset(pair) for pair in broken}
    return [["X" if i == j else "SYS" if frozenset((i, j)) in odd else word for j in range(gpus)] for i in range(gpus)]


CUBE_MESH = (
    "X NV1 NV1 NV2 NV2 SYS SYS SYS",
    "NV1 X NV2 NV1 SYS NV2 SYS SYS",
    "NV1 NV2 X NV2 SYS SYS NV1 SYS",
    "NV2 NV1 NV2 X SYS SYS SYS NV1",
    "NV2 SYS SYS SYS X NV1 NV1 NV2",
    "SYS NV2 SYS SYS NV1 X NV2 NV1",
    "SYS SYS NV1 SYS NV1 NV2 X NV2",
    "SYS SYS SYS NV1 NV2 NV1 NV2 X",
)
"""A DGX-1 with V100: the links that the catalogue's dgx-1-v100 has."""


def cube_mesh():
    """Rows of a DGX-1's matrix."""
    return [row.split() for row in CUBE_MESH]
