"""t_mix and sigma where nobody declared them: near the truth of their policy, and labelled."""

import numpy as np
import pytest

import tightrope as tr
from tightrope.errors import ConfigError
from tightrope.model import chain
from tightrope.model.linear import LinearMDP
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
    with pytest.raises(ConfigError, match="finite mixing time > 0, got inf"):
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
