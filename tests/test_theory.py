"""Formulas of [BOBW] against numbers worked out by hand, and interval regret by brute force."""

import itertools
import math

import numpy as np
import pytest

from tightrope import theory
from tightrope.errors import ConfigError, ModelError
from tightrope.planning.layered import best_policy
from tightrope.problems.loop_free import random_layered


def setting(**changes):
    sizes = {"num_states": 17, "num_actions": 3, "num_layers": 4, "num_constraints": 2}
    return theory.Setting(**{"episodes": 10_000, "delta": 0.05, **sizes, **changes})


def test_constants_by_hand():
    s = setting()
    assert theory.primal_constant(s) == pytest.approx(63.75)
    assert theory.dual_step(s) == pytest.approx(1 / (100 * 2 * 51 * 100 * math.sqrt(math.log(2e9))))
    assert theory.zeta(s, 2.0) == pytest.approx(160.0)
    assert theory.reward_error(s) == pytest.approx(200 * math.sqrt(2 * math.log(40)))
    assert theory.constraint_error(s, 50) == pytest.approx(80 * math.sqrt(math.log(2e9)))
    assert theory.occupancy_error(s) == pytest.approx(
        27200 * math.sqrt(2 * math.log(20)) + 40800 * math.sqrt(6 * math.log(51e4 / 0.05))
    )
    assert theory.alpha(setting(num_layers=10), 1.0) == pytest.approx(1 / 11)
    assert theory.alpha_printed(1.0) == 0.5


def test_the_drift_of_the_multipliers_at_theory_scale():
    """The specification's figure: 0.19 at T = 1e6 for L = 5, |X||A| = 48."""
    s = setting(episodes=10**6, num_states=16, num_layers=5, num_constraints=1)
    largest = s.num_layers * s.episodes * theory.dual_step(s)
    assert largest == pytest.approx(0.19, abs=0.01)


def test_condition_2_thresholds():
    one = setting(num_layers=1, num_constraints=1)
    assert theory.condition_2_episodes(one, 1.0) == pytest.approx(1.6e5)
    assert theory.condition_2_episodes(one, 0.5) == pytest.approx(4.096e7)
    two = setting(num_layers=2, num_constraints=1, episodes=10**6)
    assert theory.condition_2(two, 1.6)
    assert theory.condition_2_margin(two) == pytest.approx(1.5905, abs=1e-3)


def test_theorem_3_is_least_at_its_own_constant():
    s = setting()
    c = theory.best_primal_constant(s)
    least = theory.primal_regret(s, c, 1.0)
    assert least < theory.primal_regret(s, 1.1 * c, 1.0)
    assert least < theory.primal_regret(s, 0.9 * c, 1.0)


def test_theorems_choose_and_scale():
    s = setting(episodes=10**6, num_layers=2, num_constraints=1, num_states=4, num_actions=2)
    common = {"constant": theory.primal_constant(s), "eta": theory.dual_step(s), "proved": True}
    five = theory.bound_for(
        s, 1.6, 1.0, stochastic_rewards=True, stochastic_constraints=True, **common
    )
    assert (five.theorem, five.proved) == ("Theorem 5", True)
    assert five.violation == pytest.approx(31.25 / theory.dual_step(s) + theory.occupancy_error(s))
    six = theory.bound_for(
        s, 0.5, 1.0, stochastic_rewards=False, stochastic_constraints=True, **common
    )
    assert six.theorem == "Theorem 6"
    assert six.probability == pytest.approx(0.8)
    right = theory.theorem_7(s, 1.6, 1.0, stochastic_rewards=False, **common)
    printed = theory.theorem_7(s, 1.6, 1.0, stochastic_rewards=False, printed=True, **common)
    assert right.regret - printed.regret == pytest.approx(1e6 * (2 / 3.6 - 1 / 2.6))
    assert not printed.proved
    without = theory.theorem_7(s, 0.5, 1.0, stochastic_rewards=False, **common)
    assert math.isinf(without.regret)
    assert math.isfinite(without.violation)


def test_bad_input():
    with pytest.raises(ConfigError, match="delta"):
        setting(delta=1.0)
    for name in ("episodes", "num_states", "num_actions", "num_layers", "num_constraints"):
        for value in (math.nan, -1, 1.5):
            with pytest.raises(ConfigError, match=f"{name} must be a whole number"):
                setting(**{name: value})
    for horizons, finals in (
        ([10, 100, 1000], [1.0, math.nan, 3.0]),
        ([10, 0, 1000], [1.0, 2.0, 3.0]),
        ([10, -1, 1000], [1.0, 2.0, 3.0]),
        ([10, 100, 1000], [1.0, 2.0]),
    ):
        with pytest.raises(ConfigError, match="a slope needs as many horizons"):
            theory.log_log_slope(horizons, finals)
    with pytest.raises(ModelError, match=r"rho = -0\.1"):
        theory.zeta(setting(), -0.1)


def test_the_worst_seed_is_found_row_by_row():
    def row(quantity, measured, source=""):
        return {"quantity": quantity, "measured": measured, "source": source}

    tables = [
        [row("rho", 2.0), row("reward / (T OPT)", 0.9), row("V_T", 3.0)],
        [row("rho", 1.0), row("V_T", 5.0)],
        [row("rho", None), row("reward / (T OPT)", 0.8), row("V_T", 4.0)],
    ]
    worst = {r["quantity"]: r["measured"] for r in theory.worst_of_seeds(tables)}
    assert worst == {"rho": 1.0, "reward / (T OPT)": 0.8, "V_T": 5.0}
    twice = [[row("x", 1.0, "a"), row("x", 1.0, "b")], [row("x", 2.0, "a"), row("x", 0.5, "b")]]
    assert [(r["measured"], r["source"]) for r in theory.worst_of_seeds(twice)] == [
        (2.0, "a"), (1.0, "b"),
    ]  # fmt: skip


def test_interval_regret_by_brute_force():
    world = random_layered(layers=(1, 3, 2, 1), seed=2)
    rng = np.random.default_rng(0)
    losses = rng.normal(size=(12, *world.model.rewards.shape))
    losses[:, -1] = 0.0
    earned = rng.normal(size=12)
    sums = np.concatenate([np.zeros((1, *losses.shape[1:])), losses.cumsum(axis=0)])
    totals = np.concatenate([[0.0], earned.cumsum()])
    exact = theory.weak_interval_regret(world, np.arange(13), sums, totals)
    best = max(
        totals[j] - totals[i] - best_policy(world, sums[j] - sums[i])[0]
        for i, j in itertools.combinations(range(13), 2)
    )
    assert exact.exact
    assert exact.value == pytest.approx(best)
    grid = np.array([0, 4, 8, 12])
    coarse = theory.weak_interval_regret(world, grid, sums[grid], totals[grid])
    assert not coarse.exact
    assert coarse.value <= exact.value
