"""The trainer stands on its own, so it deals layers to stages itself: as the estimate does."""

from hypothesis import given
from hypothesis import strategies as some

from planner.emit.stage_layers import stage_sizes
from planner.emit.trainer.pipeline import stage_layers
from planner.emit.trainer.settings import Plan as TrainerPlan
from planner.search.layers import end_layers
from planner.spec.plan import Plan


@given(some.integers(1, 8), some.integers(1, 4), some.integers(0, 40), some.booleans())
def test_the_trainer_deals_layers_as_they_were_estimated(pp, chunks, more, even_ends):
    layers = pp * chunks + more
    first, last = (0, 0) if even_ends else (int(part) for part in end_layers(layers, pp))
    split = {"pp": pp, "virtual_stages": chunks, "first_stage_layers": first, "last_stage_layers": last}
    dealt = stage_layers(layers, TrainerPlan(**split))
    assert [len(each) for each in dealt] == stage_sizes(layers, Plan(**split))
    assert [layer for each in dealt for layer in each] == list(range(layers))
