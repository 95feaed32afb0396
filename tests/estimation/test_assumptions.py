"""t_mix and sigma where nobody declared them: near the truth of their policy, and labelled."""

import numpy as np
import pytest

import tightrope as tr
from tightrope.errors import ConfigError
from tightrope.model import chain
from tightrope.model.linear import LinearMDP, bias_linearity_error, linearity_error
from tightrope.model.policy import uniform_policy
from tightrope.problems.average import riverswim
from tightrope.problems.linear import linear_mdp, random_continuous_mdp
from tightrope.problems.registry import make_problem
from tightrope.simulation import runner
from tightrope.simulation.assumptions import uniform_estimates


def start(problem, learner, steps=10**9, **changes):
    return runner.start(problem, learner, episodes=steps, **changes)


@pytest.mark.parametrize("problem", [linear_mdp(), riverswim()])
def test_estimates_are_those_of_the_uniform_policy(problem):
    session = start(problem, "uniform")
    found = uniform_estimates(session.spec, session.model)
    model = session.model
    kernel = chain.policy_chain(model, uniform_policy(model.available))[0]
    features = getattr(problem, "features", np.eye(12).reshape(6, 2, 12))
    gram = np.einsum(
        "s,sai,saj->ij", chain.stationary(kernel) / model.num_actions, features, features
    )
    np.testing.assert_allclose(found.sigma, np.linalg.eigvalsh(gram)[0], rtol=0.4)
    second = np.sort(np.abs(np.linalg.eigvals(kernel.toarray())))[-2]
    np.testing.assert_allclose(found.mixing_time, max(1.0, -1.0 / np.log(second)), rtol=0.2)


def test_continuous_states_estimate_both_and_claim_no_theorem():
    problem = random_continuous_mdp(seed=1)
    session = start(problem, "mdp-exp2@theory")
    assert session.config.estimated == ("mixing_time", "sigma")
    assert session.learner.guarantee(session.config) is None
    assert "is an estimate from 10,000 steps of the uniform policy" in session.notes[0]
    again = start(problem, "mdp-exp2@theory", seed=7)
    assert again.config == session.config  # the estimate does not depend on the run's seed


def test_finite_models_are_exact_where_features_are_declared():
    declared = linear_mdp()
    session = start(LinearMDP(model=declared.model, features=declared.features), "mdp-exp2@theory")
    assert session.config.estimated == ()
    np.testing.assert_allclose(session.config.sigma, declared.knowledge["sigma"])
    assert session.learner.guarantee(session.config)


def test_one_hot_features_have_sigma_zero():
    """Known, so theory refuses it; the tuned preset asks for the uniform policy's."""
    with pytest.raises(ConfigError, match=r"finite sigma > 0, got 0\.0.*or to 'estimate'"):
        start(make_problem("ergodic"), "mdp-exp2@theory")
    assert start(make_problem("ergodic"), "mdp-exp2").config.estimated == ("sigma",)
    with pytest.raises(ConfigError, match=r"finite mixing time > 0, got inf.*mdp-exp2@riverswim"):
        start(riverswim(), "mdp-exp2")
    both = start(riverswim(), "mdp-exp2", mixing_time="estimate")
    assert both.config.estimated == ("mixing_time", "sigma")
    with pytest.raises(ConfigError, match="must be a number or 'estimate', got 'guess'"):
        start(riverswim(), "mdp-exp2", mixing_time="guess")


def test_only_what_is_needed_is_estimated():
    assert start(make_problem("ergodic"), "npg").config.estimated == ()
    assert start(random_continuous_mdp(seed=1), "uniform").notes == []


@pytest.mark.parametrize("learner", ["fopo", "npg", "politex", "ucrl2", "psrl"])
def test_learners_of_finite_states_say_so(learner):
    with pytest.raises(ConfigError, match=f"{learner} needs finitely many states.*olsvi-fh and"):
        start(random_continuous_mdp(seed=1), learner)


def test_notes_are_kept_with_the_run():
    run = tr.run("ergodic", "mdp-exp2", steps=2_000)
    assert run.config["estimated"] == ("sigma",)
    assert run.notes[0].startswith("sigma = 0.02")
    assert run.guarantee is None
    assert run.state_bytes > 8 * 30


def theory(problem, learner, steps=500, **changes):
    """The guarantee of a short run, and its notes in one string."""
    run = tr.run(problem, learner, steps=steps, **changes)
    return run.guarantee, "; ".join(run.notes)


def test_constants_below_the_truth_lose_the_theorem():
    river = riverswim()
    assert theory(river, "olsvi-fh@theory")[0]
    assert theory(river, "olsvi-fh@theory", span=7.0)[0]  # more than sp(v*) is still true
    label, notes = theory(river, "olsvi-fh@theory", span=0.01)
    assert label is None
    assert "span = 0.01 is less than sp(v*) = 6.31" in notes
    declared = linear_mdp()
    session = start(declared, "mdp-exp2@theory")
    assert session.unmet == []
    assert "sigma = 0.1 is more than" in start(declared, "mdp-exp2@theory", sigma=0.1).unmet[0]
    short = start(declared, "mdp-exp2@theory", mixing_time=1.0).unmet
    assert "mixing_time = 1 is less than t_mix = 1.90" in short[0]
    session = start(river, "mdp-exp2@theory", mixing_time=1.0, sigma=0.16)
    assert [text.rpartition(" ")[2] for text in session.unmet] == ["3)", "5)"]


