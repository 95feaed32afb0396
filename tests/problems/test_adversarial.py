"""Sequences are replayable block by block, and know their hindsight averages exactly."""

import dataclasses
import functools
import os
import subprocess
import sys

import numpy as np
import pytest

from tightrope import theory
from tightrope.errors import ConfigError, ModelError
from tightrope.experiments.best_of_both_worlds import best_of_both_worlds
from tightrope.planning.layered import margin, occupancy_of, plan_layered
from tightrope.problems import adversarial, loop_free, sequences
from tightrope.problems.adversarial import (
    always_safe_plan,
    feasibility_margin,
    hindsight_plan,
)
from tightrope.problems.loop_free import random_layered
from tightrope.problems.registry import make_problem

T = 700
WORLD = random_layered(seed=5, rho=1.2)
R, G = WORLD.model.rewards, WORLD.model.costs
OTHER = random_layered(seed=6, rho=1.2)
R2, G2 = OTHER.model.rewards, OTHER.model.costs

SEQUENCES = {
    "iid": sequences.iid(R, channel="rewards", noise=0.4),
    "draw": sequences.draw([R, R2], [0.3, 0.7], channel="rewards"),
    "switching": sequences.switching(R, R2, 37, channel="rewards", noise=0.2),
    "drift": sequences.drift(R, R2, T, channel="rewards"),
    "piecewise": sequences.piecewise([R, R2, R], T, channel="rewards"),
    "iid-g": sequences.iid(G, channel="constraints", noise=0.9),
    "draw-g": sequences.draw([G, G2], [0.5, 0.5], channel="constraints", noise=0.1),
    "switching-g": sequences.switching(G, G2, 50, channel="constraints"),
    "drift-g": sequences.drift(G, G2, T, channel="constraints", noise=0.05),
    "piecewise-g": sequences.piecewise([G, G2], T, channel="constraints"),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_any_episode_replays_without_the_ones_before(name):
    sequence = SEQUENCES[name]
    whole = sequences.block(sequence, 1, T, 11)
    assert (whole >= sequence.low).all()
    assert (whole <= sequence.high).all()
    for first, count in ((1, 1), (256, 2), (257, 300), (T, 1)):
        part = sequences.block(sequence, first, count, 11)
        np.testing.assert_array_equal(part, whole[first - 1 : first - 1 + count])
    average = sequences.hindsight_average(sequence, T, 11)
    np.testing.assert_allclose(average, whole.mean(axis=0), atol=1e-12)
    if sequence.noise or sequence.kind == "draw":
        assert not np.array_equal(whole, sequences.block(sequence, 1, T, 12))


@pytest.mark.parametrize("name", ["iid", "draw", "iid-g", "draw-g"])
def test_stochastic_means_are_exact(name):
    sequence = SEQUENCES[name]
    blocks = sequences.block(sequence, 1, 20_000, 3)
    spread = blocks.std(axis=0) / np.sqrt(20_000)
    off = np.abs(blocks.mean(axis=0) - sequences.mean(sequence))
    assert (off <= 5 * spread + 1e-12).all()


def test_rewards_and_constraints_have_separate_noise():
    problem = loop_free.stochastic_problem(WORLD)
    r = sequences.block(problem.rewards, 1, 500, 0)[:, 0, 0]
    g = sequences.block(problem.constraints, 1, 500, 0)[:, 0, 0, 0]
    assert abs(np.corrcoef(r, g)[0, 1]) < 0.2


def test_chosen_margin_is_exact_and_constraints_bind():
    for seed in range(5):
        world = random_layered(seed=seed, rho=0.7, num_constraints=2)
        plan = margin(world, world.model.costs)
        assert plan.value == pytest.approx(0.7, abs=1e-9)
        assert plan.upper_bound == pytest.approx(0.7, abs=1e-9)
        best = plan_layered(world)
        assert best.gap < 1e-9
        assert (best.constraints <= 1e-9).all()
        assert best.multipliers.sum() > 1e-3


def test_four_combinations_share_margin_and_optimum_of_the_law():
    problems = loop_free.four_combinations(rho=1.0, episodes=1000, seed=4)
    assert len(problems) == 4
    for problem in problems.values():
        assert feasibility_margin(problem, 1000, 0).value == pytest.approx(1.0, abs=1e-9)
        assert hindsight_plan(problem, 1000, 0).gap < 1e-9


def test_margin_of_noisy_adversarial_constraints_by_cuts():
    """Cutting planes over all G_t give what one program with every G_t gives."""
    sequence = sequences.switching(G, G2, 5, channel="constraints", noise=0.2)
    problem = adversarial.AdversarialProblem(
        name="noisy",
        loop_free=WORLD,
        constraints=sequence,
        rewards=sequences.iid(R, channel="rewards"),
    )
    every = sequences.block(sequence, 1, 60, 2).reshape(-1, *R.shape)
    plan = feasibility_margin(problem, 60, 2)
    assert plan.value == pytest.approx(margin(WORLD, every).value, abs=1e-8)
    safe = always_safe_plan(problem, 60, 2)
    assert safe.value == pytest.approx(plan_layered(WORLD, R, every).value, abs=1e-7)
    assert (np.tensordot(every, safe.occupancy, axes=2) <= 1e-8).all()


def test_best_response_picks_the_worst_table():
    problem = loop_free.best_response_problem(WORLD, rho=0.5)
    uniform = occupancy_of(WORLD, np.full(R.shape, 1 / 3))
    totals = np.tensordot(problem.rewards.tables, uniform, axes=2)
    worst = sequences.respond(problem.rewards, 1, uniform)
    np.testing.assert_array_equal(worst, problem.rewards.tables[totals.argmin()])
    totals = np.tensordot(problem.constraints.tables, uniform, axes=2).max(axis=1)
    worst = sequences.respond(problem.constraints, 1, uniform)
    np.testing.assert_array_equal(worst, problem.constraints.tables[totals.argmax()])
    with pytest.raises(ModelError, match="after the run"):
        hindsight_plan(problem, 10, 0)


def test_constraints_bind_in_every_arm_that_meets_condition_2():
    """At the experiment's T and in its quick form, in hindsight, by planning alone."""
    for quick in (False, True):
        arms = best_of_both_worlds(quick=quick).arms
        arms = {(a.problem, a.episodes) for a in arms if a.problem.startswith("condition-2")}
        assert len(arms) == 4
        for name, episodes in arms:
            problem = make_problem(name)
            plan = hindsight_plan(problem, episodes, 0)
            assert plan.multipliers[0] > 0.4
            assert plan.constraints[0] == pytest.approx(0.0, abs=1e-9)
            rho = feasibility_margin(problem, episodes, 0).value
            assert rho == pytest.approx(1.7)
            setting = theory.setting_of(problem.spec(), episodes, 0.05)
            assert theory.condition_2(setting, rho) == (episodes == 1_000_000)


def test_ten_layers_numbers():
    """OPT and rho of the example against the printed alpha, from its closed form."""
    relief = loop_free.ten_layers("relief", 1000)
    trap = loop_free.ten_layers("trap", 1000)
    assert feasibility_margin(relief, 1000, 0).value == pytest.approx(1.0)
    assert feasibility_margin(trap, 1000, 0).value == pytest.approx(1.0)
    assert hindsight_plan(relief, 1000, 0).value == pytest.approx(5.0)
    assert hindsight_plan(trap, 1000, 0).value == pytest.approx(5 / 11)
    first_halves = [sequences.block(p.constraints, 1, 500, 0) for p in (relief, trap)]
    np.testing.assert_array_equal(*first_halves)


def test_impossibility_numbers():
    relief = loop_free.impossibility("relief", 100)
    trap = loop_free.impossibility("trap", 100)
    assert hindsight_plan(relief, 100, 0).value == pytest.approx(0.25)
    assert hindsight_plan(trap, 100, 0).value == pytest.approx(0.0, abs=1e-12)
    assert feasibility_margin(relief, 100, 0).value == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("prices", ["stochastic", "adversarial"])
def test_auction_budget_is_the_margin(prices):
    problem = loop_free.auction_pacing(prices=prices, budget=0.6)
    assert feasibility_margin(problem, 1000, 0).value == pytest.approx(0.6)
    plan = hindsight_plan(problem, 1000, 0)
    assert plan.constraints[0] == pytest.approx(0.0, abs=1e-9)
    assert plan.multipliers[0] > 0


def test_wrong_tables_are_named():
    bad = R.copy()
    bad[2, 1] = 1.5
    with pytest.raises(ModelError, match=r"iid rewards: table 0 is 1.5 at \(2, 1\)"):
        sequences.iid(bad, channel="rewards")
    with pytest.raises(ModelError, match=r"expected a list of \(m, S, A\)"):
        sequences.iid(R, channel="constraints")
    with pytest.raises(ModelError, match="shape"):
        adversarial.AdversarialProblem(
            name="x",
            loop_free=WORLD,
            constraints=sequences.iid(G, channel="constraints"),
            rewards=sequences.iid(np.zeros((3, 2)), channel="rewards"),
        )
    with pytest.raises(ModelError, match="rho must be in"):
        random_layered(rho=9.0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sequences.iid(R, channel="reward"), "channel must be 'rewards' or"),
        (lambda: sequences.iid(R, channel="rewards", noise=np.nan), "noise must be a number >= 0"),
        (lambda: sequences.iid(R, channel="rewards", noise="a"), "noise must be a number >= 0"),
        (lambda: sequences.switching(R, R, 2.5, channel="rewards"), "period must be a whole"),
        (lambda: sequences.drift(R, R, 0.5, channel="rewards"), "episodes must be a whole"),
        (lambda: loop_free.ten_layers(num_layers=0), "num_layers must be a whole number >= 1"),
        (lambda: loop_free.four_combinations(num_actions=0), "num_actions must be a whole number"),
        (lambda: loop_free.four_combinations(num_constraints=-1), "num_constraints must be a"),
        (lambda: loop_free.four_combinations(layers=(2, 3, 1)), "the first and the last layer"),
        (lambda: make_problem("switching", foo=0), "problem 'switching' with {'foo': 0}: .*foo"),
    ],
)
def test_wrong_parameters_are_named(make, words):
    with pytest.raises((ModelError, ConfigError), match=words):
        make()


