from planner.economics.feeding import loader_workers, read_rate, staged_bytes


def test_a_million_tokens_a_second_are_four_megabytes_and_four_times_that_where_four_ranks_read_each():
    sequences = 1e6 / 4096
    assert read_rate(sequences, 4096 * 4.0) == 4e6
    assert read_rate(sequences, 4096 * 4.0, copies=4) == 16e6


def test_workers_are_rounded_up_to_whole_ones():
    assert loader_workers(1000.0, 150.0) == 7
    assert loader_workers(900.0, 150.0) == 6


def test_a_token_of_two_bytes_moves_68_through_host_memory():
    assert staged_bytes(2.0, 16.0) == 2 * 2 + 4 * 16
