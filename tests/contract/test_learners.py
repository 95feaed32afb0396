"""What every registered learner must keep, generated from its declared traits."""

import dataclasses
import importlib
import json

import numpy as np
import pytest

from tightrope.errors import ConfigError
from tightrope.learners.protocol import state_arrays
from tightrope.learners.registry import LEARNERS, get_learner, make_config, presets_of
from tightrope.model.policy import DeterministicPolicy, check_policy
from tightrope.planning import evaluate, plan
from tightrope.problems.loop_free import four_combinations
from tightrope.problems.null import with_null_action
from tightrope.problems.registry import make_problem
from tightrope.simulation import runner

LENGTH = {"episodic": 30, "stream": 4000, "full-information": 60}


def case(name):
    """A small problem on which the learner can run, and for how long."""
    traits = get_learner(name).traits
    if "full-information" in traits:
        return make_problem("loop-free-stochastic-stochastic"), LENGTH["full-information"]
    if "episodic" in traits:
        m = 0 if "unconstrained" in traits else 1
        model = make_problem("random-cmdp", num_states=6, num_actions=2, horizon=4, num_costs=m)
        if "null-action" in traits:
            model = with_null_action(model)
        return model, LENGTH["episodic"]
    # fopo solves cone programs: 25 updates are enough
    length = 120 if name.startswith("fopo") else LENGTH["stream"]
    return make_problem("linear-mdp" if "unichain" in traits else "riverswim"), length


def session(name, **arguments):
    model, length = case(name)
    return runner.start(model, name, episodes=length, **arguments)


ALL = sorted(LEARNERS)


@pytest.mark.parametrize("name", ALL)
def test_same_seed_same_log(name):
    logs = []
    for _ in range(2):
        s = session(name, seed=7)
        runner.advance(s)
        logs.append(runner.finish(s))
    for key, column in logs[0].columns.items():
        assert column.tobytes() == logs[1].columns[key].tobytes(), key
    assert {"regret", "reward", "episode", "steps", "sampled_reward"} <= set(logs[0].columns)
    assert np.isfinite(logs[0].columns["regret"]).all()


