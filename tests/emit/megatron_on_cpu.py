"""Reads arguments as Megatron-LM does, checks them, makes its record of the transformer, and counts the parameters of
the model (of one rank that holds all of it, without memory). `MEGATRON=... python megatron_on_cpu.py ARGUMENTS`.

Megatron asks for GPUs and for Transformer Engine at some places; what stands in for them is at the top.
"""

import os
import sys
import typing
import warnings

import torch

warnings.simplefilter("ignore")
typing.override = getattr(typing, "override", lambda function: function)  # Python 3.11
torch.cuda.get_device_capability = lambda *_: (9, 0)
torch.cuda.current_device = lambda: "meta"
torch.cuda.Stream = type("Stream", (), {"__init__": lambda self, *_, **__: None})
sys.path.insert(0, os.environ["MEGATRON"])

from megatron.core import parallel_state  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import (  # noqa: E402
    get_gpt_decoder_block_spec,
    get_gpt_layer_local_spec,
)
from megatron.core.tokenizers.utils.build_tokenizer import vocab_size_with_padding  # noqa: E402
from megatron.core.transformer.dot_product_attention import DotProductAttention  # noqa: E402
from megatron.training import arguments  # noqa: E402
from megatron.training.argument_utils import core_transformer_config_from_args  # noqa: E402

arguments.get_device_arch_version = lambda: 9


def checked(words):
    """The arguments, checked with the degrees that they state."""
    sys.argv = ["pretrain_gpt.py", *words, "--no-rope-fusion"]
    stated = arguments.parse_args()
    arguments.validate_args(stated)
    core_transformer_config_from_args(stated)
    return stated


def parameters(words):
    """Parameters of the whole model, with the padding of its vocabulary."""
    os.environ["WORLD_SIZE"] = "1"
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    plain = DotProductAttention.__init__
    DotProductAttention.__init__ = lambda self, *args, k_channels=0, v_channels=0, **more: plain(self, *args, **more)
    whole = {"--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--expert-tensor-parallel-size"}
    whole |= {"--context-parallel-size", "--cp-comm-type", "--expert-model-parallel-size"}
    whole |= {"--pipeline-model-parallel-layout", "--num-virtual-stages-per-pipeline-rank"}
    alone = {"--sequence-parallel", "--moe-grouped-gemm", "--apply-layernorm-1p", "--use-tp-pp-dp-mapping"}
    kept, values = [], iter(words)
    for word in values:
        if word in whole:
            next(values)
        elif word not in alone:
            kept.append(word)
    stated = checked([*kept, "--transformer-impl", "local", "--no-gradient-accumulation-fusion"])
    config = core_transformer_config_from_args(stated)
    config.perform_initialization = False
    config.persist_layer_norm = False
    spec = (
        get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization=stated.normalization)
        if stated.num_experts
        else get_gpt_layer_local_spec(
            None, False, stated.qk_layernorm, stated.multi_latent_attention, normalization=stated.normalization
        )
    )
    with torch.device("meta"):
        model = GPTModel(
            config=config,
            transformer_layer_spec=spec,
            vocab_size=vocab_size_with_padding(stated.vocab_size, stated),
            max_sequence_length=stated.max_position_embeddings,
            share_embeddings_and_output_weights=not stated.untie_embeddings_and_output_weights,
            position_embedding_type=stated.position_embedding_type,
            rotary_percent=stated.rotary_percent,
        )
    return sum(each.numel() for each in model.parameters())


mode, *given = sys.argv[1:]
print("parameters", parameters(given)) if mode == "parameters" else print("checked", checked(given).data_parallel_size)
