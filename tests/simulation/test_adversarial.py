"""The world with full information: exact accounting, replay, resume, adversaries that misbehave."""

import dataclasses
import json

import numpy as np
import pyarrow as pa
import pytest

from tightrope import theory
from tightrope.errors import ConfigError, ModelError, PlanError
from tightrope.experiment import Arm, Experiment
from tightrope.learners.registry import make_config
from tightrope.model.mdp import FiniteMDP
from tightrope.planning.layered import best_policy, occupancy_of
from tightrope.problems import loop_free, sequences
from tightrope.problems.adversarial import (
    AdversarialProblem,
    always_safe_plan,
    feasibility_margin,
    hindsight_plan,
)
from tightrope.results import load_meta
from tightrope.simulation import adversarial, runner
from tightrope.simulation.adversarial import play
from tightrope.simulation.bounds import bounds_of
from tightrope.types import Episodic

WORLD = loop_free.random_layered(
    layers=(1, 3, 4, 1), num_actions=2, num_constraints=2, rho=0.8, seed=3
)
PROBLEM = loop_free.switching_problem(WORLD, period=7)
T = 300


def config(problem, name="pdgd-ops", episodes=T, **changes):
    return make_config(name, problem.spec(), episodes=episodes, delta=0.05, **changes)


def test_accounting_is_exact():
    """Every column worked out again from the tables of the sequences."""
    learner, chosen = config(PROBLEM)
    run = play(PROBLEM, learner, chosen, episodes=T, seed=5)
    r = sequences.block(PROBLEM.rewards, 1, T, 5)
    g = sequences.block(PROBLEM.constraints, 1, T, 5)
    state = learner.init(PROBLEM.spec(), chosen)
    world = runner.start(PROBLEM, "pdgd-ops", episodes=T, seed=5, delta=0.05).world
    rewards, costs, off, largest = [], [], 0.0, 0.0
    for t in range(T):
        policy = learner.policy(state)
        q = occupancy_of(WORLD, policy.probabilities)
        rewards.append((q * r[t]).sum())
        costs.append(np.tensordot(g[t], q, axes=2))
        off += np.abs(q - state.q_hat).sum()
        seen, sampled = world.play(policy, learner.horizon(state), 1)
        np.testing.assert_array_equal(seen.reward_tables[0], r[t])
        path = seen.states[0, :-1], seen.actions[0]
        assert sampled[0, 0] == pytest.approx(r[t][path].sum())
        state, _ = learner.update(state, seen)
        largest = max(largest, state.multipliers.sum())
    costs = np.array(costs)
    np.testing.assert_allclose(run.curves["reward"], rewards)
    optimum = hindsight_plan(PROBLEM, T, 5).value
    np.testing.assert_allclose(
        run.curves["regret"], optimum * np.arange(1, T + 1) - np.cumsum(rewards), atol=1e-9
    )
    for i in range(2):
        np.testing.assert_allclose(run.curves[f"cost_{i}"], costs[:, i])
        np.testing.assert_allclose(run.curves[f"violation_{i}"], np.cumsum(costs[:, i]), atol=1e-9)
        np.testing.assert_allclose(
            run.curves[f"violation_plus_{i}"], np.cumsum(np.maximum(costs[:, i], 0)), atol=1e-9
        )
    assert run.occupancy_error == pytest.approx(off)
    assert run.largest_multipliers == pytest.approx(largest)
    np.testing.assert_allclose(run.average_constraints, g.mean(axis=0), atol=1e-12)


def test_the_environment_does_not_depend_on_the_learner():
    """Learners with the same policy see the same episodes, and replay gives the same bytes."""
    runs = [
        play(PROBLEM, *config(PROBLEM, name), episodes=5, seed=2)
        for name in ("pdgd-ops", "uc-o-reps", "pdgd-ops")
    ]
    for name in ("sampled_reward", "sampled_cost_0"):
        assert runs[0].curves[name][0] == runs[1].curves[name][0]
        np.testing.assert_array_equal(runs[0].curves[name], runs[2].curves[name])


