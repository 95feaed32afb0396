"""PDGD-OPS, UC-O-GDPS and UC-O-REPS step by step against the paper's pseudo-code."""

import dataclasses
import math

import numpy as np
import pytest

from tightrope import theory
from tightrope.errors import ConfigError
from tightrope.estimation.visits import l1_radius
from tightrope.learners import pdgd_ops, uc_o_gdps, uc_o_reps
from tightrope.learners.protocol import Experience, restore_state, state_arrays
from tightrope.learners.registry import make_config
from tightrope.model.policy import StochasticPolicy
from tightrope.planning.layered import margin
from tightrope.problems import sequences
from tightrope.problems.adversarial import hindsight_plan
from tightrope.problems.loop_free import random_layered, stochastic_problem
from tightrope.simulation.adversarial import play

WORLD = random_layered(layers=(1, 3, 4, 1), num_actions=2, num_constraints=2, rho=0.8, seed=3)
PROBLEM = stochastic_problem(WORLD)
SPEC = PROBLEM.spec()
LEARNERS = [pdgd_ops, uc_o_gdps, uc_o_reps]
TUNED = {"primal_scale": 0.01, "dual_scale": 5000.0, "radius_scale": 0.1}


def make(module, episodes, **changes):
    config = module.theory(SPEC, episodes, 0.05)
    names = {item.name for item in dataclasses.fields(config)}
    return dataclasses.replace(config, **{k: v for k, v in changes.items() if k in names})


def episode(rng, policy):
    """One episode of the true model, and full information, without the simulation."""
    model = WORLD.model
    x, states, actions = 0, [0], []
    for _ in range(WORLD.num_layers):
        a = rng.choice(2, p=policy[x])
        x = rng.choice(model.num_states, p=model.dense()[x, a])
        actions.append(a)
        states.append(x)
    r = rng.random(model.rewards.shape)
    g = rng.uniform(-1, 1, model.costs.shape)
    r[-1], g[:, -1] = 0.0, 0.0
    return Experience(
        first=1,
        states=np.array([states], np.int32),
        actions=np.array([actions], np.int32),
        rewards=np.zeros((1, 3)),
        costs=np.zeros((1, 3, 2)),
        reward_tables=r[None],
        constraint_tables=g[None],
    )


def test_pdgd_ops_follows_algorithm_2():
    """The updates written out a second time, straight from the pseudo-code."""
    T = 150
    config = make(pdgd_ops, T, **TUNED)
    state = pdgd_ops.init(SPEC, config)
    rng = np.random.default_rng(0)
    eta = 5000.0 / (100 * 2 * 18 * math.sqrt(T * math.log(T**2 / 0.05)))
    lam, largest = np.zeros(2), 0.0
    N, M, N_epoch, epoch = {}, {}, {}, 1
    for _ in range(T):
        q = state.q_hat.copy()
        table = pdgd_ops.policy(state).probabilities
        mass = q.sum(axis=1)
        np.testing.assert_allclose(table[mass > 0], q[mass > 0] / mass[mass > 0, None])
        np.testing.assert_allclose(table[mass == 0], 0.5)
        seen = episode(rng, table)
        r, g = seen.reward_tables[0], seen.constraint_tables[0]
        before = lam
        loss = np.einsum("i,ixa->xa", lam, g) - r
        largest = max(largest, np.abs(loss).max())
        step = 1.0 / (largest * (5 * 18 / 3) * 0.01 * math.sqrt(T))
        lam = np.clip(lam + eta * np.einsum("ixa,xa->i", g, q), 0, T**0.25)
        start = False
        for x, a, y in zip(seen.states[0], seen.actions[0], seen.states[0][1:]):
            N[x, a] = N.get((x, a), 0) + 1
            M[x, a, y] = M.get((x, a, y), 0) + 1
        for x, a in zip(seen.states[0], seen.actions[0]):
            start |= N[x, a] >= max(1, 2 * N_epoch.get((x, a), 0))
        if start:
            epoch += 1
            N_epoch = dict(N)
            M_epoch = dict(M)
        state, info = pdgd_ops.update(state, seen)
        assert info["epoch"] == epoch
        assert info["step"] == pytest.approx(step)
        np.testing.assert_allclose(state.multipliers, lam, atol=1e-12)
        np.testing.assert_allclose(info["multipliers"], before, atol=1e-12)  # lambda_t
        for (x, a), n in N_epoch.items():
            width = [3, 4, 1][WORLD.layers[x]]
            radius = 0.1 * math.sqrt(2 * width * math.log(T * 18 / 0.05) / n)
            assert state.radii[x, a] == pytest.approx(radius)
            first = WORLD.offsets[WORLD.layers[x] + 1]
            row = [M_epoch.get((x, a, first + y), 0) / n for y in range(width)]
            np.testing.assert_allclose(state.centres[x, a, :width], row)
        assert info["residual"] <= 1e-5
    assert epoch > 5