@pytest.mark.parametrize("name", ALL)
def test_policy_and_horizon_write_nothing(name):
    s = session(name, seed=1)
    runner.advance(s, max(1, s.episodes // 2))
    before = state_arrays(s.state)
    s.learner.policy(s.state)
    s.learner.horizon(s.state)
    s.learner.policy(s.state)
    after = state_arrays(s.state)
    assert before.keys() == after.keys()
    for key, value in before.items():
        assert value.tobytes() == after[key].tobytes(), key


@pytest.mark.parametrize("name", ALL)
def test_carrying_saving_and_resuming_equals_one_long_run(name, tmp_path):
    whole = session(name, seed=3)
    runner.advance(whole)
    part = session(name, seed=3)
    runner.advance(part, part.episodes // 3)
    runner.save(part, tmp_path / "state.npz")
    fresh = session(name, seed=3)
    runner.resume(fresh, tmp_path / "state.npz")
    runner.advance(fresh)
    left, right = runner.finish(whole), runner.finish(fresh)
    for key, column in left.columns.items():
        assert column.tobytes() == right.columns[key].tobytes(), key
    for key, column in left.diagnostics.items():
        assert column.tobytes() == right.diagnostics[key].tobytes(), key


@pytest.mark.parametrize("name", ALL)
def test_policies_are_distributions_at_every_state(name):
    s = session(name, seed=2)
    model, _ = case(name)
    available = s.spec.available
    stages = getattr(model, "horizon", None) if "episodic" in s.learner.traits else None
    for until in (1, s.episodes // 2, s.episodes):
        runner.advance(s, until)
        policy = s.learner.policy(s.state)
        table = getattr(policy, "actions", getattr(policy, "probabilities", None))
        if "stream" in s.learner.traits and table is not None and table.ndim > available.ndim - 1:
            continue  # a periodic policy of a stream has its own number of stages
        check_policy(policy, available, stages)


@pytest.mark.parametrize("name", ALL)
def test_config_survives_json(name):
    s = session(name)
    text = json.dumps(runner.config_json(s.config))
    again = type(s.config)(**json.loads(text))
    assert json.dumps(runner.config_json(again)) == text


@pytest.mark.parametrize("name", ALL)
def test_presets_are_known_and_theory_is_labelled(name):
    model, length = case(name)
    spec = session(name).spec
    for preset in presets_of(name):
        learner, config = make_config(f"{name}@{preset}", spec, episodes=length, delta=0.1)
        label = learner.guarantee(config)
        assert label is None or (isinstance(label, str) and label)
        if preset != "theory":
            assert label is None, f"{name}@{preset} must not claim a theorem"
    assert dataclasses.is_dataclass(learner.config)
    assert model is not None


@pytest.mark.parametrize("num_costs", [0, 1, 2])
@pytest.mark.parametrize("name", ALL)
def test_any_number_of_costs_or_a_refusal(name, num_costs):
    """The traits say which: `constraints` is any number (budgets: one or more)."""
    traits = get_learner(name).traits
    if "full-information" in traits:
        return  # the next test
    sizes = {"num_states": 4, "num_actions": 2, "horizon": 3}
    model = make_problem("random-cmdp", num_costs=num_costs, **sizes)
    models = [with_null_action(model) if "null-action" in traits else model]
    if "stream" in traits:
        stream = model.replace(criterion="average", capacities=[0.9] * num_costs)
        models = [*models, stream] if "episodic" in traits else [stream]
    for one in models:
        if "constraints" not in traits and num_costs:
            with pytest.raises(
                ConfigError, match=f"no constraints, the problem has m = {num_costs}"
            ):
                runner.start(one, name, episodes=12)
        elif "null-action" in traits and not num_costs:
            with pytest.raises(ConfigError, match="budgets"):
                runner.start(one, name, episodes=12)
        elif "constraints" in traits:  # the others run without costs in every test above
            s = runner.start(one, name, episodes=12)
            runner.advance(s)
            columns = runner.finish(s).columns
            assert np.isfinite(columns["regret"]).all()
            assert sum(key.startswith("violation_plus") for key in columns) == num_costs


def remember(state, model, n):
    """Give a state n visits of every pair in the model's exact proportions."""
    P, rewards = model.dense(), model.rewards
    S, A = rewards.shape
    if hasattr(state, "counts"):
        c = state.counts
        c.visits[:] = n
        c.start = np.arange(S * A, dtype=np.int64) * S
        c.stop = c.start + S
        c.successors = np.tile(np.arange(S, dtype=np.int32), S * A)
        c.tallies, c.p_hat = np.rint(n * P).astype(np.int64).ravel(), P.ravel().copy()
        c.reward_sums[:], c.cost_sums[:] = n * rewards, n * model.costs
    elif hasattr(state, "moves"):
        state.visits[:], state.moves[:] = n, n * P
        if hasattr(state, "sums"):
            state.sums[0], state.room[:], state.changed = n * rewards, n, np.inf  # plans anew
        else:
            state.reward_sums[:] = n * rewards
    else:
        rows = state.features.reshape(S * A, -1)
        state.gram += n * rows.T @ rows
        state.reward_sum += n * rows.T @ rewards.ravel()
        state.successor_sum += n * rows.T @ P.reshape(S * A, S)


def planners():
    """Learners that plan in an estimated model: those whose State holds one."""
    for name in ALL:
        module = importlib.import_module(LEARNERS[name].home.partition(":")[0])
        if "full-information" not in get_learner(name).traits and hasattr(module, "State"):
            fields = {item.name for item in dataclasses.fields(module.State)}
            if fields & {"counts", "moves", "gram"}:
                yield name


@pytest.mark.parametrize("name", list(planners()))
def test_fed_with_huge_exact_counts_it_plays_optimally(name):
    model, _ = case(name)
    # the multipliers of Algorithm 2 take small steps, and are carried from episode to episode
    length = 300 if name == "conrl-lagrangian" else 1
    s = runner.start(model, name, episodes=max(length, LENGTH["episodic"]), seed=1)
    remember(s.state, s.model, 10**9)
    runner.advance(s, length)
    policy = s.learner.policy(s.state)
    if name == "olsvi-fh":  # its plan is for an artificial episode; at the start all of it is left
        policy = DeterministicPolicy(policy.actions[0])
    share = 1.0 - getattr(s.config, "epsilon", 0.0)  # of its budgets that conrl-knapsack plans with
    optimum = plan(s.model.replace(capacities=share * s.model.capacities))
    found = evaluate(s.model, policy)
    assert found.value == pytest.approx(optimum.value, abs=1e-6)
    assert found.costs == pytest.approx(optimum.costs, abs=1e-6)


@pytest.mark.parametrize("num_constraints", [0, 1, 3])
@pytest.mark.parametrize(
    "name",
    [
        "pdgd-ops",
        "uc-o-gdps",
        "uc-o-gdps@best-multiplier",
        "uc-o-reps@penalty",
        "uniform",
        "oracle",
    ],
)
def test_loop_free_problems_with_any_number_of_constraints(name, num_constraints):
    problems = four_combinations(layers=(1, 2, 1), num_actions=2, num_constraints=num_constraints)
    for problem in problems.values():
        if name == "pdgd-ops" and num_constraints == 0:
            with pytest.raises(ConfigError, match="needs at least one constraint"):
                runner.run(problem, name, episodes=5)
            continue
        columns = runner.run(problem, name, episodes=5).columns
        assert np.isfinite(columns["regret"]).all()
        assert sum(key.startswith("cost_") for key in columns) == num_constraints


@pytest.mark.parametrize("name", ALL)
def test_module_lists_its_deviations(name):
    module = importlib.import_module(LEARNERS[name].home.partition(":")[0])
    assert "Deviations" in module.__doc__