@pytest.mark.parametrize("learner", ["pdgd-ops", "uc-o-reps@penalty", "uniform"])
def test_resume_equals_not_stopping(learner, tmp_path):
    problem = loop_free.best_response_problem(WORLD, rho=0.5)
    whole = runner.start(problem, learner, episodes=T, seed=1)
    runner.advance(whole)
    first = runner.start(problem, learner, episodes=T, seed=1)
    runner.advance(first, 130)
    runner.save(first, tmp_path / "state.npz")
    second = runner.start(problem, learner, episodes=T, seed=1)
    runner.resume(second, tmp_path / "state.npz")
    runner.advance(second)
    left, right = runner.finish(whole), runner.finish(second)
    for name in left.columns:
        np.testing.assert_array_equal(left.columns[name], right.columns[name])
    assert left.bounds == right.bounds
    assert left.notes == right.notes


def test_adaptive_optimum_comes_from_what_was_played():
    problem = loop_free.best_response_problem(WORLD, rho=0.5)
    run = play(problem, *config(problem), episodes=100, seed=0)
    played = run.average_rewards, run.average_constraints
    optimum = hindsight_plan(problem, 100, 0, played).value
    assert run.optimum.value == pytest.approx(optimum)
    assert run.curves["regret"][-1] == pytest.approx(100 * optimum - run.total_reward)
    # the table against the policy of the first episode is the worst of all
    q = occupancy_of(WORLD, np.full(WORLD.model.rewards.shape, 0.5))
    worst = np.tensordot(problem.rewards.tables, q, axes=2).min()
    assert run.curves["reward"][0] == pytest.approx(worst)


def test_what_needs_the_optimum_beforehand_is_refused_on_adaptive_problems():
    adaptive = loop_free.best_response_problem(WORLD, rho=0.5)
    mine = dataclasses.replace(
        PROBLEM,
        name="mine",
        rewards=sequences.custom(lambda t, q: 0.0 * q, (9, 2), channel="rewards"),
    )
    for problem in (adaptive, mine):
        for name, what in (("oracle", "policy"), ("uc-o-gdps@best-multiplier", "multipliers")):
            with pytest.raises(ConfigError, match=f"{what}.*its optimum is known only after"):
                runner.run(problem, name, episodes=20, seed=0)
            with pytest.raises(ConfigError, match=f"{what}.*its optimum is known only after"):
                play(problem, *config(problem, name), episodes=20, seed=0)


def test_interval_regret_of_a_run():
    """Exact for a short run, and a grid's value is a lower bound of it."""
    learner, chosen = config(PROBLEM, episodes=40)
    exact = play(PROBLEM, learner, chosen, episodes=40, seed=0, interval_points=40)
    coarse = play(PROBLEM, learner, chosen, episodes=40, seed=0, interval_points=5)
    values = [
        theory.weak_interval_regret(WORLD, r.interval_ends, r.loss_sums, r.earned_sums)
        for r in (exact, coarse)
    ]
    assert (values[0].exact, values[1].exact) == (True, False)
    assert values[1].value <= values[0].value + 1e-12
    whole = exact.earned_sums[-1] - best_policy(WORLD, exact.loss_sums[-1])[0]
    assert whole <= values[1].value + 1e-12