def test_the_first_occupancy_is_uniform():
    for module in LEARNERS:
        state = module.init(SPEC, make(module, 10))
        expected = np.repeat([1 / 2, 1 / 6, 1 / 8, 0], [1, 3, 4, 1])
        np.testing.assert_allclose(state.q_hat, expected[:, None].repeat(2, axis=1))
        np.testing.assert_allclose(module.policy(state).probabilities[:-1], 0.5)


@pytest.mark.parametrize("module", LEARNERS)
def test_save_and_resume_is_bit_for_bit(module):
    T = 120
    config = make(module, T, **TUNED)
    whole = module.init(SPEC, config)
    rng = np.random.default_rng(4)
    log = []
    for t in range(T):
        if t == 70:
            saved = state_arrays(whole)
        log.append(episode(rng, module.policy(whole).probabilities))
        whole, _ = module.update(whole, log[-1])
    resumed = restore_state(module.LEARNER, SPEC, config, saved)
    for seen in log[70:]:
        resumed, _ = module.update(resumed, seen)
    left, right = state_arrays(whole), state_arrays(resumed)
    assert left.keys() == right.keys()
    for name in left:
        np.testing.assert_array_equal(left[name], right[name], err_msg=name)


@pytest.mark.parametrize("module", LEARNERS)
def test_policy_writes_nothing_and_returned_policies_stay(module):
    state = module.init(SPEC, make(module, 5))
    rng = np.random.default_rng(0)
    before = state_arrays(state)
    first = module.policy(state)
    after = state_arrays(state)
    assert all(np.array_equal(before[name], after[name]) for name in before)
    copy = first.probabilities.copy()
    module.update(state, episode(rng, copy))
    np.testing.assert_array_equal(first.probabilities, copy)


def test_guarantees_only_for_the_theorems_constants():
    for module in LEARNERS:
        assert module.guarantee(make(module, 100)) is not None
    assert pdgd_ops.guarantee(make(pdgd_ops, 100, cap=False)) is None
    for module in LEARNERS:
        assert module.guarantee(make(module, 100, radius_scale=0.1)) is None
        assert module.guarantee(make(module, 100, doubling=True)) is None
    for module in (uc_o_gdps, uc_o_reps):
        assert module.guarantee(make(module, 100, penalty=(1.0, 1.0))) is None
    for module in LEARNERS:  # every number that the theorem fixes takes the claim away
        for item in dataclasses.fields(module.Config):
            if item.name.endswith("_scale"):
                assert module.guarantee(make(module, 100, **{item.name: 1.01})) is None
        assert module.guarantee(make(module, 100, tolerance=1.1e-5)) is None


def test_theory_constants():
    config = pdgd_ops.theory(SPEC, 1000, 0.05)
    assert pdgd_ops.primal_constant(SPEC, config) == pytest.approx(5 * 18 / 3)
    eta = pdgd_ops.dual_step(SPEC, config, 1000)
    assert eta == pytest.approx(theory.dual_step(theory.setting_of(SPEC, 1000, 0.05)))
    assert eta == pytest.approx(1 / (100 * 2 * 18 * math.sqrt(1000 * math.log(1000**2 / 0.05))))
    single = uc_o_gdps.theory(SPEC, 1000, 0.05)
    assert uc_o_gdps.primal_constant(SPEC, single) == pytest.approx(math.sqrt(3))
    eta = uc_o_reps.step_size(SPEC, uc_o_reps.theory(SPEC, 1000, 0.05), 1000)
    assert eta == pytest.approx(math.sqrt(math.log(81 * 2 / 9) / 1000))


def test_nothing_to_learn_from_zero_losses():
    """While every loss was 0 there is no step, and nothing divides by 0."""
    zero = np.zeros_like(WORLD.model.rewards)
    problem = dataclasses.replace(PROBLEM, rewards=sequences.iid(zero, channel="rewards"))
    run = play(problem, uc_o_gdps.LEARNER, make(uc_o_gdps, 30), episodes=30, seed=0)
    assert (run.curves["step"] == 0).all()
    assert np.isfinite(run.curves["movement"]).all()


