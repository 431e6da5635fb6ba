import pytest

from planner.errors import FileFormatError
from planner.spec.plan import Offload, Recompute, Schedule, Sharding
from planner.validate.runs import read_runs


def test_a_full_row_becomes_what_it_states_and_assumes_only_the_optimizer(only):
    run = only()
    stated = run.configuration
    assert run.skipped == ""
    assert run.assumed == ("optimizer adamw",)
    assert stated.model.parameters == pytest.approx(8.03e9, rel=2e-3)
    assert stated.cluster.world_size == 16
    assert stated.cluster.node.fabric.node_bandwidth == 8 * 50e9
    assert (stated.plan.tp, stated.plan.pp, stated.plan.dp_shard, stated.plan.dp_replicate) == (2, 2, 4, 1)
    assert (stated.plan.sharding, stated.plan.schedule) == (Sharding.ZERO1, Schedule.ONE_F_ONE_B)
    assert stated.plan.num_microbatches == 16
    assert stated.workload.tokens_per_step == 64 * 8192
    assert (run.measured_step_time, run.measured_memory) == (3.5, 50 * 2**30)


def test_a_configuration_does_not_depend_on_what_was_measured(table):
    measured = {name: "" for name in ("step_time_s", "peak_mem_gib", "oom")}
    other = {"step_time_s": "99", "peak_mem_gib": "1", "oom": "true", "tokens_per_s_per_gpu": "5", "mfu": "0.9"}
    runs = [read_runs(table(cells))[0] for cells in (measured, other)]
    first, second = (run.configuration for run in runs)
    assert first.model is second.model
    assert first.workload == second.workload
    assert first.plan.as_dict() == second.plan.as_dict()
    assert runs[0].assumed == runs[1].assumed


def test_rows_keep_their_order_and_their_number(table):
    runs = read_runs(table({"id": "b"}, {"id": "a", "layers": ""}, {"id": "c"}))
    assert [run.id for run in runs] == ["b", "a", "c"]
    assert [bool(run.skipped) for run in runs] == [False, True, False]


def test_a_step_that_is_not_timed_follows_from_the_throughput(only):
    by_tokens = only(step_time_s="", tokens_per_s_per_gpu="8192")
    by_samples = only(step_time_s="", samples_per_s="16")
    assert by_tokens.measured_step_time == pytest.approx(64 * 8192 / (8192 * 16))
    assert by_samples.measured_step_time == 4.0


def test_memory_in_decimal_gigabytes_and_of_unknown_kind_counts_as_reserved(only):
    run = only(peak_mem_gib="", peak_mem_gb="40", memory_kind="unknown")
    assert (run.measured_memory, run.memory_kind) == (40e9, "reserved")


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"layers": "", "hidden": ""}, "the model's dimensions are not stated (layers, hidden)"),
        ({"dp": "8"}, "dp x tp x pp x cp is 32, but there are 16 GPUs"),
        ({"dp": "", "tp": "3"}, "the stated degrees multiply to 6, which does not divide 16 GPUs"),
        ({"dp": "", "pp": ""}, "parallel degrees are not stated (dp, pp)"),
        ({"micro_batch": "3", "grad_accum": ""}, "global_batch 64 is not a multiple of micro_batch 3 x dp 4"),
        ({"grad_accum": "8"}, "micro_batch 1 x grad_accum 8 x dp 4 is 32, but global_batch is 64"),
        ({"shard_size": "3"}, "shard_size 3 does not divide dp 4"),
        ({"gpus_per_node": "7"}, "16 GPUs do not fill nodes of 7"),
        ({"recompute_mode": "some"}, "recompute_mode 'some' is none of none, selective, full, block"),
        ({"seq_len": ""}, "seq_len is not stated"),
    ],
)
def test_a_row_that_contradicts_itself_is_skipped_with_one_reason(only, cells, reason):
    run = only(**cells)
    assert run.skipped == reason
    assert run.configuration is None


def test_unknown_names_are_skipped_with_the_nearest_known(only):
    assert "did you mean" in only(stack="megatron-cora").skipped
    assert "unknown accelerator" in only(gpu="H100-SXM7").skipped


def test_the_third_of_three_degrees_follows_from_the_others(only):
    run = only(dp="", grad_accum="")
    assert run.configuration.plan.dp == 4
    assert not [word for word in run.assumed if word.startswith(("dp", "grad_accum"))]


