"""ConRL against its paper: the bonus, the plan, the figures it must reach, odd sizes."""

import numpy as np
import pytest

import tightrope as tr
from tightrope.errors import ConfigError
from tightrope.estimation.counts import add_episodes, empty_counts
from tightrope.estimation.radii import conrl_bonus
from tightrope.learners import conrl
from tightrope.learners.registry import make_config
from tightrope.metrics import window_mean

BONUSES = [(1, 1, 158.86720), (100, 10, 64.66638), (1000, 250, 14.15722)]


@pytest.mark.parametrize(("episode", "visits", "expected"), BONUSES)
def test_bonus_of_equation_9(episode, visits, expected):
    size = {"num_states": 64, "num_actions": 4, "horizon": 30, "num_costs": 1, "delta": 0.1}
    assert conrl_bonus(visits, episode, **size) == pytest.approx(expected, abs=1e-5)
    # the learner's own table, at theory scale
    spec = tr.problems.mars_rover().spec()
    counts = empty_counts(spec)
    counts.visits[5, 2] = visits
    model = conrl.optimistic_model(spec, conrl.theory(spec, 1000, 0.1), counts, episode)
    assert model.rewards[0, 5, 2] == pytest.approx(expected, abs=1e-5)
    assert model.costs[0, 0, 5, 2] == pytest.approx(-expected, abs=1e-5)


def test_counts_are_the_empirical_model():
    """Against a plain loop over the same trajectories, through several widenings of the rows."""
    rng = np.random.default_rng(1)
    model = tr.problems.random_cmdp(30, 2, horizon=9, num_costs=2, successors=25, seed=2)
    spec = model.spec()
    counts = empty_counts(spec)
    N = np.zeros((30, 2, 30))
    rewards, costs = np.zeros((30, 2)), np.zeros((2, 30, 2))
    for _ in range(40):
        s, a = rng.integers(0, 30, (3, 10)).astype(np.int32), rng.integers(0, 2, (3, 9))
        r, c = rng.random((3, 9)), rng.random((3, 9, 2))
        add_episodes(counts, s, a.astype(np.int32), r, c)
        for e, h in np.ndindex(3, 9):
            N[s[e, h], a[e, h], s[e, h + 1]] += 1
            rewards[s[e, h], a[e, h]] += r[e, h]
            costs[:, s[e, h], a[e, h]] += c[e, h]
    assert (counts.visits == N.sum(axis=2)).all()
    assert counts.reward_sums == pytest.approx(rewards)
    assert counts.cost_sums == pytest.approx(costs)
    for s, a in np.ndindex(30, 2):
        row = 2 * s + a
        dense = np.zeros(30)
        dense[counts.successors[counts.start[row] : counts.stop[row]]] = counts.p_hat[
            counts.start[row] : counts.stop[row]
        ]
        seen = N[s, a].sum()
        expected = N[s, a] / seen if seen else np.eye(30)[s]
        assert dense == pytest.approx(expected)


@pytest.mark.parametrize("feedback", ["sampled", "mean"])
@pytest.mark.parametrize("preset", ["paper-experiments", "tuned"])
def test_mars_rover_in_a_thousand_episodes(preset, feedback):
    """Over the last 100 of 1,000 episodes: reward >= 1.51 and cost <= 0.33, means of seeds."""
    rewards, costs = [], []
    for seed in range(4):
        result = tr.run(
            "mars-rover", f"conrl@{preset}", episodes=1000, seed=seed, feedback=feedback
        )
        rewards.append(result.optimum.value - window_mean(result.columns, "regret", 901, 1000))
        costs.append(0.3 + window_mean(result.columns, "violation_0", 901, 1000))
        assert result.diagnostics["replans"][-1] == 1001
        assert result.diagnostics["infeasible_plans"][-1] == 0
        assert result.guarantee is None
    assert np.mean(rewards) >= 1.51
    assert np.mean(costs) <= 0.33


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["paper-experiments", "tuned"])
@pytest.mark.parametrize("feedback", ["sampled", "mean"])
def test_ten_seeds(preset, feedback):
    """Ten seeds at 1,000 and at 5,000 episodes (within 0.5% of the optimum, cost <= 0.31)."""
    early, late = [], []
    for seed in range(10):
        c = tr.run(
            "mars-rover", f"conrl@{preset}", episodes=5000, seed=seed, feedback=feedback
        ).columns
        for rows, last in ((early, 1000), (late, 5000)):
            rows.append([
                1.53628844 - window_mean(c, "regret", last - 99, last),
                0.3 + window_mean(c, "violation_0", last - 99, last),
            ])  # fmt: skip
    early, late = np.mean(early, axis=0), np.mean(late, axis=0)
    assert early[0] >= 1.51
    assert early[1] <= 0.33
    assert late[0] >= 0.995 * 1.53628844
    assert late[1] <= 0.31