def test_bad_input():
    config = make(pdgd_ops, 10)
    with pytest.raises(ConfigError, match=r"tr\.unroll"):
        pdgd_ops.check(dataclasses.replace(SPEC, layers=None), config)
    with pytest.raises(ConfigError, match=r"rewards in \[0, 1\], the problem has \[0, 2\]"):
        pdgd_ops.check(dataclasses.replace(SPEC, reward_range=(0.0, 2.0)), config)
    with pytest.raises(ConfigError, match=r"constraints in \[-1, 1\]"):
        pdgd_ops.check(dataclasses.replace(SPEC, cost_ranges=SPEC.cost_ranges * 3), config)
    state = pdgd_ops.init(SPEC, config)
    seen = episode(np.random.default_rng(0), np.full((9, 2), 0.5))
    seen.reward_tables = None
    with pytest.raises(ConfigError, match="full information"):
        pdgd_ops.update(state, seen)


@pytest.mark.parametrize("module", LEARNERS)
def test_bad_numbers(module):
    name = module.LEARNER.name
    scales = [f.name for f in dataclasses.fields(module.Config) if f.name.endswith("_scale")]
    bad = [
        (key, value, f"{key} must be a finite number > 0")
        for key in (*scales, "tolerance")
        for value in (0.0, -1.0, math.nan, math.inf, "a", True, None)
    ]
    bad += [("delta", value, r"delta must be in \(0, 1\)") for value in (0.0, 1.0, math.nan, "x")]
    bad += [("episodes", value, "doubling=True") for value in (0, 2.5, math.nan, "a", True)]
    bad += [("doubling", "no", "doubling must be True or False")]
    if module is pdgd_ops:
        bad += [("cap", 0.5, "cap must be True or False")]
    else:
        wrong = [(1.0,), (1.0, -1.0), (1.0, math.nan), (1.0, math.inf), ("a", "b"), [[1.0, 1.0]]]
        bad += [("penalty", value, "penalty must be 2 finite numbers >= 0") for value in wrong]
    assert len(scales) >= 2
    for key, value, words in bad:
        with pytest.raises(ConfigError, match=words) as caught:
            module.init(SPEC, dataclasses.replace(make(module, 10), **{key: value}))
        assert key == "penalty" or name in str(caught.value)


def test_projections_above_their_tolerance_are_noticed():
    for module in LEARNERS:
        fine = play(PROBLEM, module.LEARNER, make(module, 60), episodes=60, seed=0)
        assert fine.notes == []
    config = make(uc_o_reps, 60, tolerance=1e-16)
    run = play(PROBLEM, uc_o_reps.LEARNER, config, episodes=60, seed=0)
    assert any("projections ended above their tolerance" in text for text in run.notes)


@pytest.mark.parametrize("module", LEARNERS)
def test_more_episodes_than_declared_need_doubling(module):
    with pytest.raises(ConfigError, match="set for T = 20 episodes"):
        play(PROBLEM, module.LEARNER, make(module, 20), episodes=21, seed=0)
    config = make(module, 20, doubling=True, **TUNED)
    run = play(PROBLEM, module.LEARNER, config, episodes=141, seed=0)
    assert (run.state.episodes, run.state.began) == (160, 140)
    assert run.guarantee is None
    assert run.state.counts.sum() == 141 * WORLD.num_layers  # the counters stay


@pytest.mark.parametrize("module", LEARNERS)
def test_a_restart_is_complete_before_the_next_episode_is_played(module):
    config = make(module, 20, doubling=True, **TUNED)
    fresh = module.init(SPEC, config)
    state = play(PROBLEM, module.LEARNER, config, episodes=20, seed=0).state
    assert (state.episodes, state.began) == (40, 20)
    np.testing.assert_array_equal(state.q_hat, fresh.q_hat)  # which episode 21 plays
    np.testing.assert_array_equal(state.multipliers, 0.0 * fresh.multipliers)
    np.testing.assert_array_equal(state.frozen, state.counts)
    np.testing.assert_array_equal(
        state.radii, l1_radius(state.counts, SPEC.layers, 40, 0.05, config.radius_scale)
    )
    assert getattr(state, "largest_loss", 0.0) == 0.0
    again = restore_state(module.LEARNER, SPEC, config, state_arrays(state))
    rng = np.random.default_rng(1)
    for _ in range(30):
        seen = episode(rng, module.policy(state).probabilities)
        state, _ = module.update(state, seen)
        again, _ = module.update(again, seen)
    np.testing.assert_array_equal(state.q_hat, again.q_hat)


