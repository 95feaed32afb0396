"""RCPO and ApproPO: projections, multipliers, and that they learn from what they see."""

import numpy as np
import pytest
from scipy.optimize import minimize

import tightrope as tr
from tightrope.errors import ConfigError
from tightrope.learners.appropo import project_polar
from tightrope.learners.protocol import Experience
from tightrope.learners.registry import make_config
from tightrope.simulation import runner
from tightrope.simulation.runner import run


@pytest.mark.parametrize("seed", range(20))
def test_polar_projection(seed):
    """Against a general solver: x minus its nearest point of the cone over C x {kappa}."""
    rng = np.random.default_rng(seed)
    m = 1 + seed % 3
    capacities, floor, kappa = rng.random(m), 0.5 + rng.random(), 1.0 + rng.random()
    x = rng.normal(size=m + 2)

    def point(v):  # a, excess of the reward over the floor, shares of the capacities
        a = v[0]
        return np.concatenate([[a * floor + v[1]], a * v[2:] * capacities, [a * kappa]])

    best = min(
        (
            minimize(
                lambda v: ((x - point(v)) ** 2).sum(), np.full(m + 2, start),
                bounds=[(0, None), (0, None), *[(0, 1)] * m], tol=1e-14,
            )
            for start in (0.1, 1.0)
        ),
        key=lambda answer: answer.fun,
    )  # fmt: skip
    polar = x - point(best.x)
    expected = polar / max(1.0, np.linalg.norm(polar))
    assert project_polar(x, capacities, floor, kappa) == pytest.approx(expected, abs=1e-4)
    # the defining property: no point of the cone has a positive product with it
    found = project_polar(x, capacities, floor, kappa)
    corners = [np.concatenate([[floor + 3 * (i % 2)], capacities * rng.integers(0, 2, m), [kappa]])
               for i in range(20)]  # fmt: skip
    assert max(found @ corner for corner in corners) <= 1e-9


@pytest.mark.parametrize("m", [1, 2, 3])
@pytest.mark.parametrize("name", ["rcpo", "appropo"])
def test_they_learn_and_take_several_constraints(name, m):
    """Capacities of 0.8 times the uniform policy's costs: half of its excess is gone, or more."""
    base = tr.problems.random_cmdp(6, 3, horizon=5, num_costs=m, seed=2)
    uniform = run(base, "uniform", episodes=1).columns
    before = np.array([uniform[f"cost_{i}"][-1] for i in range(m)])
    model = base.replace(capacities=0.8 * before)
    optimum = tr.plan(model).value
    changes = {} if name == "rcpo" else {"reward_floor": 0.8 * optimum}
    result = run(model, name, episodes=2_000, seed=0, **changes)
    late = np.array([result.columns[f"cost_{i}"][-200:].mean() for i in range(m)])
    assert (late - 0.8 * before < 0.5 * 0.2 * before).all()
    assert result.columns["reward"][-200:].mean() > 0.75 * optimum
    if name == "appropo":  # its answer is nearer to the target than what it plays at the end
        info = result.diagnostics
        assert info["mixture_reward"][-1] > 0.8 * optimum - 0.02
        for i in range(m):
            assert info[f"mixture_cost_{i}"][-1] < 0.8 * before[i] + 0.02


def test_multipliers_follow_the_sampled_excess():
    """One episode: lambda = step * max(0, sampled cost - capacity)."""
    model = tr.problems.mars_rover()
    result = run(model, "rcpo", episodes=30, seed=4, multiplier_step=0.5, multiplier_bound=0.4)
    sampled = np.diff(result.columns["sampled_cost_0"], prepend=0.0)
    expected = 0.0
    for k, cost in enumerate(sampled):
        expected = min(max(0.0, expected + 0.5 * (cost - 0.3)), 0.4)
        assert result.diagnostics["multiplier_0"][k] == pytest.approx(expected)


def test_refusals():
    with pytest.raises(ConfigError, match="cannot be reached"):
        run("mars-rover", "appropo", episodes=5, reward_floor=31.0)
    with pytest.raises(ConfigError, match="entropy"):
        run("mars-rover", "rcpo", episodes=5, entropy=-1.0)
    floor = tr.problems.random_cmdp(4, 2, horizon=3, num_costs=1, seed=0)
    floor = floor.replace(senses=[">="], capacities=[0.5])
    with pytest.raises(ConfigError, match="put 1 - c with capacity H - x"):
        run(floor, "appropo", episodes=5)
    run(
        floor.replace(costs=1 - floor.costs, capacities=[2.5], senses=["<="]), "appropo", episodes=5
    )


