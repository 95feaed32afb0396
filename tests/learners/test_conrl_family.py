"""conrl-lagrangian, conrl-convex and conrl-knapsack against their planners and their promises."""

import dataclasses
import importlib.util

import numpy as np
import pytest

import tightrope as tr
from tightrope.errors import ConfigError, PlanError
from tightrope.learners import conrl, conrl_convex, conrl_knapsack, conrl_lagrangian
from tightrope.learners.protocol import Experience, restore_state, state_arrays
from tightrope.learners.registry import make_config
from tightrope.model.policy import DeterministicPolicy, MixturePolicy, check_policy
from tightrope.simulation.runner import run

TUNED = {"bonus_scale": 3e-6, "unvisited_bonus": 1.0}


def huge_counts(state, model, visits=10**7):
    """Replace a state's data by the true model with many visits."""
    spec = state.spec
    dense = model.dense()
    S, A = spec.num_states, spec.num_actions
    counts = state.counts
    rows = [np.flatnonzero(dense[s, a]) for s in range(S) for a in range(A)]
    slots = max(len(row) for row in rows)
    counts.start = np.arange(S * A, dtype=np.int64) * slots
    counts.stop = counts.start + np.array([len(row) for row in rows])
    counts.successors = np.zeros(S * A * slots, dtype=np.int32)
    counts.tallies, counts.p_hat = np.zeros(S * A * slots, dtype=np.int64), np.zeros(S * A * slots)
    for row, (first, found) in enumerate(zip(counts.start, rows)):
        counts.successors[first : first + len(found)] = found
        counts.p_hat[first : first + len(found)] = dense[row // A, row % A, found]
    counts.visits[:] = visits
    counts.reward_sums[:] = model.rewards * visits
    counts.cost_sums[:] = model.costs * visits


FAMILY = [
    (conrl_lagrangian, "conrl-lagrangian", {"iterations": 400, "step": 0.05}),
    (conrl_convex, "conrl-convex", {"within": True}),
]


@pytest.mark.parametrize("m", [0, 1, 2, 3])
@pytest.mark.parametrize(("module", "name", "changes"), FAMILY)
def test_with_exact_counts_the_plan_is_optimal(module, name, changes, m):
    model = tr.problems.random_cmdp(8, 3, horizon=5, num_costs=m, successors=4, seed=7)
    spec = model.spec()
    config = module.Config(**{**TUNED, **changes})
    state = module.init(spec, config)
    huge_counts(state, model)
    module._plan(state)
    policy = module.policy(state)
    check_policy(policy, model.available, model.horizon)
    value, costs = tr.evaluate(model, policy)
    optimum = tr.plan(model).value
    loose = 0.06 if name == "conrl-lagrangian" else 1e-4
    assert (costs <= model.capacities + loose).all()
    assert value >= optimum - loose


def test_convex_with_linear_functions_is_conrl():
    """Same data, same optimistic optimum, every episode."""
    model = tr.problems.random_cmdp(8, 3, horizon=5, num_costs=2, successors=4, seed=3)
    spec = model.spec()
    basic = conrl.init(spec, conrl.Config(**TUNED))
    convex = conrl_convex.init(spec, conrl_convex.Config(**TUNED))
    rng, feasible = np.random.default_rng(0), 0
    for first in range(1, 21):
        seen = Experience(
            first=first,
            states=rng.integers(0, 8, (1, 6)).astype(np.int32),
            actions=rng.integers(0, 3, (1, 5)).astype(np.int32),
            rewards=rng.random((1, 5)),
            costs=0.8 * rng.random((1, 5, 2)),
        )
        before = basic.infeasible_plans
        basic, _ = conrl.update(basic, seen)
        convex, _ = conrl_convex.update(convex, seen)
        assert convex.infeasible_plans == basic.infeasible_plans
        if basic.infeasible_plans == before:
            assert convex.value == pytest.approx(basic.value, rel=1e-5, abs=1e-5)
            feasible += 1
    assert feasible > 5


def never_kept(u):
    return 0.5 + float(u[0]), np.ones(1)


def test_convex_learner_on_a_concave_problem():
    result = run("mars-rover", "conrl-convex", episodes=120, seed=1, objective="log",
                 constraint="norm")  # fmt: skip
    assert result.guarantee is None
    assert result.columns["reward"][100:].mean() > 0.8
    with pytest.raises(PlanError, match=r"least that the largest g can be is 0\.5.* at cost 4"):
        run("mars-rover", "conrl-convex", episodes=1, constraint=f"{__name__}:never_kept")
    with pytest.raises(ConfigError, match="did you mean 'log'"):
        run("mars-rover", "conrl-convex", episodes=1, objective="lag")


def test_lagrangian_info_measures_its_suboptimality():
    model = tr.problems.random_cmdp(8, 3, horizon=5, num_costs=2, successors=4, seed=7)
    result = run(model, "conrl-lagrangian", episodes=200, seed=0, compare_every=50, carry=False)
    gaps = result.diagnostics["suboptimality"]
    assert len(set(gaps[100:149])) == 1  # of episode 101
    assert len(set(gaps)) > 1
    # N = 10 responses from multipliers 0: too much reward, at too much cost
    assert gaps[-1] < 0 < result.diagnostics["optimistic_excess"][-1]


def test_authors_variant_plays_one_policy():
    spec = tr.problems.mars_rover().spec()
    learner, config = make_config(
        "conrl-lagrangian@paper-experiments", spec, episodes=10, delta=0.1
    )
    state = learner.init(spec, config)
    assert isinstance(learner.policy(state), DeterministicPolicy)
    mixed = learner.init(spec, dataclasses.replace(config, play="mixture"))
    assert isinstance(learner.policy(mixed), MixturePolicy)


@pytest.mark.parametrize("module", [conrl_lagrangian, conrl_convex])
def test_state_survives_saving(module):
    model = tr.problems.random_cmdp(6, 2, horizon=4, num_costs=1, seed=0)
    config = module.Config(**TUNED)
    state = module.init(model.spec(), config)
    again = restore_state(module.LEARNER, model.spec(), config, state_arrays(state))
    assert again.actions.tolist() == state.actions.tolist()


def test_a2c_without_the_extra_says_which_extra():
    if importlib.util.find_spec("stable_baselines3"):
        pytest.skip("the extra is here")
    model = tr.problems.random_cmdp(5, 2, horizon=4, seed=0)
    with pytest.raises(ImportError, match=r"tightrope\[deep\]"):
        run(model, "conrl-lagrangian", episodes=2, planner="a2c")


def test_a2c_responds_better_than_chance():
    pytest.importorskip("stable_baselines3")
    from tightrope.model.policy import StochasticPolicy, uniform_policy
    from tightrope.planning.a2c import a2c_response

    model = tr.problems.random_cmdp(5, 2, horizon=5, num_costs=0, seed=0)
    found = tr.evaluate(model, StochasticPolicy(a2c_response(model, episodes=400, seed=1))).value
    chance = tr.evaluate(model, uniform_policy(model.available)).value
    assert found > chance + 0.2 * (tr.plan(model).value - chance)
    result = run(tr.problems.random_cmdp(5, 2, horizon=4, num_costs=2, seed=0), "conrl-lagrangian",
                 episodes=2, planner="a2c", iterations=2, fictitious_episodes=8)  # fmt: skip
    assert np.isfinite(result.diagnostics["suboptimality"]).all()


# ------------------------------------------------------------------------------------ knapsack


def small_knapsack(seed, m, anywhere):
    rng = np.random.default_rng(seed)
    base = tr.problems.random_cmdp(3, 2, horizon=3, num_costs=m, successors=2, seed=seed)
    model = tr.problems.with_null_action(base, anywhere=anywhere)
    return model, rng


def play_adversarially(state, model, rng, episodes):
    """Costs are drawn by an adversary: mostly the largest allowed, whatever the model says."""
    spec, null = model.spec(), model.num_actions - 1
    largest = spec.cost_ranges[:, 1]
    total = np.zeros(spec.num_costs)
    history = [total.copy()]
    for first in range(1, episodes + 1):
        policy = conrl_knapsack.policy(state)
        check_policy(policy, model.available, model.horizon)
        part = policy
        if isinstance(policy, MixturePolicy):
            part = policy.components[rng.choice(len(policy.weights), p=policy.weights)]
        H = model.horizon
        states, actions = np.empty((1, H + 1), np.int32), np.empty((1, H), np.int32)
        costs = np.zeros((1, H, spec.num_costs))
        states[0, 0] = rng.choice(model.num_states, p=model.initial)
        out = model.num_states - 1
        for h in range(H):
            s = states[0, h]
            a = part.actions[h, s] if part.staged else part.actions[s]
            actions[0, h] = a
            if a == null or s == out:
                states[0, h + 1] = out
            else:
                row = model.matrix()[[s * model.num_actions + a]].indices
                states[0, h + 1] = rng.choice(row)
                costs[0, h] = largest * np.where(rng.random(spec.num_costs) < 0.7, 1.0,
                                                 rng.random(spec.num_costs))  # fmt: skip
        total = total + costs.sum(axis=(0, 1))
        history.append(total.copy())
        seen = Experience(
            first=first, states=states, actions=actions, rewards=np.zeros((1, H)), costs=costs
        )
        state, info = conrl_knapsack.update(state, seen)
    return np.array(history), state, info


@pytest.mark.parametrize("stop", ["before-violation", "before-violation-step"])
@pytest.mark.parametrize("block", range(5))
def test_no_sample_path_ever_exceeds_a_budget(stop, block):
    """2,000 runs in all, against an adversary who draws the consumption."""
    stopped = 0
    models = {m: small_knapsack(block, m, stop.endswith("step")) for m in (1, 2, 3)}
    for number in range(200):
        m = 1 + number % 3
        model, rng = models[m]
        spec = model.spec()
        budgets = rng.random(m) * 6.0 * spec.cost_ranges[:, 1]
        config = conrl_knapsack.Config(
            **TUNED, budgets=tuple(budgets), episodes=8, epsilon=float(rng.random() * 0.5),
            stop=stop,
        )  # fmt: skip
        state = conrl_knapsack.init(spec, config)
        history, state, info = play_adversarially(state, model, rng, 8)
        assert (history <= budgets + 1e-9).all()
        assert info["budget_left"] == pytest.approx(budgets - history[-1])
        stopped += state.stop_reason == conrl_knapsack.MIGHT_VIOLATE
    assert stopped > 20


@pytest.mark.parametrize("feedback", ["sampled", "mean", "bernoulli"])
@pytest.mark.parametrize("stop", ["before-violation", "before-violation-step"])
def test_budgets_hold_under_every_feedback(stop, feedback):
    """Bernoulli draws of a small mean are 0 or 1: the range that a step can cost is [0, 1]."""
    base = tr.FiniteMDP(
        transitions=np.ones((1, 1, 1)), rewards=[[0.5]], costs=[[[0.2]]], capacities=[0.1],
        criterion=tr.Episodic(4),
    )  # fmt: skip
    model = tr.problems.with_null_action(base, anywhere=True)
    for seed in range(8):
        used = []
        for budget in (0.9, 5.3, 9.7):
            result = run(model, "conrl-knapsack", episodes=6, seed=seed, feedback=feedback,
                         stop=stop, budgets=(budget,))  # fmt: skip
            used.append(result.columns["sampled_cost_0"][-1])
            assert used[-1] <= budget + 1e-9
        assert max(used) > 0


def test_on_violation_overshoots_at_most_one_episode():
    model, rng = small_knapsack(1, 2, False)
    spec = model.spec()
    budgets = np.array([2.0, 2.5])
    config = conrl_knapsack.Config(**TUNED, budgets=tuple(budgets), episodes=20)
    history, state, info = play_adversarially(conrl_knapsack.init(spec, config), model, rng, 20)
    assert state.stop_reason == conrl_knapsack.VIOLATED
    at = state.stopped_at
    assert (history[at - 2] <= budgets).all()
    assert (history[at - 1] > budgets).any()
    assert (history[at:] == history[at - 1]).all()
    assert info["stopped_at"] == at


def test_null_action_is_known_exactly():
    """An optimistic model that pays for nothing would stay out for the bonus."""
    model = tr.problems.with_null_action(tr.problems.mars_rover())
    config = conrl_knapsack.Config(**TUNED, budgets=(90.0,), episodes=300)
    state = conrl_knapsack.init(model.spec(), config)
    start = int(np.flatnonzero(model.initial)[0])
    null = model.num_actions - 1
    for _ in range(5):
        policy = conrl_knapsack.policy(state)
        parts = policy.components if isinstance(policy, MixturePolicy) else (policy,)
        assert all(part.actions[0, start] != null for part in parts)
    row = start * model.num_actions + null
    assert state.counts.successors[state.counts.start[row]] == model.num_states - 1


def test_knapsack_run_reports_when_and_why():
    model = tr.problems.with_null_action(tr.problems.mars_rover())
    result = run(model, "conrl-knapsack", episodes=150, seed=1, stop="before-violation")
    info = result.diagnostics
    assert info["stop_reason"][-1] == conrl_knapsack.MIGHT_VIOLATE
    at = int(info["stopped_at"][-1])
    assert (result.columns["reward"][at - 1 :] == 0).all()
    assert info["budget_left_0"][-1] == pytest.approx(45.0 - result.columns["sampled_cost_0"][-1])
    assert info["earned"][-1] == pytest.approx(result.columns["sampled_reward"][-1])


def test_knapsack_refusals():
    rover = tr.problems.mars_rover()
    with pytest.raises(ConfigError, match=r"AggReg/min B = .*needs budgets above"):
        run(tr.problems.with_null_action(rover), "conrl-knapsack@theory", episodes=100)
    # the last action exists everywhere but in the start state
    masked = np.ones((64, 4), dtype=bool)
    masked[0, 3] = False
    with pytest.raises(ConfigError, match="with_null_action"):
        run(rover.replace(available=masked), "conrl-knapsack", episodes=100)
    with pytest.raises(ConfigError, match=r"anywhere=True"):
        run(tr.problems.with_null_action(rover), "conrl-knapsack", episodes=5,
            stop="before-violation-step")  # fmt: skip
    with pytest.raises(ConfigError, match="epsilon"):
        run(tr.problems.with_null_action(rover), "conrl-knapsack", episodes=5, epsilon=-0.1)


def test_theorem_5_1_is_claimed_only_for_its_epsilon():
    spec = tr.problems.rover_knapsack().spec()

    def claimed(**changes):
        config = dataclasses.replace(conrl_knapsack.theory(spec, 10, 0.1), **changes)
        conrl_knapsack.check(spec, config)
        return conrl_knapsack.guarantee(config)

    need = conrl_knapsack.aggregate_regret(spec, 10, 0.1)
    assert claimed(epsilon=0.0) is None
    assert claimed(epsilon=0.1) is None
    assert claimed(epsilon=0.5, budgets=(1.9 * need,)) is None
    assert claimed(epsilon=0.5, budgets=(2.1 * need,)) == "[CON, Theorem 5.1]"
    assert claimed(epsilon=0.5, budgets=(2.1 * need,), stop="before-violation") is None
    assert claimed(epsilon=0.5, budgets=(2.1 * need,), episodes=40) is None
    with pytest.raises(ConfigError, match="sizes"):
        claimed(epsilon=0.5, sizes=(1, 2, 3, 1))


def test_theorem_4_1_is_claimed_only_for_known_functions():
    spec = tr.problems.mars_rover().spec()

    def claimed(**changes):
        learner, config = make_config("conrl-convex@theory", spec, episodes=9, delta=0.1, **changes)
        return learner.guarantee(config)

    assert claimed(objective="log", constraint="norm") == "[CON, Theorem 4.1]"
    assert claimed(objective="builtins:abs") is None
    assert claimed(constraint="numpy:exp") is None


def test_a_null_action_that_costs_something():
    model = tr.problems.with_null_action(tr.problems.mars_rover())
    costs = np.array(model.costs)
    costs[:, :, 4] = 0.25
    paid = model.replace(costs=costs)
    with pytest.raises(ConfigError, match=r"'null' must give the null episode.*reach 7\.5"):
        run(paid, "conrl-knapsack", episodes=5)
    # an environment that is no model shows it only when it is played
    state = conrl_knapsack.init(model.spec(), conrl_knapsack.Config(**TUNED, budgets=(9.0,)))
    seen = Experience(
        first=1, states=np.full((1, 31), 65, np.int32), actions=np.full((1, 30), 4, np.int32),
        rewards=np.zeros((1, 30)), costs=np.full((1, 30, 1), 0.25),
    )  # fmt: skip
    with pytest.raises(ConfigError, match=r"null action must give reward 0.*cost was 0.25"):
        conrl_knapsack.update(state, seen)


def test_aggregate_regret_is_k_times_theorem_3_4():
    spec = tr.problems.mars_rover().spec()
    k, S, A, H, d, delta = 500, 64, 4, 30, 1, 0.1
    log = np.log(S * A * H * (d + 1) * k / delta)
    bound = S * np.sqrt(A * H**3) * np.sqrt(np.log(k) * log) / np.sqrt(k)
    bound += S**1.5 * A * H**2 * np.sqrt(np.log(2 * S * A * H * (d + 1) * k / delta)) / k
    assert conrl_knapsack.aggregate_regret(spec, k, delta) == pytest.approx(k * bound)


def test_an_array_as_a_setting_is_a_number_that_stays():
    scale = np.array(1e-6)
    result = run(tr.problems.mars_rover(), "conrl", episodes=2, bonus_scale=scale)
    assert (result.config["bonus_scale"], float(scale)) == (1e-6, 1e-6)


WRONG = [
    *[("conrl-lagrangian", "iterations", value) for value in ("x", np.nan, 0, 2.5)],
    ("conrl-lagrangian", "step", "a"),
    ("conrl-lagrangian", "compare_every", -1),
    ("conrl-lagrangian", "fictitious_episodes", 0),
    ("conrl-lagrangian", "planner", "a3c"),
    ("conrl-knapsack", "epsilon", "a"),
    *[("conrl-knapsack", name, x) for name in ("null_action", "out_state") for x in ("a", 1000)],
    ("conrl-knapsack", "budgets", "a"),
    ("conrl-knapsack", "budgets", None),
    ("conrl-convex", "objective", np.sum),
    ("conrl-convex", "objective", 3),
    ("conrl-convex", "objective", ["log"]),
    ("conrl-convex", "constraint", None),
    ("conrl-convex", "tolerance", "a"),
]


@pytest.mark.parametrize(("learner", "name", "value"), WRONG)
def test_wrong_settings_are_named(learner, name, value):
    model = tr.problems.with_null_action(tr.problems.mars_rover())
    with pytest.raises(ConfigError, match=name):
        run(model, learner, episodes=5, **{name: value})


def test_whole_numbers_may_be_floats_and_one_budget_a_number():
    spec = tr.problems.mars_rover().spec()
    config = make_config("conrl-lagrangian", spec, episodes=9, delta=0.1, iterations=2.0)[1]
    assert isinstance(config.iterations, int)
    config = make_config("conrl-knapsack", spec, episodes=9, delta=0.1, budgets=5.0)[1]
    assert config.budgets == (5.0,)
