"""OLSVI.FH: constants, learning, and what it refuses."""

import dataclasses

import numpy as np
import pytest

from tightrope.errors import ConfigError, ModelError
from tightrope.learners import olsvi_fh
from tightrope.model.features import normalise, random_simplex


@pytest.fixture(scope="module")
def spec(riverswim, stream):
    return riverswim.spec(knowledge={"span": stream.optimal_gain(riverswim)[1]})


def tuned(spec, steps):
    """H = 50 and beta = 0.3, as multipliers of the theorem's."""
    config = olsvi_fh.theory(spec, steps)
    config = dataclasses.replace(
        config, horizon_scale=49.5 / olsvi_fh.episode_length(spec, config, 12)
    )
    length = olsvi_fh.episode_length(spec, config, 12)
    return dataclasses.replace(config, bonus_scale=0.3 / olsvi_fh.bonus_factor(config, 12, length))


def test_constants_of_the_theorem(spec):
    config = olsvi_fh.theory(spec, 10**6)
    # sqrt(6.310324) 1e6^(1/4) / 12^(3/4) = 12.32 and (6.310324e6 / 144)^(1/3) = 35.26
    assert olsvi_fh.episode_length(spec, config, 12) == 13
    printed = dataclasses.replace(config, horizon_form="printed")
    assert olsvi_fh.episode_length(spec, printed, 12) == 36
    beta = 40 * 12 * 13 * np.sqrt(np.log(1e6 / 0.05))
    np.testing.assert_allclose(olsvi_fh.bonus_factor(config, 12, 13), beta)
    assert olsvi_fh.guarantee(config)
    assert olsvi_fh.guarantee(printed) is None
    assert olsvi_fh.guarantee(dataclasses.replace(config, lazy=True)) is None


def test_theory_bonus_hides_everything(riverswim, spec, stream):
    """With the theorem's beta every action looks equally good at this T."""
    run = stream.play(riverswim, olsvi_fh.LEARNER, olsvi_fh.theory(spec, 5000), 5000, spec=spec)
    np.testing.assert_array_equal(run.state.actions, 0)
    assert run.means.mean() < 0.1 * 0.4286


@pytest.mark.parametrize("seed", range(5))
def test_riverswim_tuned(seed, riverswim, spec, stream):
    config = tuned(spec, 100_000)
    run = stream.play(riverswim, olsvi_fh.LEARNER, config, 100_000, seed=seed, spec=spec)
    assert run.means[-20_000:].mean() >= 0.92 * stream.optimal_gain(riverswim)[0]


def test_lazy_plans_rarely(riverswim, spec, stream):
    config = dataclasses.replace(tuned(spec, 100_000), lazy=True)
    run = stream.play(riverswim, olsvi_fh.LEARNER, config, 100_000, spec=spec)
    assert run.state.plans < 12 * np.log2(100_000)
    assert run.state.episode == 1 + np.ceil(100_000 / run.state.length)
    assert run.means[-20_000:].mean() >= 0.9 * 0.4286


def test_bad_input(riverswim, spec):
    config = tuned(spec, 100_000)
    check = olsvi_fh.check
    with pytest.raises(ConfigError, match=r"needs the span .*knowledge=\{'span'"):
        check(riverswim.spec(), dataclasses.replace(config, span=None))
    with pytest.raises(ConfigError, match="less than one episode of H = "):
        check(spec, dataclasses.replace(config, horizon_scale=1e5))
    with pytest.raises(ConfigError, match=r"rewards in \[-1, 1\].*divide them by 3"):
        check(riverswim.replace(rewards=3.0 * riverswim.rewards).spec(), config)
    features = random_simplex(6, 2, 3, rng=np.random.default_rng(0))
    check(riverswim.spec(features=features, knowledge={"span": 6.3}), config)
    with pytest.raises(ModelError, match="normalise"):
        check(riverswim.spec(features=10.0 * features, knowledge={"span": 6.3}), config)
    with pytest.raises(ModelError, match="full rank"):
        check(riverswim.spec(features=np.repeat(features, 2, axis=2) / 2), config)
    with pytest.raises(ModelError, match=r"expected \(S, A, d\)"):
        check(riverswim.spec(features=features[:4]), config)
    check(
        riverswim.spec(features=normalise(10.0 * features).features, knowledge={"span": 6.3}),
        config,
    )
