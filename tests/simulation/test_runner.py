"""The loop: exact accounting, streams that do not depend on the learner, saving and resuming."""

import numpy as np
import pytest

import tightrope as tr
from tightrope.errors import ConfigError, ModelError, ResultError
from tightrope.model.policy import MixturePolicy, StochasticPolicy, uniform_policy
from tightrope.simulation import runner
from tightrope.simulation.episodes import EpisodeWorld
from tightrope.simulation.streams import streams

HALVES = np.array([0.5, 0.5])


@pytest.fixture(scope="module")
def rover():
    return tr.problems.mars_rover()


@pytest.mark.parametrize("name", ["mars_rover", "box", "random_cmdp"])
def test_oracle_has_no_regret(name):
    """The benchmark and the sampler are the same model, for every problem."""
    model = getattr(tr.problems, name)()
    result = tr.run(model, "oracle", episodes=300, seed=4)
    assert np.abs(result.columns["regret"]).max() <= 1e-9 * 300
    assert result.columns["violation_0"].max() <= 1e-9 * 300
    # sampled totals are unbiased: within 5 standard errors of 300 episodes of range about 2 sd
    mean = result.columns["sampled_reward"][-1] / 300
    assert abs(mean - result.optimum.value) < 5 * result.optimum.value / np.sqrt(300)


def test_same_seed_same_log(rover):
    runs = [tr.run(rover, "conrl", episodes=60, seed=9) for _ in range(2)]
    for name, column in runs[0].columns.items():
        assert (column == runs[1].columns[name]).all(), name
    other = tr.run(rover, "conrl", episodes=60, seed=10)
    assert (other.columns["sampled_reward"] != runs[0].columns["sampled_reward"]).any()


def test_learners_meet_the_same_draws(rover):
    """The environment's uniforms depend on the seed and the episode only."""
    policy = tr.plan(rover).policy
    left, right = (EpisodeWorld(rover, streams(5)) for _ in range(2))
    seen = [left.play(policy, tr.learners.protocol.Stop("episodes", n), n)[0] for n in (1, 6, 3)]
    whole = right.play(policy, tr.learners.protocol.Stop("episodes", 10), 10)[0]
    assert (np.concatenate([e.states for e in seen]) == whole.states).all()
    assert (np.concatenate([e.rewards for e in seen]) == whole.rewards).all()


@pytest.mark.parametrize("learner", ["conrl", "conrl@theory", "uniform", "oracle"])
@pytest.mark.parametrize("feedback", ["sampled", "mean"])
def test_save_and_resume_equals_not_stopping(rover, learner, feedback, tmp_path):
    arguments = {"episodes": 40, "seed": 3, "feedback": feedback}
    whole = runner.start(rover, learner, **arguments)
    runner.advance(whole)
    for cut in (1, 17):
        part = runner.start(rover, learner, **arguments)
        runner.advance(part, cut)
        runner.save(part, tmp_path / "state.npz")
        fresh = runner.start(rover, learner, **arguments)
        runner.resume(fresh, tmp_path / "state.npz")
        runner.advance(fresh)
        left, right = runner.finish(whole), runner.finish(fresh)
        for name, column in left.columns.items():
            assert column.tobytes() == right.columns[name].tobytes(), name
        for name, column in left.diagnostics.items():
            assert column.tobytes() == right.diagnostics[name].tobytes(), name


def test_resume_refuses_another_run(rover, tmp_path):
    session = runner.start(rover, "conrl", episodes=5, seed=1)
    runner.save(session, tmp_path / "s.npz")
    other = runner.start(rover, "conrl", episodes=5, seed=2)
    with pytest.raises(ResultError, match="another run"):
        runner.resume(other, tmp_path / "s.npz")
    (tmp_path / "s.npz").write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(ResultError, match="no saved session"):
        runner.resume(session, tmp_path / "s.npz")


def test_exact_columns_are_those_of_the_policy(rover):
    """Accounting is by evaluation, not by sampling: uniform's columns are constant."""
    value, costs = tr.evaluate(rover, uniform_policy(rover.available))
    columns = tr.run(rover, "uniform", episodes=50).columns
    assert (columns["reward"] == columns["reward"][0]).all()
    assert columns["reward"][0] == pytest.approx(value, abs=1e-12)
    excess = costs[0] - 0.3
    assert columns["violation_0"] == pytest.approx(excess * columns["episode"], rel=1e-12)
    regret = tr.plan(rover).value - value
    assert columns["regret"] == pytest.approx(regret * columns["episode"], rel=1e-12)


def test_regret_may_be_negative(rover):
    """A policy that runs into the nearest rock earns more than the optimum, and violates."""
    free = tr.plan(rover.replace(capacities=[30.0])).policy
    loose = tr.run(rover, "oracle", episodes=5)
    session = runner.start(rover, "oracle", episodes=5, policy=free)
    assert session.optimum.value == pytest.approx(loose.optimum.value)