def test_an_fsdp_stack_needs_no_degrees(only):
    silent = {name: "" for name in ("dp", "tp", "pp", "sharding", "sequence_parallel", "pp_schedule", "grad_accum")}
    run = only(stack="hf-fsdp", **silent)
    assert run.configuration.plan.dp_shard == 16
    assert run.configuration.plan.sharding == Sharding.ZERO3
    assert "sharding zero3" in run.assumed


def test_gaps_are_filled_with_the_stacks_defaults_and_listed(only):
    silent = {name: "" for name in ("recompute_mode", "flash_attention", "sequence_parallel", "sharding")}
    old, new = only(stack="megatron-lm", mlp="gelu", **silent), only(stack="megatron-bridge", **silent)
    assert (old.configuration.workload.attention, new.configuration.workload.attention) == ("math", "flash")
    assert (old.configuration.plan.sharding, new.configuration.plan.sharding) == (Sharding.NONE, Sharding.ZERO1)
    assert old.configuration.workload.dropout
    assert not new.configuration.workload.dropout
    assert {"flash_attention math", "sharding ddp", "sequence_parallel false", "dropout true"} <= set(old.assumed)


def test_a_missing_micro_batch_is_what_the_stack_takes(only):
    silent = {"micro_batch": "", "grad_accum": ""}
    assert only(**silent).configuration.plan.micro_batch_size == 1
    assert only(stack="torchtitan", **silent).configuration.plan.num_microbatches == 2
    whole = only(stack="hf", dp="16", tp="1", pp="1", **silent)
    assert whole.configuration.plan.micro_batch_size == 4
    assert "micro_batch 4" in whole.assumed


def test_interleaving_embedding_slots_offload_and_recomputation_reach_the_plan(only):
    run = only(layers="30", vpp="2", pp_schedule="interleaved-1f1b", recompute_mode="full", cpu_offload="optimizer")
    plan = run.configuration.plan
    assert (plan.schedule, plan.virtual_stages) == (Schedule.INTERLEAVED, 2)
    assert (plan.first_stage_layers, plan.last_stage_layers) == (15, 15)
    assert (plan.recompute, plan.offload) == (Recompute.FULL, Offload.OPTIMIZER)


def test_words_beside_the_columns_are_understood(only):
    run = only(
        stack="llm-foundry", dp="16", tp="1", pp="1", grad_accum="", sharding="zero2", other="sharding=SHARD_GRAD_OP"
    )
    assert run.configuration.plan.sharding == Sharding.ZERO3_KEEP
    assert only(other="tp-comm-overlap").configuration.plan.async_tp == 1
    lora = only(method="lora", other="LoRA r8 on attention; paged_adamw_8bit").configuration.workload
    assert (lora.lora_rank, lora.optimizer) == (8, "adamw-8bit-paged")


def test_hsdp_shards_within_a_node_and_replicates_across(only):
    plan = only(stack="fsdp2", dp="16", tp="1", pp="1", grad_accum="", sharding="hsdp").configuration.plan
    assert (plan.dp_shard, plan.dp_replicate) == (8, 2)


def test_a_shard_group_may_count_the_ranks_of_context_parallelism(only):
    plan = only(
        stack="torchtitan", dp="4", tp="1", pp="1", cp="4", sharding="zero3", shard_size="16"
    ).configuration.plan
    assert (plan.dp_shard, plan.shard_group) == (4, 16)


def test_an_unknown_network_is_the_standard_nodes_and_said_so(only):
    run = only(fabric="unknown", nic_gbps_per_gpu="")
    assert "network ib-ndr400 x 8 per node" in run.assumed
    assert run.configuration.cluster.node.fabric.kind == "infiniband"


def test_nics_shared_by_two_accelerators_halve_their_bandwidth(only):
    run = only(gpu="A100-SXM4-80GB", intra="nvlink3", fabric="omnipath", nic_gbps_per_gpu="50")
    fabric = run.configuration.cluster.node.fabric
    assert (fabric.kind, fabric.nics_per_node) == ("omnipath", 4)
    assert fabric.node_bandwidth == 8 * 50e9 / 8


def test_a_few_accelerators_of_a_host_are_one_node(only):
    run = only(n_gpus="2", gpus_per_node="8", dp="1", tp="2", pp="1", grad_accum="64", fabric="none")
    assert (run.configuration.cluster.num_nodes, run.configuration.cluster.world_size) == (1, 2)


