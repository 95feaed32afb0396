"""UCRL2 and PSRL: optimism, sampling, learning, and what they refuse."""

import numpy as np
import pytest

from tightrope.errors import ConfigError
from tightrope.estimation.radii import jaksch_reward, jaksch_transition
from tightrope.learners import psrl, ucrl2
from tightrope.learners.protocol import Experience
from tightrope.types import Discounted


def test_radii_take_the_step_not_the_epoch():
    sizes = {"states": 6, "actions": 2, "delta": 0.05}
    np.testing.assert_allclose(jaksch_transition(40, time=81, **sizes), 4.293087, atol=1e-6)
    np.testing.assert_allclose(jaksch_transition(40, time=5, **sizes), 3.547122, atol=1e-6)
    assert jaksch_reward(0, time=9, **sizes) == jaksch_reward(1, time=9, **sizes)


def test_ucrl2_is_optimistic_and_learns(riverswim, stream):
    gain, _ = stream.optimal_gain(riverswim)
    np.testing.assert_allclose(gain, 0.4286224338, atol=1e-9)
    run = stream.play(riverswim, ucrl2.LEARNER, ucrl2.Config(), 30_000)
    assert all(info["gain_upper"] >= gain for info in run.infos)
    tuned = ucrl2.Config(reward_radius_scale=0.1, transition_radius_scale=0.1)
    run = stream.play(riverswim, ucrl2.LEARNER, tuned, 100_000)
    assert run.means[-20_000:].mean() >= 0.95 * gain
    np.testing.assert_allclose(run.infos[-1]["gain_upper"], gain, atol=0.05)


def test_ucrl2_epochs_end_when_a_count_doubles(riverswim, stream):
    state = ucrl2.init(riverswim.spec(), ucrl2.Config())
    stop = ucrl2.horizon(state)
    assert stop.kind == "visit-doubling"
    run = stream.play(riverswim, ucrl2.LEARNER, ucrl2.Config(), 20_000)
    # Jaksch et al., Proposition 18: at most S A log2(8 T / (S A)) epochs
    assert len(run.infos) <= 12 * np.log2(8 * 20_000 / 12)
    np.testing.assert_array_equal(run.state.visits.sum(), 20_000)
    np.testing.assert_array_equal(run.state.moves.sum(axis=2), run.state.visits)


def test_an_iteration_that_ends_at_its_limit_has_converged(riverswim):
    """What counts is the span of the last step, not how many steps there were."""

    def planned(limit):
        state = ucrl2.init(riverswim.spec(), ucrl2.Config(max_iterations=limit))
        state.time, state.visits[:] = 10**6, 1e6
        state.moves[:] = 1e6 * riverswim.dense()
        state.reward_sums[:] = 1e6 * riverswim.rewards
        return ucrl2._plan(state), state

    needed = planned(10**6)[1].iterations
    assert needed > 2
    for limit in (needed, needed - 1):
        converged, state = planned(limit)
        assert (converged, state.unfinished, state.iterations) == (
            limit == needed,
            limit < needed,
            limit,
        )


@pytest.mark.parametrize("learner", [ucrl2, psrl])
def test_affine_rewards_give_the_same_play(learner, riverswim, stream):
    """Rewards in [0, 4] are an explicit map of [0, 1]: play does not change."""
    moved = riverswim.replace(rewards=riverswim.rewards * 4.0)
    config = learner.theory(riverswim.spec(), 5000)
    one = stream.play(riverswim, learner.LEARNER, config, 5000)
    other = stream.play(moved, learner.LEARNER, config, 5000)
    np.testing.assert_allclose(4.0 * one.means, other.means, atol=1e-12)


@pytest.mark.parametrize("schedule", ["tsde", "doubling"])
def test_psrl_learns(schedule, riverswim, stream):
    gain, _ = stream.optimal_gain(riverswim)
    for seed in range(3):
        config = psrl.Config(schedule=schedule, seed=seed)
        run = stream.play(riverswim, psrl.LEARNER, config, 50_000, seed=seed)
        assert run.means[-10_000:].mean() >= 0.93 * gain
    np.testing.assert_allclose(run.infos[-1]["sampled_gain"], gain, atol=0.05)


def test_tsde_epochs_grow_by_one_at_most(riverswim, stream):
    state = psrl.init(riverswim.spec(), psrl.Config())
    assert psrl.horizon(state).number == 1
    seen = Experience(
        first=1,
        states=np.zeros(8, np.int32),
        actions=np.zeros(7, np.int32),
        rewards=np.zeros(7),
        costs=np.zeros((7, 0)),
    )
    state, _ = psrl.update(state, seen)
    assert psrl.horizon(state).number == 8


def test_sampling_at_huge_counts_is_the_truth(riverswim):
    """Posterior and confidence set shrink to the model, and the plan to its optimal policy."""
    for learner in (ucrl2, psrl):
        state = learner.init(riverswim.spec(), learner.Config())
        state.visits[:] = 1e12
        state.moves[:] = 1e12 * riverswim.dense()
        state.reward_sums[:] = 1e12 * riverswim.rewards
        if learner is ucrl2:
            state.time = 10**9
        learner._plan(state)
        np.testing.assert_array_equal(state.actions, 1)


def test_what_they_refuse(riverswim):
    for learner in (ucrl2, psrl):
        with pytest.raises(ConfigError, match="Average"):
            learner.check(riverswim.replace(criterion=Discounted(0.9)).spec(), learner.Config())
        costly = riverswim.replace(
            costs=[np.ones((6, 2))], capacities=[1.0], senses=["<="], cost_names=["fuel"]
        )
        with pytest.raises(ConfigError, match="m = 1"):
            learner.check(costly.spec(), learner.Config())
    with pytest.raises(ConfigError, match="delta"):
        ucrl2.check(riverswim.spec(), ucrl2.Config(delta=0.0))
    with pytest.raises(ConfigError, match="schedule"):
        psrl.check(riverswim.spec(), psrl.Config(schedule="never"))


def test_running_out_of_iterations_is_said(riverswim, stream):
    run = stream.play(riverswim, ucrl2.LEARNER, ucrl2.Config(max_iterations=2), 3000)
    assert {info["converged"] for info in run.infos} == {0.0, 1.0}
    run = stream.play(riverswim, psrl.LEARNER, psrl.Config(max_iterations=2), 500)
    assert max(info["residual"] for info in run.infos) > psrl.Config().tolerance
