import pytest

from planner.errors import SpecError
from planner.spec.batch import divisible_batch, read_batch_size, read_tokens, usual_batch_size


@pytest.mark.parametrize(("ranks", "tokens"), [(8, 0.5e6), (64, 0.5e6), (1024, 4e6), (16384, 16e6)])
def test_usual_batch_is_about_half_a_four_or_sixteen_million_tokens(ranks, tokens):
    assert usual_batch_size(4096, ranks) * 4096 == pytest.approx(tokens, rel=0.35)


@pytest.mark.parametrize("ranks", [1, 2, 3, 6, 8, 24, 40, 96, 512, 1000, 3072, 12288])
@pytest.mark.parametrize("seq_len", [512, 4096, 131072])
def test_usual_batch_divides_with_the_cluster_or_the_cluster_with_it(ranks, seq_len):
    batch = usual_batch_size(seq_len, ranks)
    odd = ranks // (ranks & -ranks)
    assert batch >= 1
    assert batch % odd == 0


def test_a_batch_in_tokens_lands_within_five_percent_on_what_plans_divide():
    batch = read_batch_size("4Mtok", seq_len=4096, world_size=24)
    assert batch % 24 == 0
    assert batch * 4096 == pytest.approx(4e6, rel=0.05)
    assert (batch // 24) % 8 == 0


def test_a_batch_in_sequences_is_taken_as_it_is():
    assert read_batch_size("1000", seq_len=4096, world_size=24) == 1000


def test_fewer_tokens_than_ranks_times_sequence_give_a_batch_that_divides_the_ranks():
    assert divisible_batch(3.0, 64, tolerance=0.35) == 4
    assert divisible_batch(0.2, 64, tolerance=0.35) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4Mib", "unknown unit 'Mib'"),
        ("4gbps", "unknown unit 'gbps'"),
        ("4M", "unknown unit 'M'; write sequences"),
        ("many", "cannot read 'many'"),
        ("1.5", "whole number of sequences"),
        ("0", "at least 1"),
        ("0Mtok", "more than no tokens"),
        ("-8", "cannot read '-8'"),
    ],
)
def test_a_batch_that_cannot_be_read_says_what_would_be_right(text, message):
    with pytest.raises(SpecError, match=message) as error:
        read_batch_size(text, seq_len=4096, world_size=8)
    assert str(error.value).startswith("--global-batch-size: ")


@pytest.mark.parametrize(
    ("text", "tokens"), [("1T", 1e12), ("300B", 3e11), ("300Btok", 3e11), ("2e9", 2e9), ("15", 15)]
)
def test_tokens_are_read_with_their_suffix(text, tokens):
    assert read_tokens(text) == tokens


def test_tokens_of_an_unknown_unit_are_refused():
    with pytest.raises(SpecError, match="unknown unit 'X'"):
        read_tokens("3X")