def test_head_size_is_the_one_that_meets_the_stated_parameters(only):
    dense = {"model": "x", "layers": "28", "hidden": "3000", "heads": "16", "kv_heads": "16", "ffn_hidden": "24576"}
    run = only(**dense, vocab="256000", tied_embeddings="true", mlp="geglu", params_b="8.339")
    assert run.configuration.model.layers[0].attention.head_dim == 256
    assert "head size 256" in run.assumed


def test_a_named_models_hidden_structure_comes_from_the_catalogue(only):
    dims = {"hidden": "7168", "heads": "128", "kv_heads": "128", "ffn_hidden": "18432", "vocab": "129280"}
    experts = {"experts": "256", "experts_topk": "8", "moe_ffn_hidden": "2048"}
    whole = only(layers="61", ep="8", other="MLA attention;", **dims, **experts)
    assert whole.configuration.model.parameters == pytest.approx(671e9, rel=2e-3)
    assert any("latent attention" in word for word in whole.assumed)
    trimmed = only(layers="4", ep="8", other="MLA attention; 1 dense layer", **dims, **experts).configuration.model
    assert [layer.experts is None for layer in trimmed.layers] == [True, False, False, False]


def test_rows_of_one_model_and_machine_share_their_records(table):
    first, second = read_runs(table({"micro_batch": "1"}, {"micro_batch": "2", "grad_accum": "8"}))
    assert first.configuration.model is second.configuration.model
    assert first.configuration.cluster is second.configuration.cluster


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "lacks the columns gpu"),
        ("gpu,n_gpus\nH100,8\n", "lacks the columns layers, hidden, heads, vocab, seq_len"),
        ("gpu,n_gpus,layers,hidden,heads,vocab,seq_len\nh100,8,2\n", "line 2: has 3 cells, but the header 7"),
        ('gpu,n_gpus,layers,hidden,heads,vocab,seq_len\n"h100,8,2,1\n', "is not CSV"),
        ("gpu,gpu,n_gpus,layers,hidden,heads,vocab,seq_len\n", "has the column gpu twice"),
    ],
)
def test_a_file_that_is_no_table_is_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "runs.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FileFormatError) as caught:
        read_runs(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("column", "cell", "reason"),
    [
        ("layers", "many", "layers should be a whole number, zero or more, not 'many'"),
        ("grad_accum", "0.125", "grad_accum should be a whole number, zero or more, not '0.125'"),
        ("hidden", "-2", "hidden should be a whole number, zero or more, not '-2'"),
        ("oom", "perhaps", "oom should be true or false, not 'perhaps'"),
        ("step_time_s", "inf", "step_time_s should be a number, zero or more, not 'inf'"),
    ],
)
def test_a_malformed_cell_spoils_its_own_row_only(table, column, cell, reason):
    spoilt, whole = read_runs(table({column: cell}, {"id": "two"}))
    assert spoilt.skipped == reason
    assert not whole.skipped


def test_binary_and_missing_files_are_refused_in_one_line(tmp_path):
    binary = tmp_path / "weights.csv"
    binary.write_bytes(bytes(range(256)) * 4)
    for path in (binary, tmp_path / "absent.csv", tmp_path):
        with pytest.raises(FileFormatError) as caught:
            read_runs(path)
        assert "\n" not in str(caught.value)


def test_words_change_the_conventions_of_the_stack(only):
    from planner.catalogue.stacks import stack

    fsdp = {"stack": "llm-foundry", "dp": "16", "tp": "1", "pp": "1", "grad_accum": "", "sharding": "zero3"}
    default = only(**fsdp, other="FSDP mixed_precision=DEFAULT").configuration.stack
    pure = only(**fsdp, other="FSDP mixed_precision=PURE").configuration.stack
    assert (default.reduce_bytes, pure.reduce_bytes) == (4.0, 2.0)
    chunked = only(**(fsdp | {"stack": "hf-fsdp"}), other="fused kernels; liger fused loss").configuration.stack
    assert chunked.logit_bytes == 0
    assert only().configuration.stack == stack("megatron-core")


def test_a_pipeline_of_torchtitan_keeps_its_weights_gathered(only):
    plan = only(stack="torchtitan", sharding="zero3").configuration.plan
    assert plan.sharding == Sharding.ZERO3_KEEP