def test_custom_adversaries_are_checked_at_every_episode():
    shape = WORLD.model.rewards.shape

    def make(function):
        return AdversarialProblem(
            name="mine",
            loop_free=WORLD,
            rewards=sequences.custom(function, shape, channel="rewards"),
            constraints=PROBLEM.constraints,
        )

    fine = make(lambda episode, q: np.where(q > 0, 0.5, 0.0) * (episode % 2))
    run = play(fine, *config(fine), episodes=20, seed=0)
    assert run.average_rewards.max() == pytest.approx(0.25)
    late = make(lambda episode, q: np.zeros(shape if episode < 7 else (2, 2)))
    with pytest.raises(ModelError, match=r"rewards of episode 7 have shape \(2, 2\), expected"):
        play(late, *config(late), episodes=20, seed=0)
    large = make(lambda episode, q: np.full(shape, 1.5))
    with pytest.raises(ModelError, match=r"episode 1 are 1.5 at \(0, 0\), expected numbers in"):
        play(large, *config(large), episodes=20, seed=0)

    for answer in ("text", [[1.0], [1.0, 2.0]]):
        odd = make(lambda episode, q, answer=answer: answer)
        with pytest.raises(ModelError, match="rewards of episode 1 are no table of numbers"):
            play(odd, *config(odd), episodes=20, seed=0)
    ending = make(lambda episode, q: np.full(shape, 0.5))
    with pytest.raises(ModelError, match="episode 1 are not 0 in the last state"):
        play(ending, *config(ending), episodes=20, seed=0)


def test_an_infeasible_problem_is_refused_with_its_margin():
    tight = 0.5 * np.ones_like(WORLD.model.costs)
    tight[:, -1] = 0.0
    problem = dataclasses.replace(
        PROBLEM, name="tight", constraints=sequences.iid(tight, channel="constraints")
    )
    words = rf"problem 'tight' is infeasible: .*\(rho = -{0.5 * WORLD.num_layers:g} < 0\)"
    with pytest.raises(PlanError, match=words):
        runner.run(problem, "pdgd-ops", episodes=20, seed=0)


def test_bounds_are_saved_with_the_run():
    result = runner.run(PROBLEM, "pdgd-ops@theory", episodes=200, seed=0, delta=0.05)
    rows = {row["quantity"]: row for row in result.bounds}
    assert {"R_T", "V_T", "max ||lambda||_1", "sum ||q - q_hat||_1", "R^P_T"} <= set(rows)
    assert result.guarantee == "[BOBW, Theorems 5-7]"
    assert rows["V_T"]["measured"] == pytest.approx(
        max(result.columns["violation_0"][-1], result.columns["violation_1"][-1])
    )
    assert rows["sum ||q - q_hat||_1"]["ratio"] <= 1.0
    assert rows["sum ||q - q_hat||_1"]["proved"] is True
    assert rows["max ||lambda||_1"]["proved"] is False  # Condition 2 fails at T = 200
    assert json.loads(json.dumps(result.bounds)) == result.bounds
    assert "Theorem 7" in theory.table_text(result.bounds)


def test_errors_of_the_averages_and_the_dual_regret_are_measured():
    """E^r, E^G and R^D of a run, worked out again from the tables of the sequences."""
    problem = loop_free.stochastic_problem(WORLD, noise=0.5)
    learner, chosen = config(problem, episodes=80)
    run = play(problem, learner, chosen, episodes=80, seed=3)
    rows = {row.quantity: row for row in bounds_of(run)}
    r = sequences.block(problem.rewards, 1, 80, 3)
    g = sequences.block(problem.constraints, 1, 80, 3)
    state = learner.init(problem.spec(), chosen)
    world = runner.start(problem, "pdgd-ops", episodes=80, seed=3, delta=0.05).world
    dual = off = 0.0
    for t in range(80):
        policy, lam = learner.policy(state), state.multipliers
        q = occupancy_of(WORLD, policy.probabilities)
        dual -= lam @ np.tensordot(g[t], state.q_hat, axes=2)
        off += lam @ np.tensordot(g[t] - WORLD.model.costs, q, axes=2)
        seen, _ = world.play(policy, learner.horizon(state), 1)
        state, _ = learner.update(state, seen)
    best = hindsight_plan(problem, 80, 3).occupancy
    reward = abs(((r - WORLD.model.rewards) * best).sum())
    assert rows["R^D_T(0)"].measured == pytest.approx(dual)
    assert rows["|sum lambda_t (G_t - G_bar) q_t|"].measured == pytest.approx(abs(off))
    assert rows["|sum (r_t - r_bar) q*|"].measured == pytest.approx(reward)
    assert rows["OPT"].measured <= rows["OPT"].bound + 1e-12
    for name in ("R^D_T(0)", "|sum lambda_t (G_t - G_bar) q_t|", "|sum (r_t - r_bar) q*|"):
        assert rows[name].measured <= rows[name].bound


