import shlex
from dataclasses import replace

import pytest

from planner.answer.budget import budget
from planner.answer.budget_assumptions import BudgetChoices, assumptions
from planner.answer.budget_checkpoints import checkpoint_size
from planner.answer.choices import Choices
from planner.answer.question import ask
from planner.answer.recommend import answer
from planner.economics.checkpoints import daly_interval
from planner.errors import SpecError

HOUR, DAY = 3600.0, 86400.0


def asked(model="llama-3.1-8b", cluster="2xdgx-h100", **choices):
    return ask(model, cluster, Choices(**{"tokens": "1T", "usd_per_gpu_hour": 2.0} | choices))


@pytest.fixture(scope="module")
def found():
    return budget(asked(), BudgetChoices(preemptions_per_day=6, spot_discount=0.5, against="roce-100x8"))


def test_days_gpu_hours_and_money_agree_with_recommend(found):
    run, best = found.without_failures, answer(asked(), top=1).best
    assert run.days == pytest.approx(1e12 / best.speed.tokens_per_s / DAY)
    assert run.gpu_hours == pytest.approx(run.days * 24 * 16)
    assert run.usd_low == run.usd_high == pytest.approx(2.0 * run.gpu_hours)
    assert best.run.days == run.days


def test_failures_stretch_the_run_by_the_goodput(found):
    left = found.checkpoints.goodput
    assert found.with_failures.days == pytest.approx(found.without_failures.days / left)
    assert found.with_failures.usd_low == pytest.approx(found.without_failures.usd_low / left)
    low, high = found.days
    assert low < found.with_failures.days < high


def test_energy_by_hand(found):
    """700 W boards, 1.5 times that with the node, PUE 1.56, 0.08 USD per kWh."""
    run = found.without_failures
    assert found.energy(run) / 3.6e9 == pytest.approx(run.gpu_hours * 1.05 * 1.56 / 1000)
    assert found.energy_usd(run) == pytest.approx(run.gpu_hours * 1.05 * 1.56 * 0.08)


def test_rent_or_buy_by_hand(found):
    """Upkeep 1.05 x (1.56 x 0.08 + 184.06 / 730.5) = 0.3956 USD/h; 2 x 0.83 less that saves 923.6 USD a month."""
    owned = found.ownership
    upkeep = 1.05 * (1.56 * 0.08 + 184.06 / 730.5)
    assert owned.upkeep_usd_per_hour == pytest.approx(upkeep)
    assert owned.owned_usd_per_hour == pytest.approx((43000 * 0.9 / (5 * 8766) + upkeep) / 0.83)
    assert owned.break_even_months == pytest.approx((43000 / ((2 * 0.83 - upkeep) * 730.5),) * 2)
    assert owned.break_even_months[0] == pytest.approx(46.6, abs=0.1)


def test_buying_never_pays_against_a_rent_below_the_upkeep():
    owned = budget(asked(usd_per_gpu_hour=0.3)).ownership
    assert owned.break_even_months == (None, None)


def test_with_its_premium_the_faster_network_costs_as_much_as_the_slower(found):
    extra, (fast, slow) = found.premium, found.premium.step_times
    best_of_other = answer(asked(network="roce-100x8"), top=1).best
    assert (extra.faster, extra.slower) == ("ib-ndr400", "roce-100")
    assert slow == best_of_other.step_time
    assert fast == found.ranked.step_time < slow
    assert (2.0 + extra.usd_per_gpu_hour[0]) * fast == pytest.approx(2.0 * slow)
    assert extra.usd_of_run[0] == pytest.approx(best_of_other.run.usd_low - found.without_failures.usd_low)


def test_the_premium_is_the_same_from_the_slower_networks_side(found):
    other = budget(asked(network="roce-100x8"), BudgetChoices(against="ib-ndr400x8")).premium
    assert other.step_times == found.premium.step_times
    assert other.usd_per_gpu_hour == found.premium.usd_per_gpu_hour


