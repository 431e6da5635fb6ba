"""Families of models: what the config.json of each model_type means.

To add one, write its entry in `llama_like`, `gpt_like`, `experts`, `latent`, `encoders`, `pairs` or `vision`: the keys
that differ, the class defaults, and the facts that no key states (`family.Family` lists them).
"""

from __future__ import annotations

from planner.spec.families import encoders, experts, gpt_like, latent, llama_like, pairs, vision
from planner.spec.families.family import Family

FAMILIES: dict[str, Family] = {
    **llama_like.FAMILIES,
    **gpt_like.FAMILIES,
    **experts.FAMILIES,
    **latent.FAMILIES,
    **encoders.FAMILIES,
    **pairs.FAMILIES,
    **vision.FAMILIES,
}
"""model_type (lower case) -> family."""
