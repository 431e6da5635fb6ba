"""`nvidia-smi nvlink -s`."""

import pytest

from planner.dumps.nvlink_status import read_nvlink_status
from planner.errors import FileFormatError
from tests.dumps.samples import real


def test_every_link_of_every_gpu_is_read():
    statuses = read_nvlink_status(real("smi_nvlink_status_a100.txt"))
    assert [(status.index, status.name, status.active) for status in statuses] == [
        (0, "NVIDIA A100-SXM4-80GB", 12),
        (1, "NVIDIA A100-SXM4-80GB", 12),
    ]
    assert set(statuses[0].rates) == {25e9}


def test_inactive_links_have_no_rate():
    text = "GPU 3: Tesla V100-SXM2-32GB (UUID: GPU-1)\n\t Link 0: 25.781 GB/s\n\t Link 1: <inactive>\n"
    (status,) = read_nvlink_status(text)
    assert status.rates == (25.781e9, None)
    assert status.active == 1


def test_a_gpu_whose_links_are_all_down_is_one_without_links():
    text = (
        "GPU 0: NVIDIA B200 (UUID: GPU-0)\n Link 0: 53.125 GB/s\nGPU 2: NVIDIA B200 (UUID: GPU-2)\n"
        "NVML: Unable to retrieve NVLink information as all links are inActive\n"
    )
    assert [(status.index, status.active) for status in read_nvlink_status(text)] == [(0, 1), (2, 0)]


def test_a_list_of_gpus_without_links_is_refused():
    with pytest.raises(FileFormatError, match="no accelerators with links"):
        read_nvlink_status("GPU 0: NVIDIA L40S (UUID: GPU-0)\n")
