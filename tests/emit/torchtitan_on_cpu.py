"""Runs torchtitan's trainer on CPUs, which it does not by itself: its device functions, FlexAttention's backward and
FSDP's scaled reduction have no CPU form. `torchrun ... torchtitan_on_cpu.py --module M --config F`."""

from types import SimpleNamespace

import torch
import torch.nn.attention.flex_attention as flex
import torchtitan.tools.utils as utils
from torch.distributed.fsdp import FSDPModule

utils.device_type = "cpu"
utils.device_module = SimpleNamespace(
    set_device=lambda _device: None,
    current_device=lambda: 0,
    get_device_name=lambda *_: "cpu",
    get_device_properties=lambda *_: SimpleNamespace(total_memory=2**34, name="cpu"),
    empty_cache=lambda: None,
    reset_peak_memory_stats=lambda *_: None,
    memory_stats=lambda *_: {},
    synchronize=lambda *_: None,
)
utils.get_local_device = lambda: torch.device("cpu")
flex._validate_device = lambda *_: None
scaled = FSDPModule.set_gradient_divide_factor


def summed(module, factor):
    scaled(module, factor)
    module.set_force_sum_reduction_for_comms(True)


FSDPModule.set_gradient_divide_factor = summed

from torchtitan.models.common.attention import FlexAttention  # noqa: E402
from torchtitan.train import main  # noqa: E402

FlexAttention._compiled_flex_attn = staticmethod(flex.flex_attention)
main()