def test_custom_adversaries_count_by_what_they_do():
    def made(function):
        played = sequences.custom(function, R.shape, channel="rewards")
        return loop_free.stochastic_problem(WORLD), played

    def hashed(function):
        problem, played = made(function)
        return dataclasses.replace(problem, rewards=played).content_hash

    def scaled(factor, table):
        return lambda episode, q: factor * table

    different = [
        hashed(lambda episode, q: 0.5 * R),
        hashed(lambda episode, q: 0.25 * R),
        hashed(lambda episode, q, share=0.5: share * R),
        hashed(lambda episode, q, share=0.25: share * R),
        hashed(scaled(0.5, R)),
        hashed(scaled(0.25, R)),
        hashed(scaled(0.5, R2)),
    ]
    assert len(set(different)) == len(different)
    assert hashed(scaled(0.5, R)) == hashed(scaled(0.5, R.copy()))


class Scaled:
    def __init__(self, factor):
        self.factor, self.me = factor, self

    def __call__(self, episode, q):
        return self.factor * R


def closing(value):
    return lambda episode, q: value


def test_fingerprints_look_into_what_a_function_holds():
    def shared(episode, q, share=1):
        return share * R

    def keyword(default):
        def function(episode, q, *, share=default):
            return share * R

        return function

    pairs = [
        ([1], [2]),
        ((1, [2]), (1, [3])),
        ({"a": 1}, {"a": 2}),
        ({1}, {2}),
        (np.float64(1), np.float64(2)),
        (np.array([1, None]), np.array([2, None])),
        (range(2), range(3)),
        (np.minimum, np.maximum),
        (closing(1), closing(2)),
        (Scaled(1), Scaled(2)),
    ]
    functions = [(closing(one), closing(other)) for one, other in pairs] + [
        (lambda episode, q: episode in {1, 2}, lambda episode, q: episode in {1, 3}),
        (keyword(1), keyword(2)),
        (functools.partial(shared, share=1), functools.partial(shared, share=2)),
        (Scaled(1), Scaled(2)),
        (Scaled(1).__call__, Scaled(2).__call__),
    ]
    for one, other in functions:
        assert sequences.fingerprint(one) != sequences.fingerprint(other)
    same = sequences.fingerprint
    assert same(closing(np.float64(1))) == same(closing(1.0))
    assert same(closing({"a": 1, "b": {2, 3}})) == same(closing({"b": {3, 2}, "a": 1}))
    assert same(Scaled(1)) == same(Scaled(1))
    early = sequences.fingerprint(lambda episode, q: later)  # a cell that is still empty
    later = R
    assert early != sequences.fingerprint(lambda episode, q: later)


def test_fingerprints_do_not_depend_on_the_hash_seed():
    program = (
        "from tightrope.problems.sequences import fingerprint\n"
        "held = {'a', 'b', 'c'}, {'x': 1, 'y': 2}\n"
        "print(fingerprint(lambda e, q: (held, e in {'d', 'e', 'f'})), fingerprint(held))"
    )
    out = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(out) == 1