def test_a_network_against_itself_may_not_cost_more():
    extra = budget(asked(), BudgetChoices(against="ib-ndr400x8")).premium
    assert extra.usd_per_gpu_hour == (0.0, 0.0)


@pytest.mark.parametrize(
    ("choices", "bytes_each"),
    [
        ({"fix": "sharding=fsdp,tp=1,pp=1"}, 12.0),  # fp32 weights and two moments
        ({"fix": "sharding=zero1,tp=2", "stack": "megatron-core"}, 14.0),  # 16-bit weights, fp32 master, two moments
        ({"fix": "sharding=fsdp,tp=1,pp=1", "optimizer": "sgd"}, 4.0),
        ({"fix": "sharding=fsdp,tp=1,pp=1", "state": "16bit"}, 6.0),
        ({"fix": "sharding=fsdp,tp=1,pp=1", "optimizer": "adamw-8bit"}, 4.0 + 2.03125),
    ],
)
def test_a_checkpoint_holds_weights_master_and_moments_once(choices, bytes_each):
    best = answer(asked(**choices), top=1).best
    assert checkpoint_size(best) == pytest.approx(8_030_261_248 * bytes_each)


def test_a_checkpoint_of_experts_holds_all_of_them_and_one_of_adapters_only_these():
    experts = answer(asked("mixtral-8x7b", fix="sharding=fsdp,tp=1,pp=1"), top=1).best
    assert checkpoint_size(experts) == pytest.approx(46_702_792_704 * 12.0)
    adapters = answer(asked(method="lora", lora_rank=16), top=1).best
    assert checkpoint_size(adapters) < 0.01 * 8_030_261_248 * 12.0


def test_a_checkpoint_takes_its_bytes_over_the_storage_and_the_restart_reads_it():
    points = budget(asked(), BudgetChoices(checkpoint_gb_per_s=2.0, restart_minutes=5)).checkpoints
    assert points.write == pytest.approx(points.size / 2e9)
    assert points.restart == pytest.approx(300 + points.write)


def test_the_chosen_interval_is_dalys_in_whole_steps(found):
    points, step = found.checkpoints, found.ranked.step_time
    assert points.daly == pytest.approx(daly_interval(points.write, points.mtbf))
    assert points.interval == pytest.approx(points.steps * step)
    assert abs(points.interval - points.daly) <= step / 2


def test_the_simulation_agrees_within_two_percent(found):
    for points in (found.checkpoints, found.spot.checkpoints):
        assert points.simulated_goodput == pytest.approx(points.goodput, rel=0.02)
        assert points.simulated_best_interval == pytest.approx(points.daly, rel=0.02)


def test_llama_3_405b_keeps_the_effective_training_time_that_was_published():
    """Llama 3 report: over 90 % with 419 unexpected interruptions in 54 days on 16,384 H100; 30.84M GPU-hours."""
    question = ask("llama-3.1-405b", "2048xdgx-h100", Choices(tokens="15.6T", seq_len=8192, global_batch_size="16Mtok"))
    found = budget(question)
    assert DAY / found.checkpoints.mtbf == pytest.approx(419 / 54, rel=1e-3)
    assert 0.90 < found.checkpoints.goodput < 0.95
    assert found.with_failures.gpu_hours == pytest.approx(30.84e6, rel=0.25)
    assert found.checkpoints.simulated_best_interval == pytest.approx(found.checkpoints.daly, rel=0.02)


def test_failures_a_day_say_the_same_as_hours_between_those_of_a_gpu():
    by_gpu = assumptions(asked(), BudgetChoices(mtbf_hours_per_gpu=16 * 24 / 3))
    by_job = assumptions(asked(), BudgetChoices(failures_per_day=3))
    assert by_gpu.mtbf == pytest.approx(by_job.mtbf)
    assert by_job.mtbf == pytest.approx(8 * HOUR)