def test_constants_of_another_length_prove_nothing():
    learner, chosen = config(PROBLEM, "pdgd-ops@theory", episodes=60)
    for episodes in (50, 60):
        run = play(PROBLEM, learner, chosen, episodes=episodes, seed=0, interval_points=2)
        rows = {row.quantity: row for row in bounds_of(run)}
        assert rows["V_T"].proved == rows["R^P_T"].proved == (episodes == 60)


def test_alpha_regret_is_the_regret_against_the_promised_share():
    result = runner.run(PROBLEM, "pdgd-ops", episodes=100, seed=0)
    row = next(row for row in result.bounds if row["quantity"] == "alpha-regret")
    share = 0.8 / (WORLD.num_layers + 0.8)
    lost = (1.0 - share) * 100 * result.optimum.value
    assert row["measured"] == pytest.approx(result.columns["regret"][-1] - lost)
    assert row["bound"] is None  # Condition 2 fails at T = 100


def opposed(function=None):
    """G = +1, -1, +1, ...: safe on average, never in every episode."""
    tight = np.ones_like(WORLD.model.costs)
    tight[:, -1] = 0.0
    played = sequences.switching(-tight, tight, 1, channel="constraints")
    if function is not None:
        played = sequences.custom(function, tight.shape, channel="constraints")
    return dataclasses.replace(PROBLEM, name="opposed", constraints=played)


def test_a_margin_that_is_not_positive_is_said():
    result = runner.run(opposed(), "pdgd-ops", episodes=40, seed=0)
    rows = {row["quantity"]: row for row in result.bounds}
    assert rows["rho"]["measured"] == pytest.approx(-WORLD.num_layers)
    assert {"R_T", "V_T"} <= set(rows)
    assert rows["R_T"]["bound"] is rows["V_T"]["bound"] is None
    assert rows["R_T"]["proved"] is rows["V_T"]["proved"] is False
    assert any(f"rho = -{WORLD.num_layers} <= 0" in text for text in result.notes)
    fine = runner.run(PROBLEM, "pdgd-ops@theory", episodes=40, seed=0)
    assert fine.notes == []
    none = runner.run("impossibility-relief", "pdgd-ops@theory", episodes=40, seed=0)
    assert [text.split(":")[0] for text in none.notes] == ["rho = 0 <= 0"]


def test_rho_of_a_custom_adversary_comes_from_what_it_played(tmp_path, monkeypatch):
    g = WORLD.model.costs
    mild = opposed(lambda episode, q: g if episode % 3 else 0.25 * g)
    for public in (
        lambda: feasibility_margin(mild, 40, 0),
        lambda: always_safe_plan(mild, 40, 0, (WORLD.model.rewards, g)),
    ):
        with pytest.raises(ModelError, match="'opposed' has constraints of a custom adversary"):
            public()
    whole = runner.start(mild, "pdgd-ops", episodes=40, seed=0)
    runner.advance(whole)
    rows = {row["quantity"]: row for row in runner.finish(whole).bounds}
    assert rows["rho"]["measured"] == pytest.approx(0.25 * 0.8)  # G / 4 has the least margin
    assert {"R_T", "V_T", "alpha-regret", "reward / (T safe)"} <= set(rows)
    part = runner.start(mild, "pdgd-ops", episodes=40, seed=0)
    runner.advance(part, 10)
    runner.save(part, tmp_path / "state.npz")
    fresh = runner.start(mild, "pdgd-ops", episodes=40, seed=0)
    runner.resume(fresh, tmp_path / "state.npz")
    runner.advance(fresh)
    assert {row["quantity"]: row for row in runner.finish(fresh).bounds} == rows
    monkeypatch.setattr(adversarial, "PLAYED_BYTES", 100)
    result = runner.run(mild, "pdgd-ops", episodes=40, seed=0)
    rows = {row["quantity"]: row for row in result.bounds}
    assert rows["rho"]["measured"] is None
    assert rows["V_T"]["bound"] is None
    assert any("rho is not known" in text for text in result.notes)


