"""Plans and kinds of clusters that property tests of links draw from; the clusters are a fixture of conftest.py."""

from hypothesis import strategies as st

from planner.spec.plan import ContextKind, Plan, RankOrder

DEGREES = ("tp", "pp", "cp", "dp_shard", "dp_replicate")
KINDS = ("dgx", "thin leaves", "thin rails", "pods", "cube mesh", "racks", "pcie", "host", "sites")


@st.composite
def plans(draw, world):
    left, degrees = world, {}
    for axis in draw(st.permutations(DEGREES))[:-1]:
        degrees[axis] = draw(st.sampled_from([d for d in range(1, left + 1) if left % d == 0]))
        left //= degrees[axis]
    degrees[(set(DEGREES) - degrees.keys()).pop()] = left
    block = degrees["tp"] * degrees["cp"] * degrees["dp_shard"]
    ep = draw(st.sampled_from([d for d in range(1, block + 1) if block % d == 0]))
    order, context = draw(st.sampled_from(list(RankOrder))), draw(st.sampled_from(list(ContextKind)))
    return Plan(**degrees, ep=ep, rank_order=order, context_kind=context)