@pytest.mark.slow
def test_box_in_fifteen_hundred_episodes():
    rows = []
    for seed in range(10):
        c = tr.run("box", "conrl@paper-experiments", episodes=1500, seed=seed).columns
        rows.append([
            1.74967662 - window_mean(c, "regret", 1401, 1500),
            0.1 + window_mean(c, "violation_0", 1401, 1500),
        ])  # fmt: skip
    reward, cost = np.mean(rows, axis=0)
    assert reward >= 1.73
    assert cost <= 0.11


def test_theory_is_labelled_with_its_theorem():
    result = tr.run("mars-rover", "conrl@theory", episodes=3)
    assert result.guarantee == "[CON, Theorem 3.4]"
    assert result.preset == "theory"
    clipped = tr.run("mars-rover", "conrl@theory", episodes=3, stage_clip=True)
    # the first optimistic value is far above H without the stage clip, and at most the sum with it
    assert result.diagnostics["optimistic_value"][0] > 30
    assert clipped.diagnostics["optimistic_value"][0] <= 30 * 31 / 2 + 1e-9
    # optimistic values in the thousands: the gap is relative, as everywhere
    assert result.diagnostics["planning_gap"].min() >= 0
    assert result.diagnostics["planning_gap"].max() <= 1e-8
    assert conrl.relative_gap(200.0, 201.0) == 0.005
    assert conrl.relative_gap(0.0, -1e-12) == 0.0


@pytest.mark.parametrize("horizon", [1, 3])
def test_the_stage_clip_keeps_floors_optimistic(horizon):
    """Nothing is known, so no floor may look out of reach; its cost is clipped at H - h + 1."""
    model = tr.FiniteMDP(
        transitions=np.ones((1, 2, 1)), rewards=[[1.0, 0.0]], costs={"use": [[0.0, 1.0]]},
        capacities={"use": 0.5 * horizon}, senses={"use": ">="}, criterion=tr.Episodic(horizon),
    )  # fmt: skip
    result = tr.run(model, "conrl@theory", episodes=20, stage_clip=True)
    assert result.diagnostics["infeasible_plans"][-1] == 0
    spec = model.spec()
    config = conrl.Config(stage_clip=True)
    costs = conrl.optimistic_model(spec, config, empty_counts(spec), 1).costs
    assert costs[0, :, 0, 0] == pytest.approx(-np.arange(horizon, 0, -1.0))
    ceiling = model.replace(senses={"use": "<="}).spec()
    costs = conrl.optimistic_model(ceiling, config, empty_counts(ceiling), 1).costs
    assert costs[0, :, 0, 0] == pytest.approx(-np.arange(horizon - 1, -1, -1.0))


@pytest.mark.parametrize("name", ["bonus_scale", "unvisited_bonus", "delta"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, "1", True])
def test_constants_that_are_no_numbers(name, value):
    with pytest.raises(ConfigError, match=name):
        conrl.Config(**{name: value})


