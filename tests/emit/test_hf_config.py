from dataclasses import replace

import pytest

from planner.catalogue.models import model, model_names
from planner.emit.hf_config import FAMILIES, block_class, hf_config
from planner.emit.shapes import Unlike
from planner.spec.model import Mlp

KNOWN = [name for name in model_names() if model(name).model_type in FAMILIES and name != "opt-350m"]


@pytest.mark.parametrize("name", KNOWN)
def test_the_model_is_read_back_from_its_config(name):
    from planner.spec.read_model import model_from_config

    again = model_from_config(hf_config(model(name)), name=name, where=name)
    assert again.parameters == model(name).parameters
    assert again.layers == model(name).layers


def test_a_model_that_its_family_does_not_build_is_refused():
    llama = model("llama-3.2-1b")
    with pytest.raises(Unlike, match="builds llama models otherwise"):
        hf_config(replace(llama, other_parameters=llama.other_parameters + 1))
    with pytest.raises(Unlike, match="different dense blocks"):
        hf_config(replace(llama, layers=(replace(llama.layers[0], mlp=Mlp(64)), *llama.layers[1:])))
    with pytest.raises(Unlike, match="no t5 model"):
        hf_config(model("t5-base"))
    with pytest.raises(Unlike, match="embedding is not as wide"):
        hf_config(model("opt-350m"))


@pytest.mark.parametrize("name", KNOWN)
def test_transformers_builds_a_model_of_as_many_parameters(name):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(**hf_config(model(name)))
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(config)
    assert sum(each.numel() for each in built.parameters()) == model(name).parameters
    assert block_class(model(name)) in {type(each).__name__ for each in built.modules()}
