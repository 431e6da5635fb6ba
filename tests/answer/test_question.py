import shlex
from dataclasses import replace

import pytest

from planner.answer.choices import Choices
from planner.answer.question import ask
from planner.answer.recommend import recommend
from planner.errors import FileFormatError, SpecError
from planner.spec.profile_file import write_profile


def test_everything_that_was_not_given_is_named():
    asked = ask("llama-3.1-8b", "2xdgx-h100")
    assert asked.assumed == (
        "sequence length 4,096",
        "global batch 128 sequences = 524,288 tokens",
        "precision bf16",
        "state mixed",
        "optimizer adamw",
        "method full",
        "attention flash",
        "no offload",
        "stack generic",
    )


def test_nothing_is_assumed_when_everything_is_given():
    chosen = Choices(
        seq_len=2048, global_batch_size=64, precision="fp8", state="mixed", optimizer="sgd", method="lora", lora_rank=8,
        attention="sdpa", offload="none", stack="megatron-bridge",
    )  # fmt: skip
    assert ask("llama-3.1-8b", "2xdgx-h100", chosen).assumed == ()


def test_a_batch_in_tokens_is_echoed_in_sequences():
    asked = ask("llama-3.1-8b", "2xdgx-h100", Choices(global_batch_size="1Mtok"))
    assert asked.workload.global_batch_size == 256
    assert "global batch 256 sequences = 1,048,576 tokens" in asked.assumed


def test_sequence_is_the_models_maximum_where_that_is_shorter():
    assert ask("gpt2", "1xrtx-4090").workload.seq_len == 1024


def test_longer_sequences_than_the_model_has_positions_are_noted():
    notes = ask("gpt2", "1xrtx-4090", Choices(seq_len=2048)).notes
    assert any("longer than the 1,024 positions" in note for note in notes)


def test_precision_falls_back_where_there_is_no_bf16():
    assert ask("gpt2", "8xv100-sxm2-32gb").workload.precision == "fp16"


def test_a_precision_without_matrix_units_is_refused():
    with pytest.raises(SpecError, match="has no fp8 matrix peak; it has: bf16"):
        ask("llama-3.1-8b", "1xdgx-a100", Choices(precision="fp8"))


def test_clusters_spelled_by_accelerator_say_what_they_became():
    asked = ask("llama-3.1-8b", "64xh100-sxm")
    assert asked.cluster.name == "8xhgx-h100"
    assert any("64xh100-sxm is taken as 8xhgx-h100" in note for note in asked.notes)


def test_another_network_replaces_the_nodes_own():
    asked = ask("llama-3.1-8b", "2xdgx-h100", Choices(network="roce-100x4"))
    assert (asked.cluster.node.fabric.name, asked.cluster.node.fabric.nics_per_node) == ("roce-100", 4)
    assert "--network roce-100x4" in asked.command()


def test_target_implies_its_stack_and_stack_overrides():
    assert ask("llama-3.1-8b", "2xdgx-h100", Choices(target="megatron")).stack.name == "megatron-core"
    assert ask("llama-3.1-8b", "2xdgx-h100", Choices(target="megatron", stack="nemo")).stack.name == "nemo"


def test_offload_is_part_of_what_is_fixed_and_fix_overrides_it():
    offload = Choices(offload="optimizer")
    assert ask("llama-3.1-8b", "2xdgx-h100", offload).fix == {"offload": (1,)}
    assert ask("llama-3.1-8b", "2xdgx-h100", Choices(fix="tp=2")).fix == {"tp": (2,)}


def test_price_is_the_users_own_or_the_catalogues_with_its_date():
    own = ask("llama-3.1-8b", "2xdgx-h100", Choices(usd_per_gpu_hour=2.5)).price
    assert (own.low, own.high, own.date) == (2.5, 2.5, "")
    known = ask("llama-3.1-8b", "2xdgx-h100").price
    assert 0 < known.low < known.high
    assert known.date
    assert known.source


def test_the_command_repeats_the_question():
    asked = ask("llama-3.1-8b", "2xdgx-h100", Choices(fix="tp=1..2,schedule=none|1f1b", tokens="1T"))
    words = shlex.split(asked.command())
    assert words[:4] == ["planner", "recommend", "llama-3.1-8b", "2xdgx-h100"]
    given = dict(zip(words[4::2], words[5::2], strict=True))
    assert given["--fix"] == "tp=1..2,schedule=none|1f1b"
    chosen = Choices(
        **{name.removeprefix("--").replace("-", "_"): value for name, value in given.items()} | {"seq_len": 4096}
    )
    again = ask("llama-3.1-8b", "2xdgx-h100", chosen)
    assert again.workload == asked.workload
    assert again.fix == asked.fix | {"offload": (0,)}


def test_an_unreadable_model_is_a_file_error(tmp_path):
    with pytest.raises(FileFormatError):
        ask(str(tmp_path / "config.json"), "2xdgx-h100")


def test_unknown_objective_is_refused():
    with pytest.raises(SpecError, match="--objective: unknown objective 'speed'; known: throughput, usd, memory"):
        ask("llama-3.1-8b", "2xdgx-h100", Choices(objective="speed"))


def test_a_stack_that_cannot_train_in_that_way_is_refused():
    with pytest.raises(SpecError, match="torchtitan has no qlora; it has: full"):
        ask("llama-3.1-8b", "1xdgx-h100", Choices(target="torchtitan", method="qlora"))


def test_trainers_that_can_run_the_best_plan_are_named():
    found = recommend("llama-3.1-8b", "1xdgx-h100", Choices(fix="sharding=zero2"))
    assert "deepspeed" in found.targets
    assert "pytorch" not in found.targets


def test_a_profile_of_ones_own_may_leave_the_collectives_to_the_catalogue(tmp_path):
    path = tmp_path / "own.json"
    write_profile(replace(ask("llama-3.1-8b", "2xdgx-h100").profile, collectives={}), path)
    found = recommend("llama-3.1-8b", "2xdgx-h100", Choices(profile=str(path)), top=1)
    assert found.question.profile.collectives["infiniband", "all_gather"].efficiency > 0


def test_money_without_a_price_is_noted():
    for chosen in (Choices(tokens="1T"), Choices(objective="usd")):
        assert any("no price of a40 is known" in note for note in ask("gpt2", "8xa40", chosen).notes)
    assert not any("no price" in note for note in ask("gpt2", "8xa40").notes)
    assert not any("no price" in note for note in ask("gpt2", "8xa40", Choices(tokens="1T", usd_per_gpu_hour=1)).notes)
