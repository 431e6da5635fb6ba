"""What `show`, `ls` and `topo show` print for people: figures with units, nothing of the program's own notation."""

import re

import pytest


def test_conventions_of_a_stack_have_units_and_no_notation_of_python(planner):
    out = planner("show", "deepspeed").stdout
    assert re.search(r"^weight +2 bytes$", out, re.M)
    assert re.search(r"^communication buffers +\d+\.\d GiB$", out, re.M)
    assert re.search(r"^live parameters +1e\+09$", out, re.M)
    assert not re.search(r"[()'_]|True|False", out.partition("shardings")[0])


def test_a_decoder_is_told_from_its_encoder(planner):
    layers = [line for line in planner("show", "t5-large").stdout.splitlines() if line.startswith("24 layers")]
    assert ["attention to the encoder" in line for line in layers] == [False, True]


@pytest.mark.parametrize("kind", ["models", "gpus"])
def test_large_numbers_have_their_thousands_set_apart(planner, kind):
    out = planner("ls", kind).stdout
    names = r"^\S+"
    assert not re.search(r"(?<![\d.,-])\d{4,}(?![-\w])", re.sub(names, "", out, flags=re.M).partition("NVIDIA")[0])


def test_topology_of_mixed_nodes_names_every_pool(planner, tmp_path):
    cluster = tmp_path / "mixed.toml"
    cluster.write_text('[[pools]]\nnodes = 1\nnode = "dgx-h100"\n[[pools]]\nnodes = 1\nnode = "dgx-a100"\n')
    out = planner("topo", "show", cluster).stdout
    assert "1 x dgx-h100: 8 x h100-sxm each" in out
    assert "1 x dgx-a100: 8 x a100-sxm-80gb each" in out


def test_topology_of_a_single_accelerator_has_no_empty_table(planner):
    out = planner("topo", "show", "1xh100-sxm").stdout
    assert "1 x h100-sxm each" in out
    assert "layout" not in out


def test_links_of_experts_are_shown_only_where_there_are_experts(planner):
    assert "expert_shard" not in planner("explain", "llama-3.1-8b", "2xdgx-h100").stdout
    assert "expert_shard" in planner("explain", "mixtral-8x7b", "4xdgx-h100", "--fix", "ep=8,pp=1,tp=1,cp=1").stdout