def test_declared_constants_are_checked_like_given_ones():
    """Whoever declares a false sigma or span claims no more than whoever sets it."""
    true = linear_mdp()
    false = LinearMDP(
        model=true.model,
        features=true.features,
        knowledge={"mixing_time": 1.0, "sigma": 0.4, "span": 0.01},
    )
    assert len(start(false, "mdp-exp2@theory").unmet) == 2
    assert "span = 0.01" in start(false, "olsvi-fh@theory").unmet[0]


def test_linearity_is_checked_on_a_run():
    """Assumption 2 for OLSVI.FH (and FOPO), Assumption 4 for MDP-EXP2."""
    rng = np.random.default_rng(0)
    features = tr.features.random_simplex(6, 2, 3, rng=rng)
    problem = LinearMDP(model=riverswim(), features=features)
    label, notes = theory(problem, "olsvi-fh@theory")
    assert label is None
    assert "off the span of the features (Assumption 2)" in notes
    known = {"mixing_time": 10.0, "sigma": 0.01}
    unmet = start(problem, "mdp-exp2@theory", **known).unmet
    assert any("(Assumption 4)" in text for text in unmet)
    assert theory(linear_mdp(), "olsvi-fh@theory")[0]


def test_bias_functions_can_be_linear_where_the_model_is_not():
    """Assumption 4 is weaker than 2: states that differ in nothing that pays have the same bias."""
    model = make_problem("ergodic")
    twice = np.repeat(np.repeat(model.dense(), 2, axis=0), 2, axis=2)
    share = np.random.default_rng(1).uniform(0.2, 0.8, (20, 3, 20))
    share[:, :, 1::2] = 1.0 - share[:, :, ::2]  # which copy comes next differs from pair to pair
    double = tr.FiniteMDP(
        transitions=twice * share,
        axes="sas",
        rewards=np.repeat(model.rewards, 2, axis=0),
        criterion="average",
    )
    pairs = np.repeat(np.eye(30).reshape(10, 3, 30), 2, axis=0)
    # copies played alike have the same bias; policies that tell them apart do not
    assert linearity_error(double, pairs) > 0.01
    assert bias_linearity_error(double, pairs) > 1e-4
    constant = double.replace(rewards=np.full((20, 3), 0.5))
    assert linearity_error(constant, pairs) > 0.01
    assert bias_linearity_error(constant, pairs) < 1e-9


def test_iterations_that_ran_out_lose_the_theorem():
    assert theory(riverswim(), "ucrl2@theory")[0]
    label, notes = theory(riverswim(), "ucrl2@theory", max_iterations=1)
    assert label is None
    assert "extended value iteration ran out" in notes
    assert theory(riverswim(), "ucrl2@theory", reward_radius_scale=50.0)[0] is None
    assert theory(riverswim(), "psrl@theory")[0] is None


def test_branch_and_bound_that_ran_out_loses_the_theorem():
    pytest.importorskip("clarabel")
    assert theory(riverswim(), "fopo@theory", node_limit=1)[0]  # J = 1 everywhere, ties are open
    label, notes = theory(riverswim(), "fopo", node_limit=1)
    assert label is None
    assert "programs J was not proved optimal" in notes


def two_states(*next_states):
    """One action a state, which leads to the next state given."""
    moves = np.eye(len(next_states))[list(next_states)][:, None]
    rewards = np.zeros((len(next_states), 1))
    return tr.FiniteMDP(transitions=moves, axes="sas", rewards=rewards, criterion="average")


def test_ucrl2_needs_a_finite_diameter():
    assert start(two_states(1, 0), "ucrl2@theory").unmet == []
    transient = two_states(1, 1)
    assert "the diameter is infinite" in start(transient, "ucrl2@theory").unmet[0]
    assert start(transient, "psrl").unmet == []


def test_a_span_of_zero_has_no_theorem_of_order_zero():
    one = tr.FiniteMDP(
        transitions=np.ones((1, 2, 1)), axes="sas", rewards=[[0.0, 1.0]], criterion="average"
    )
    label, notes = theory(one, "olsvi-fh@theory", steps=50)
    assert label is None
    assert "sp = 0 makes H = 0, which was rounded up to 1" in notes
    assert theory(one, "olsvi-fh@theory", steps=50, span=1.0)[0]
    assert theory(one, "olsvi-fh", steps=50)[1] == ""
    session = start(one, "fopo@theory", steps=50)
    assert "order (2 + sp) sqrt(d^3 T)" in session.learner.guarantee(session.config)


def test_one_policy_is_not_worse_than_the_uniform_one():
    notes = start(two_states(1, 1), "mdp-exp2", sigma="estimate").notes
    assert notes[0].startswith("sigma = ")
    assert "steps of the uniform policy, so no theorem" in notes[0]
    notes = start(linear_mdp(), "mdp-exp2", sigma="estimate").notes
    assert "it can be worse, so no theorem" in notes[0]