WRONG = [
    *[("appropo", name, value) for name in ("round_episodes", "estimate_episodes", "patience")
      for value in (2.5, np.nan, np.inf, 0, "a", None)],
    *[("appropo", name, "a") for name in ("kappa", "step", "momentum", "reward_floor", "entropy")],
    ("appropo", "momentum", 1.0),
    *[("rcpo", name, "a") for name in ("actor_step", "critic_step", "multiplier_step")],
    *[("rcpo", "multiplier_bound", value) for value in ("a", 0.0, np.nan)],
]  # fmt: skip


@pytest.mark.parametrize(("learner", "name", "value"), WRONG)
def test_wrong_settings_are_named(small, learner, name, value):
    with pytest.raises(ConfigError, match=name):
        make_config(learner, small.spec(), episodes=9, delta=0.1, **{name: value})


def test_appropo_reports_the_same_however_a_run_is_cut(small):
    """Round of 3 + 4 trajectories, cut within training and within the estimate."""
    settings = {"episodes": 20, "seed": 1, "round_episodes": 3, "estimate_episodes": 4}
    sessions = [runner.start(small, "appropo", **settings) for _ in range(2)]
    for cut in (2, 5, 13):
        runner.advance(sessions[0], cut)
    whole, cut = ([runner.advance(x), runner.finish(x).diagnostics][1] for x in sessions)
    assert whole.keys() == cut.keys()
    for name in whole:
        np.testing.assert_array_equal(whole[name], cut[name])


def test_no_weight_is_zero_and_not_minus_zero(small):
    learner, state = appropo_state(small, round_episodes=9)
    state.weights = np.zeros(3)
    _, info = learner.update(state, trajectories(1, 0.0, 0.0))
    assert str(info["reward_weight"]) == "0.0"


def test_privileged_costs_are_the_exact_ones():
    """The multiplier follows the exact excess, not what was sampled."""
    model = tr.problems.random_cmdp(6, 2, horizon=4, num_costs=2, seed=1)
    own = {"multiplier_step": 0.5, "actor_step": 0.01}
    given = run(model, "rcpo@privileged-costs", episodes=40, seed=2, **own)
    sampled = run(model, "rcpo", episodes=40, seed=2, **own)
    for i in range(2):
        exact, moved = given.columns[f"cost_{i}"] - model.capacities[i], 0.0
        for k in range(40):
            moved = max(0.0, moved + 0.5 * exact[k])
            assert given.diagnostics[f"multiplier_{i}"][k] == pytest.approx(moved)
    assert (given.diagnostics["multiplier_0"] != sampled.diagnostics["multiplier_0"]).any()
    assert given.guarantee is None
    assert given.config["privileged_costs"]


def appropo_state(model, preset="tuned", **changes):
    spec = model.spec()
    learner, config = make_config(
        f"appropo@{preset}", spec, episodes=900, delta=0.1, reward_floor=1.0, **changes
    )
    return learner, learner.init(spec, config)


def trajectories(n, reward, cost, exact=None):
    """n trajectories of 4 steps that pay and cost this much in all."""
    shape = (n, 4)
    return Experience(
        first=1, states=np.zeros((n, 5), np.int32), actions=np.zeros(shape, np.int32),
        rewards=np.full(shape, reward / 4), costs=np.full((*shape, 1), cost / 4),
        exact=None if exact is None else np.array(exact),
    )  # fmt: skip


@pytest.fixture
def small():
    return tr.problems.random_cmdp(6, 2, horizon=4, num_costs=1, seed=1)


def test_appropo_estimates_the_finished_policy(small):
    """Training trajectories are not in the estimate; those of the estimate train nothing."""
    learner, state = appropo_state(small, round_episodes=3, estimate_episodes=2, patience=9)
    for _ in range(3):
        assert learner.horizon(state).number == 1
        state, _ = learner.update(state, trajectories(1, 0.0, 4.0))
    assert learner.horizon(state).number == 1
    logits, weights = state.tables.logits.copy(), state.weights.copy()
    state, _ = learner.update(state, trajectories(1, 3.0, 0.5))
    assert (state.tables.logits == logits).all()
    assert learner.horizon(state).number == 1
    state, info = learner.update(state, trajectories(1, 2.0, 0.25))
    assert (info["mixture_reward"], info["mixture_cost"][0]) == pytest.approx((2.5, 0.375))
    lifted = np.array([2.5, 0.375, 20.0])
    wanted = project_polar(weights + lifted, small.capacities, 1.0, 20.0)  # step 1 / sqrt(1)
    assert state.weights == pytest.approx(wanted)
    assert state.trained == 0