@pytest.mark.parametrize("feedback", ["sampled", "mean", "bernoulli"])
def test_sampled_means_are_right(feedback):
    """Over many episodes the realised totals agree with exact evaluation (5 standard errors)."""
    model = tr.problems.random_cmdp(8, 3, horizon=5, num_costs=2, seed=3)
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.ones(3), size=(5, 8))
    policy = StochasticPolicy(table)
    _, totals = tr.simulate(model, policy, episodes=20_000, seed=1, feedback=feedback)
    value, costs = tr.evaluate(model, policy)
    error = totals.std(axis=0) / np.sqrt(len(totals))
    assert (np.abs(totals.mean(axis=0) - [value, *costs]) < 5 * error).all()


def test_mixture_components_are_drawn_with_their_weights(rover):
    policy = tr.plan(rover).policy
    experience, _ = tr.simulate(rover, policy, episodes=200, seed=1)
    assert set(np.unique(experience.components)) <= {0, 1}
    drawn = []
    world = EpisodeWorld(rover, streams(1))
    for _ in range(40):
        stop = tr.learners.protocol.Stop("episodes", 256)
        drawn.append(world.play(policy, stop, 256)[0].components)
    share = (np.concatenate(drawn) == 0).mean()
    n = 40 * 256
    p = policy.weights[0]
    assert abs(share - p) < 5 * np.sqrt(p * (1 - p) / n)


@pytest.mark.parametrize("bad", [0, -1, 2.5, True])
def test_episodes_must_be_a_whole_number(rover, bad):
    with pytest.raises(ConfigError, match="whole number"):
        tr.run(rover, "conrl", episodes=bad)


def test_plan_evaluate_run_and_simulate_say_what_they_take(rover):
    uniform = uniform_policy(rover.available)
    calls = {
        "plan": tr.plan,
        "evaluate": lambda model: tr.evaluate(model, uniform),
        "simulate": lambda model: tr.simulate(model, uniform, episodes=1),
    }
    for name, call in calls.items():
        with pytest.raises(ModelError, match=f"{name} takes a FiniteMDP, got a str 'mars-rover'"):
            call("mars-rover")
        with pytest.raises(ModelError, match=f"{name} takes a FiniteMDP, got a NoneType"):
            call(None)
    with pytest.raises(ModelError, match="run takes a FiniteMDP, got a NoneType"):
        tr.run(None, "conrl", episodes=1)
    for bad in (-1, 0, 2.5):
        with pytest.raises(ConfigError, match="episodes must be a whole number >= 1"):
            tr.simulate(rover, uniform, episodes=bad)
    nested = MixturePolicy((MixturePolicy((uniform, uniform), HALVES), uniform), HALVES)
    for policy, message in ((None, "NoneType"), ([0], "list"), (nested, "a mixture is a mixture")):
        with pytest.raises(ModelError, match=message):
            tr.evaluate(rover, policy)
        with pytest.raises(ModelError, match=message):
            tr.simulate(rover, policy, episodes=1)
        with pytest.raises(ModelError, match=message):
            tr.policy_table(rover, policy)
    with pytest.raises(ConfigError, match="expected a Gymnasium environment, got a NoneType"):
        tr.learn(None, "conrl", episodes=1, horizon=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"solvr": "lp"}, "option of plan 'solvr'; did you mean 'solver'"),
        ({"solver": "lpp"}, "solver 'lpp'; did you mean 'lp'"),
        ({"objective": None, "tolerence": 1.0}, "did you mean 'tolerance'"),
        ({"objective": None, "solver": "lp"}, "leave solver out"),
        ({"budgets": [1.0], "episodes": 2, "epsilom": 0.1}, "did you mean 'epsilon'"),
    ],
)
def test_unknown_options_of_plan_get_a_suggestion(rover, options, message):
    with pytest.raises(ConfigError, match=message):
        tr.plan(rover, **options)


def test_unknown_names_get_a_suggestion(rover):
    with pytest.raises(ConfigError, match="did you mean 'conrl'"):
        tr.run(rover, "conrol", episodes=1)
    with pytest.raises(ConfigError, match="did you mean 'paper-experiments'"):
        tr.run(rover, "conrl@paper-experiment", episodes=1)
    with pytest.raises(ConfigError, match="did you mean 'mars-rover'"):
        tr.run("mars-rovr", "conrl", episodes=1)


def test_feedback_is_checked(rover):
    with pytest.raises(ConfigError, match="feedback must be one of"):
        tr.run(rover, "uniform", episodes=1, feedback="full")
    big = rover.replace(rewards=rover.rewards * 3)
    with pytest.raises(ConfigError, match=r"bernoulli feedback needs rewards in \[0, 1\]"):
        tr.run(big, "uniform", episodes=1, feedback="bernoulli")
