"""What the letters of the formulas mean, by the module that they stand in: one letter may mean two things in two."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from planner.explain.formula import Formula

SYMBOLS: Mapping[str, str] = {
    "cost.flops": (
        "F operations, m n k sizes of a product, b sequences, s tokens of one, a heads, c keys that a query "
        "sees, d_qk d_v head sizes, w window"
    ),
    "cost.kernels": (
        "t time, P peak rate, e efficiency, u share of it that is left, W memory bandwidth, t0 fixed part, m "
        "n k sizes of a product, g experts, F operations, M bytes moved, N scores, b bytes of an element, T "
        "tokens of a micro-batch, h hidden size, f width of the block, a heads, q kv o widths of queries, "
        "keys and values, output, d head size, k key heads or experts of a token, V vocabulary, i o inputs "
        "and outputs"
    ),
    "cost.overlap": ("T the time that compute does not hide"),
    "cost.collectives": (
        "T time, n ranks of the group, l of them in one link domain, W bytes that one rank sends, h hops of "
        "the tree, B bus bandwidth, t time on the links"
    ),
    "cost.bandwidths": ("B bandwidth, n ranks of the group, l of them in one link domain"),
    "cost.pipeline": (
        "T time, m micro-batches, p stages, v chunks a stage, F B W forward, backward of inputs and of "
        "weights, N micro-batches held at once"
    ),
    "cost.optimizers": (
        "t time, P parameters of a rank, M bytes moved for each, W bandwidth, e its efficiency, n ranks of a "
        "host, b bytes of states, m states, B block, g w bytes of a gradient and a weight, r relative traffic"
    ),
    "cost.states": (
        "M bytes, P parameters, x b bytes of each, n ranks that share, w g r bytes of a weight, a gradient "
        "and a reduced one, u layers or buffers at a time, N parameters of an adapter, r its rank, i o inputs"
        " and outputs, B D blocks"
    ),
    "cost.activations": (
        "M bytes, T tokens of a micro-batch, h hidden size, f width of the block, a heads, s keys, q kv o "
        "widths of queries, keys and values, output, e bytes of an element, c context-parallel ranks, V "
        "vocabulary, b bytes of a logit, n buffers or bytes beside each hidden unit, split ranks that divide the "
        "sequence"
    ),
}
"""Module -> its letters. Longer names speak for themselves."""


def symbols(formulas: Iterable[Formula]) -> list[str]:
    """One line for each module that the formulas come from, in the order of SYMBOLS."""
    used = {formula.name.removeprefix("planner.").rpartition(".")[0] for formula in formulas}
    return [f"{module}: {letters}" for module, letters in SYMBOLS.items() if module in used]