@pytest.mark.parametrize("module", LEARNERS)
def test_the_preset_for_unknown_lengths(module):
    name = f"{module.LEARNER.name}@doubling"
    learner, config = make_config(name, SPEC, episodes=200, delta=0.05)
    run = play(PROBLEM, learner, config, episodes=200, seed=0)
    assert (run.state.episodes, run.state.began) == (256, 192)
    assert run.guarantee is None
    short = play(PROBLEM, learner, config, episodes=64, seed=0)  # T plays no part
    np.testing.assert_array_equal(run.curves["reward"][:64], short.curves["reward"])


def test_a_radius_that_is_too_small_is_noticed():
    good = play(PROBLEM, pdgd_ops.LEARNER, make(pdgd_ops, 400, **TUNED), episodes=400, seed=1)
    assert good.state.lost == 0
    tiny = make(pdgd_ops, 400, **{**TUNED, "radius_scale": 0.003})
    bad = play(PROBLEM, pdgd_ops.LEARNER, tiny, episodes=400, seed=1)
    assert bad.state.lost > 0
    assert any("radius_scale is too small" in text for text in bad.notes)


def test_multipliers_at_their_cap_are_noticed():
    tight = dataclasses.replace(
        PROBLEM,
        constraints=sequences.iid(np.abs(WORLD.model.costs), channel="constraints"),
    )
    assert margin(WORLD, np.abs(WORLD.model.costs)).value < 0
    config = make(pdgd_ops, 300, **{**TUNED, "dual_scale": 1e5})
    run = play(tight, pdgd_ops.LEARNER, config, episodes=300, seed=0)
    assert run.state.capped > 0
    assert run.largest_multipliers <= 2 * 300**0.25 + 1e-12
    assert any("at its cap" in text for text in run.notes)
    free = dataclasses.replace(config, cap=False)
    run = play(tight, pdgd_ops.LEARNER, free, episodes=300, seed=0)
    assert run.state.capped == 0
    assert run.largest_multipliers > 2 * 300**0.25


@pytest.mark.parametrize("module", [uc_o_gdps, uc_o_reps])
def test_unconstrained_learners_find_the_best_policy(module):
    """With a fixed, known world and the best multipliers as penalty they approach the optimum."""
    T = 1500
    fixed = dataclasses.replace(
        PROBLEM, rewards=sequences.iid(WORLD.model.rewards, channel="rewards")
    )
    config = make(module, T, primal_scale=0.2, step_scale=4.0, radius_scale=0.1)
    run = play(fixed, module.LEARNER, config, episodes=T, seed=0)
    best = hindsight_plan(
        dataclasses.replace(
            fixed, constraints=sequences.iid(-np.abs(WORLD.model.costs), channel="constraints")
        ),
        T,
        0,
    ).value
    reward = np.cumsum(run.curves["reward"])
    late = (reward[-1] - reward[-501]) / 500
    assert late > 0.98 * best
    uniform = reward[0]
    assert uniform < 0.9 * best


def test_huge_exact_counts_make_the_learner_play_optimally():
    """Counts as large as life: the confidence set is the true model, q_hat the true occupancy."""
    config = make(uc_o_gdps, 300, primal_scale=0.05, radius_scale=1e-6)
    state = uc_o_gdps.init(SPEC, config)
    dense = WORLD.model.dense()
    count = 10**9
    for x in range(WORLD.model.num_states - 1):
        first = WORLD.offsets[WORLD.layers[x] + 1]
        width = np.diff(WORLD.offsets)[WORLD.layers[x] + 1]
        state.triples[x, :, :width] = np.rint(count * dense[x][:, first : first + width])
    state.counts[:] = state.triples.sum(axis=2)
    rng = np.random.default_rng(0)
    for _ in range(300):
        seen = episode(rng, uc_o_gdps.policy(state).probabilities)
        seen.reward_tables = WORLD.model.rewards[None]
        state, _ = uc_o_gdps.update(state, seen)
    best = hindsight_plan(
        dataclasses.replace(
            PROBLEM, constraints=sequences.iid(-np.abs(WORLD.model.costs), channel="constraints")
        ),
        1,
        0,
    )
    assert (state.q_hat * WORLD.model.rewards).sum() == pytest.approx(best.value, abs=2e-3)
    assert isinstance(uc_o_gdps.policy(state), StochasticPolicy)
