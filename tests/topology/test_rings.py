import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.topology.rings import ring_bandwidth


def rates(links, members):
    return tuple(tuple(float(links.get((min(i, j), max(i, j)), 0.0)) for j in members) for i in members)


@pytest.fixture(scope="module")
def v100(machines):
    links = machines.dgx1().link_pairs
    return lambda *members: ring_bandwidth(rates(links, members)) / 1e9


def test_rings_of_the_hybrid_cube_mesh_are_those_measured_on_a_dgx1(v100):
    assert v100(0, 1) == pytest.approx(25)
    assert v100(0, 3) == pytest.approx(50)
    assert v100(0, 1, 2, 3) == pytest.approx(100)
    assert v100(4, 5, 6, 7) == pytest.approx(100)
    assert v100(*range(8)) == pytest.approx(150)


def test_a_square_without_diagonals_has_one_ring_each_way(v100):
    assert v100(0, 2, 4, 6) == pytest.approx(50)


def test_gpus_without_a_link_have_no_ring(v100):
    assert v100(0, 5) == 0
    assert v100(0, 1, 7) == 0


@pytest.mark.parametrize(("gpus", "bandwidth"), [(2, 64), (3, 128), (4, 192), (6, 320), (8, 448)])
def test_a_full_mesh_of_equal_links_fills_every_link(gpus, bandwidth):
    links = {(i, j): 64.0 for i in range(gpus) for j in range(i + 1, gpus)}
    assert ring_bandwidth(rates(links, range(gpus))) == pytest.approx(bandwidth)


meshes = st.integers(3, 6).flatmap(
    lambda gpus: st.tuples(st.just(gpus), st.lists(st.integers(0, 3), min_size=gpus**2, max_size=gpus**2))
)


def symmetric(mesh):
    gpus, counts = mesh
    upper = np.triu(np.array(counts, dtype=float).reshape(gpus, gpus), 1)
    return upper + upper.T


@given(meshes)
@settings(max_examples=60)
def test_rings_carry_no_more_than_any_cut_lets_through(mesh):
    links = symmetric(mesh)
    best = ring_bandwidth(tuple(map(tuple, links.tolist())))
    for cut in range(1, 2 ** len(links) - 1):
        inside = np.array([cut >> i & 1 for i in range(len(links))], dtype=bool)
        assert best <= links[inside][:, ~inside].sum() + 1e-6


@given(st.lists(st.integers(1, 50), min_size=6, max_size=6))
@settings(max_examples=40)
def test_four_gpus_get_the_best_of_all_mixtures_of_their_three_undirected_rings(counts):
    """Both directions of a ring are alike, so three rates and six links: the optimum is at a corner of the bounds."""
    (ab, ac, ad, bc, bd, cd) = counts
    limits = [(ab, (0, 1)), (cd, (0, 1)), (ac, (1, 2)), (bd, (1, 2)), (ad, (0, 2)), (bc, (0, 2))]
    tightest = {pair: min(c for c, p in limits if p == pair) for pair in ((0, 1), (1, 2), (0, 2))}
    p, q, r = tightest[0, 1], tightest[1, 2], tightest[0, 2]
    expected = 2 * min((p + q + r) / 2, p + q, q + r, p + r)
    links = np.array([[0, ab, ac, ad], [ab, 0, bc, bd], [ac, bc, 0, cd], [ad, bd, cd, 0]], dtype=float)
    assert ring_bandwidth(tuple(map(tuple, links.tolist()))) == pytest.approx(expected)


@given(meshes, st.integers(0, 35))
@settings(max_examples=40)
def test_a_wider_link_never_narrows_the_rings(mesh, which):
    links = symmetric(mesh)
    wider = links.copy()
    i, j = divmod(which % links.size, len(links))
    wider[i, j] = wider[j, i] = links[i, j] + (i != j)
    before, after = (ring_bandwidth(tuple(map(tuple, matrix.tolist()))) for matrix in (links, wider))
    assert after >= before - 1e-6