def test_spot_instances_cost_their_price_over_what_lasts(found):
    offer = found.spot
    assert offer.usd_per_useful_hour[0] == pytest.approx(1.0 / offer.checkpoints.goodput)
    assert offer.on_demand_usd_per_useful_hour[0] == pytest.approx(2.0 / found.checkpoints.goodput)
    assert DAY / offer.checkpoints.mtbf == pytest.approx(DAY / found.checkpoints.mtbf + 6)


def test_at_the_highest_rate_spot_and_on_demand_cost_the_same(found):
    rate = found.spot.most_preemptions_per_day
    even = budget(asked(), BudgetChoices(preemptions_per_day=rate, spot_discount=0.5)).spot
    assert even.usd_per_useful_hour[0] == pytest.approx(even.on_demand_usd_per_useful_hour[0], rel=0.01)


def test_what_is_given_is_not_assumed_and_everything_else_has_its_source():
    nothing = assumptions(asked(), BudgetChoices())
    assert len(nothing.assumed) == 11
    assert all("(" in each for each in nothing.assumed)
    bought = "usd_per_gpu=1,years=1,utilisation=1,hosting=0,resale=0"
    given = BudgetChoices(
        power_kw_per_gpu=1, pue=1, power_price=1, mtbf_hours_per_gpu=1, checkpoint_gb_per_s=1, restart_minutes=1,
        buy=bought,
    )  # fmt: skip
    assert assumptions(asked(), given).assumed == ()


def test_the_options_ask_the_same_again(found):
    words = shlex.split(found.assumed.options)
    given = {
        name.removeprefix("--").replace("-", "_"): word for name, word in zip(words[::2], words[1::2], strict=True)
    }
    numbers = {name: float(word) for name, word in given.items() if name not in ("buy", "against", "seed")}
    again = BudgetChoices(**numbers, buy=given["buy"], against=given["against"], seed=int(given["seed"]))
    assert replace(assumptions(asked(), again), assumed=()) == replace(found.assumed, assumed=())


def test_a_part_without_a_public_price_is_not_bought_until_one_is_given():
    card = {"model": "gpt2", "cluster": "8xrtx-4090"}
    assert budget(asked(**card)).ownership is None
    assert budget(asked(**card), BudgetChoices(buy="usd_per_gpu=2500")).ownership.purchase_usd == 2500


def test_assumptions_of_buying_are_not_passed_over_where_there_is_no_price():
    with pytest.raises(SpecError, match="--buy: needs usd_per_gpu: no price to buy rtx-4090 is known"):
        budget(asked("gpt2", "8xrtx-4090"), BudgetChoices(buy="years=4"))


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        (BudgetChoices(mtbf_hours_per_gpu=0), "--mtbf-hours-per-gpu: must be positive"),
        (BudgetChoices(failures_per_day=-1), "--failures-per-day: must be positive"),
        (BudgetChoices(failures_per_day=1, mtbf_hours_per_gpu=1), "give one of them"),
        (BudgetChoices(power_price=-0.1), "--power-price: must be positive"),
        (BudgetChoices(pue=0.9), "--pue: must be at least 1"),
        (BudgetChoices(spot_discount=0.5), "needs --preemptions-per-day"),
        (BudgetChoices(buy="year=5"), "unknown assumption 'year'; did you mean years"),
        (BudgetChoices(buy="years=x"), "--buy years: must be a number"),
        (BudgetChoices(buy="years=4,years=5"), "--buy: years is given twice"),
        (BudgetChoices(buy="resale=1.5"), "--buy resale: must be at most 1"),
        (BudgetChoices(failures_per_day=50_000), "makes no headway"),
        (BudgetChoices(against="ib-ndr4000"), "--against: unknown network"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(chosen, message):
    with pytest.raises(SpecError, match=message):
        budget(asked(), chosen)


def test_a_run_without_tokens_has_no_budget():
    with pytest.raises(SpecError, match="--tokens: is needed"):
        budget(asked(tokens=None))