@pytest.mark.parametrize("name", ["pdgd-ops", "uc-o-reps"])
def test_pairs_that_left_the_confidence_set_are_counted(name):
    """Against the true rows, after every update; and the same when the run is resumed."""
    problem = loop_free.stochastic_problem(WORLD)
    learner, chosen = config(problem, name, radius_scale=0.05)
    world = runner.start(problem, name, episodes=T, seed=4, delta=0.05).world
    state, dense = learner.init(problem.spec(), chosen), WORLD.model.dense()
    left = np.zeros((9, 2), bool)
    for _ in range(T):
        seen, _ = world.play(learner.policy(state), learner.horizon(state), 1)
        state, _ = learner.update(state, seen)
        outside = np.zeros((9, 2), bool)
        for x in range(8):
            first, stop = WORLD.offsets[WORLD.layers[x] + 1], WORLD.offsets[WORLD.layers[x] + 2]
            rows = dense[x, :, first:stop] - state.centres[x, :, : stop - first]
            outside[x] = np.abs(rows).sum(axis=1) > state.radii[x]
        left |= outside
    assert 0 < outside.sum() < left.sum() <= 8
    result = runner.run(problem, name, episodes=T, seed=4, delta=0.05, radius_scale=0.05)
    sentence = f"the true row of {left.sum()} of 8 pairs (with more than one next state) left"
    assert any(text.startswith(sentence) for text in result.notes)
    assert any(f"of {outside.sum()} it is outside at the end" in text for text in result.notes)
    row = next(row for row in result.bounds if row["quantity"] == "pairs outside P_i")
    assert (row["measured"], row["bound"], row["proved"]) == (left.sum(), 0.0, False)
    proved = runner.run(problem, f"{name}@theory", episodes=T, seed=4, delta=0.05)
    row = next(row for row in proved.bounds if row["quantity"] == "pairs outside P_i")
    assert (row["measured"], row["proved"], proved.notes) == (0.0, True, [])


def test_adversarial_reward_is_held_against_the_best_policy_that_is_always_safe():
    problem = loop_free.switching()
    result = runner.run(problem, "pdgd-ops", episodes=300, seed=0, delta=0.05)
    row = next(row for row in result.bounds if row["quantity"] == "reward / (T safe)")
    safe = always_safe_plan(problem, 300, 0).value
    total = 300 * result.optimum.value - result.columns["regret"][-1]
    assert row["measured"] == pytest.approx(total / (300 * safe))
    assert row["bound"] == 1.0


@pytest.mark.parametrize(("episodes", "word"), [(60, "exact"), (101, "lower bound")])
def test_interval_regret_is_exact_in_short_runs(episodes, word):
    result = runner.run(PROBLEM, "pdgd-ops", episodes=episodes, seed=0)
    row = next(row for row in result.bounds if row["quantity"] == "max interval R^P")
    assert word in row["note"]


def test_feedback_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="shows every table in full"):
        runner.run(PROBLEM, "pdgd-ops", episodes=5, feedback="bernoulli")
    with pytest.raises(ConfigError, match="delta must be a number, got 'x'"):
        runner.run(PROBLEM, "pdgd-ops", episodes=5, delta="x")