def test_huge_exact_counts_make_it_play_optimally():
    """Fed with 1e9 visits a pair in the exact proportions, the plan is the true optimum."""
    model = tr.problems.mars_rover()
    spec = model.spec(feedback="mean")
    _, config = make_config("conrl", spec, episodes=10, delta=0.1)
    state = conrl.init(spec, config)
    counts, n = state.counts, 10**9
    counts.visits[:] = n
    for row in range(256):
        low, high = model.indptr[row], model.indptr[row + 1]
        size = high - low
        counts.stop[row] = counts.start[row] + size
        counts.successors[counts.start[row] : counts.stop[row]] = model.indices[low:high]
        counts.p_hat[counts.start[row] : counts.stop[row]] = model.data[low:high]
    counts.reward_sums[:] = model.rewards * n
    counts.cost_sums[:] = model.costs * n
    conrl._plan(state)
    value, costs = tr.evaluate(model, conrl.policy(state))
    assert value == pytest.approx(1.53628844, abs=1e-5)
    assert costs[0] == pytest.approx(0.3, abs=1e-5)


@pytest.mark.parametrize("num_costs", [0, 1, 2, 3])
def test_any_number_of_constraints(num_costs):
    model = tr.problems.random_cmdp(12, 3, horizon=6, num_costs=num_costs, seed=num_costs)
    result = tr.run(model, "conrl", episodes=400, seed=1)
    late = result.columns["regret"][-1] - result.columns["regret"][-101]
    uniform = tr.run(model, "uniform", episodes=101, seed=1).columns["regret"][-1]
    assert late < 0.5 * uniform
    for i in range(num_costs):
        rise = result.columns[f"violation_{i}"][-1] - result.columns[f"violation_{i}"][-101]
        assert rise / 100 < 0.1 * model.capacities[i]


def test_floors():
    """Mars rover with the constraint written as a floor on minus the cost is out of range; on the
    complement it is the same problem."""
    model = tr.problems.mars_rover()
    negative = model.replace(costs=-model.costs, capacities=[-0.3], senses=[">="])
    with pytest.raises(ConfigError, match=r"costs 'cost' in \[0, 1\], got \[-0.95, 0\]"):
        tr.run(negative, "conrl", episodes=1)
    kept = model.replace(costs=1.0 - model.costs, capacities=[30 - 0.3], senses=[">="])
    result = tr.run(kept, "conrl", episodes=800, seed=2, feedback="mean")
    assert window_mean(result.columns, "violation_0", 701, 800) < 0.03


def test_rewards_out_of_range_and_staged_models_are_refused():
    model = tr.problems.mars_rover()
    with pytest.raises(ConfigError, match="rescale"):
        tr.run(model.replace(rewards=2 * model.rewards), "conrl", episodes=1)
    staged = model.replace(rewards=np.tile(model.rewards, (30, 1, 1)))
    with pytest.raises(ConfigError, match="differ by step"):
        tr.run(staged, "conrl", episodes=1)


def test_infeasible_optimistic_models_are_counted():
    """Without a bonus, unlucky draws make the estimate infeasible: it goes on, and says so."""
    model = tr.FiniteMDP(
        transitions=[[[1.0]]],
        rewards=[[0.5]],
        costs=[[[0.8]]],
        capacities=[1.61],
        criterion=tr.Episodic(2),
    )
    changes = {"bonus_scale": 0.0, "unvisited_bonus": 0.0}
    result = tr.run(model, "conrl", episodes=50, seed=1, feedback="bernoulli", **changes)
    counted = result.diagnostics["infeasible_plans"]
    assert 0 < counted[-1] <= result.diagnostics["replans"][-1]
    assert result.columns["reward"] == pytest.approx(np.ones(50))


def test_config_is_checked():
    for bad in ({"delta": 0.0}, {"bonus": "ucb"}, {"bonus_scale": -1.0}):
        with pytest.raises(ConfigError):
            conrl.Config(**bad)
    with pytest.raises(ConfigError, match="of conrl 'bonus_scal'; did you mean 'bonus_scale'"):
        tr.run("mars-rover", "conrl", episodes=1, bonus_scal=1.0)
