"""What machines print is read as the command line reads it; what cannot be read is one sentence."""

from pathlib import Path

import pytest

pytest.importorskip("streamlit")

from tests.app.running import commands, opened

DUMPS = Path(__file__).parents[1] / "data" / "dumps"


def uploaded(*files):
    app = opened("network", model="gpt2", hardware="dgx-a100", count=2)
    uploader = app.file_uploader(key="dumps")
    uploader.set_value([(name, content, "text/plain") for name, content in files])
    return app.run()


def of(name):
    return name, (DUMPS / name).read_bytes()


def test_a_topology_is_checked_and_turned_into_a_cluster_file():
    app = uploaded(of("smi_topo_8xb200_8nic.txt"), of("xml_aws_p4de-24xl.xml"))
    assert [each.value for each in (*app.exception, *app.error)] == []
    assert [each for each in commands(app) if each.startswith("planner topo check")] == [
        "planner topo check smi_topo_8xb200_8nic.txt",
        "planner topo check xml_aws_p4de-24xl.xml",
    ]
    assert any(each.key.startswith("toml_") for each in app.get("download_button"))


def test_a_log_of_nccl_tests_is_compared_with_what_was_to_be_expected():
    app = uploaded(of("p4de_a100_2n_efa_rankprefix.txt"))
    assert [each.value for each in (*app.exception, *app.error)] == []
    expected = app.dataframe[-1].value
    assert {"measured", "expected", "80 % from", "80 % to"} <= set(expected.columns)
    assert (expected["measured"] > 0).all()
    assert any(each.startswith("planner diagnose p4de_a100_2n_efa_rankprefix.txt") for each in commands(app))


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02", b"<?xml version='1.0'?><system>", b"hello " * 1000])
def test_what_is_no_dump_is_one_sentence(content):
    app = uploaded(("odd.txt", content))
    assert not app.exception
    assert len(app.error) == 1
    assert "planner-app-" not in app.error[0].value
