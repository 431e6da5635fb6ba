"""Hand-made tables of measured runs for the tests."""

import csv

import pytest

PLAIN = {
    "id": "one",
    "source_id": "by-hand",
    "stack": "megatron-core",
    "model": "llama-like",
    "layers": "32",
    "hidden": "4096",
    "heads": "32",
    "kv_heads": "8",
    "ffn_hidden": "14336",
    "mlp": "swiglu",
    "vocab": "128256",
    "tied_embeddings": "false",
    "seq_len": "8192",
    "gpu": "H100-SXM5-80GB",
    "n_gpus": "16",
    "gpus_per_node": "8",
    "intra": "nvlink4",
    "fabric": "infiniband",
    "nic_gbps_per_gpu": "400",
    "dp": "4",
    "tp": "2",
    "pp": "2",
    "cp": "1",
    "ep": "1",
    "sharding": "zero1",
    "sequence_parallel": "true",
    "micro_batch": "1",
    "global_batch": "64",
    "grad_accum": "16",
    "pp_schedule": "1f1b",
    "precision_compute": "bf16",
    "precision_state": "mixed",
    "method": "full",
    "recompute_mode": "none",
    "flash_attention": "true",
    "step_time_s": "3.5",
    "peak_mem_gib": "50",
    "memory_kind": "allocated",
    "oom": "false",
    "complete": "true",
    "grade": "A",
}
"""A row that leaves nothing open."""


@pytest.fixture
def table(tmp_path):
    """A function that writes a CSV whose rows are PLAIN with some cells changed, and returns its path."""

    def written(*rows):
        path = tmp_path / "runs.csv"
        full = [PLAIN | row for row in rows]
        columns = list(dict.fromkeys(name for row in full for name in row))
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(full)
        return path

    return written


@pytest.fixture
def only(table):
    """A function that reads a single row changed from PLAIN."""
    from planner.validate.runs import read_runs

    return lambda **cells: read_runs(table(cells))[0]