def test_appropo_waits_for_a_positive_response(small):
    """lambda stays while lambda @ (z, kappa) > 0, at most `patience` rounds."""
    learner, state = appropo_state(small, round_episodes=1, estimate_episodes=1, patience=3)
    weights = state.weights.copy()
    bad = trajectories(1, 0.0, 4.0)  # no reward: lambda asks for some
    assert weights @ [0.0, 4.0, 20.0] > 0
    for attempt in (1, 2):
        for _ in range(2):
            state, info = learner.update(state, bad)
        assert (state.weights == weights).all()
        assert (info["attempts"], info["round"]) == (attempt, 1)
        assert np.isnan(info["mixture_reward"])
    for _ in range(2):
        state, info = learner.update(state, bad)
    assert (state.weights != weights).any()
    assert (info["attempts"], info["round"], info["mixture_reward"]) == (0, 2, 0.0)


def test_appropo_with_published_constants(small):
    """Its start, oracle weights of length 1, and velocity = .9 v + .1 step / sqrt(t) (z, kappa)."""
    learner, state = appropo_state(
        small, "paper-experiments", round_episodes=1, step=0.4, kappa=2.0
    )
    start = project_polar(np.array([0.0, 0.0, 2.0]), small.capacities, 1.0, 2.0)
    start /= np.linalg.norm(start)
    assert state.weights == pytest.approx(start)
    weights, velocity = start, np.zeros(3)
    state, _ = learner.update(state, trajectories(1, 0.0, 0.0, [0.0, 0.0]))  # trains only
    for t in range(1, 5):
        z = np.array([2.0 + 0.1 * t, 0.1])
        state, _ = learner.update(state, trajectories(1, 0.0, 0.0, z))
        lifted = np.append(z, 2.0)
        assert weights @ lifted <= 0
        velocity = 0.9 * velocity + 0.1 * 0.4 / np.sqrt(t) * lifted
        weights = project_polar(weights + velocity, small.capacities, 1.0, 2.0)
        assert state.weights == pytest.approx(weights)
    # the oracle's first step from zero tables: Adam's is the step's size whatever the weights, but
    # the critic's gradient is the return within [-1, 1], and this one has length 1
    learner, state = appropo_state(small, "paper-experiments", round_episodes=5)
    state.weights = np.array([-0.3, 0.4, 0.1])
    state, _ = learner.update(state, trajectories(1, 0.4, 0.0, [0.4, 0.0]))
    gradient = state.tables.moments[0, 0, -1] / -0.1
    assert gradient == pytest.approx(sum(0.6 * 0.1 * n for n in range(1, 5)))


def test_theory_of_appropo(small):
    """1 / (B sqrt(T)), constant, and the lift at which distances at most double."""
    spec = small.spec()
    config = make_config("appropo@theory", spec, episodes=900, delta=0.1)[1]
    reward, cost = 4 * spec.reward_range[1], 4 * spec.cost_ranges[0, 1]
    corner = np.hypot(reward, min(cost, spec.capacities[0]))
    assert config.kappa == pytest.approx(corner / np.sqrt(2))
    largest = np.sqrt(reward**2 + cost**2 + config.kappa**2)
    assert config.step == pytest.approx(1 / (largest * np.sqrt(30)))
    assert not config.decay
    with pytest.raises(ConfigError, match="kappa to be a finite number > 0"):
        make_config("appropo@theory", spec, episodes=900, delta=0.1, kappa=np.inf)


def test_appropo_with_privileged_costs_measures_its_policies(small):
    """The finished policy's exact values come with the first trajectory of the next round."""
    learner, state = appropo_state(small, "privileged-costs", round_episodes=3)
    for _ in range(3):
        state, info = learner.update(state, trajectories(1, 4.0, 4.0, [0.2, 0.9]))
    assert np.isnan(info["mixture_reward"])
    state, info = learner.update(state, trajectories(1, 4.0, 4.0, [1.25, 0.5]))
    assert (info["mixture_reward"], info["mixture_cost"][0]) == (1.25, 0.5)
    assert state.trained == 1
    with pytest.raises(ConfigError, match="needs a model"):
        learner.update(state, trajectories(1, 4.0, 4.0))