def test_best_multiplier_is_the_optimums():
    result = runner.run(PROBLEM, "uc-o-gdps@best-multiplier", episodes=20, seed=0)
    np.testing.assert_allclose(
        result.config["penalty"], hindsight_plan(PROBLEM, 20, 0).multipliers, atol=1e-9
    )
    learner, chosen = config(PROBLEM, "uc-o-gdps@best-multiplier")
    with pytest.raises(ConfigError, match="filled in by the simulation"):
        learner.init(PROBLEM.spec(), chosen)


def test_bounds_command(tmp_path, capsys):
    from typer.testing import CliRunner

    from tightrope.cli import app
    from tightrope.launch import launch, summarise

    arms = tuple(
        Arm(problem="condition-2-stochastic-stochastic", learner=name, episodes=30)
        for name in ("pdgd-ops", "oracle")
    )
    folder = tmp_path / "out"
    launch(Experiment(name="small", arms=arms, seeds=2), folder, workers=1, quiet=True)
    answer = CliRunner().invoke(app, ["bounds", str(folder)])
    assert answer.exit_code == 0
    assert "pdgd-ops, T = 30, 2 seeds" in answer.stdout
    assert "[BOBW, Theorem 6]" in answer.stdout
    entries = json.loads(CliRunner().invoke(app, ["bounds", str(folder), "--json"]).stdout)
    assert [entry["seed"] for entry in entries] == [0, 1]
    assert (folder / "figures" / "condition-2-stochastic-stochastic-bounds.png").exists()
    ones = {"reward_scale": 1.0, "reward_shift": 0.0, "constraints": {"cost": 1.0}}
    assert [arm["scale"] for arm in load_meta(folder)["arms"]] == [ones, ones]
    assert {arm["unit"] for arm in summarise(folder)} == {"episodes"}
    short = runner.run("impossibility-relief", "uniform", episodes=3)
    assert short.unit == "episodes"  # though each has one step


def test_where_no_bound_exists_none_is_drawn():
    import matplotlib.pyplot as plt

    from tightrope.plots import _bounds_figure

    result = runner.run(PROBLEM, "pdgd-ops", episodes=30, seed=0)  # R_T has none, V_T has one
    rows = pa.table({
        "learner": ["pdgd-ops"] * 30, "preset": ["tuned"] * 30, "seed": [0] * 30,
        **result.columns,
    })  # fmt: skip
    entry = {"learner": "pdgd-ops", "preset": "tuned", "guarantee": None, "episodes": 30}
    looks = {("switching", "pdgd-ops", "tuned"): 0}
    figure = _bounds_figure("switching", rows, [{**entry, "bounds": result.bounds}], looks)
    texts = [[t.get_text() for t in axes.get_legend().get_texts()] for axes in figure.axes]
    plt.close(figure)
    assert texts[0] == ["L t, the most possible", "pdgd-ops, no bound"]
    assert texts[1][:2] == ["L t, the most possible", "pdgd-ops"]
    assert texts[1][2].startswith("min(bound, L T), [BOBW, Theorem 7")
    assert texts[2][0] == "pdgd-ops"
    assert "rho/(L+rho)" in texts[2][1]
    assert "as printed" in texts[2][2]


def test_the_scale_of_an_unrolled_model_is_recorded():
    model = FiniteMDP(
        transitions=np.full((2, 2, 2), 0.5),
        axes="sas",
        rewards=4.0 * np.eye(2) - 1.0,
        costs=[[[0.0, 5.0], [0.0, 1.0]]],
        capacities=[4.0],
        cost_names=["fuel"],
        criterion=Episodic(2),
    )
    problem = loop_free.unrolled_problem(model, rescale=True)
    scale = runner.run(problem, "uniform", episodes=3).scale
    assert scale == {"reward_scale": 4.0, "reward_shift": -1.0, "constraints": {"fuel": 3.0}}
