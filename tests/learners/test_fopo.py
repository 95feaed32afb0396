"""FOPO on one-hot RiverSwim: optimism, updates, learning, and what it refuses."""

import dataclasses

import numpy as np
import pytest

import tightrope as tr
from tightrope.errors import ConfigError, Status
from tightrope.learners import fopo

pytest.importorskip("clarabel")


@pytest.fixture(scope="module")
def spec(riverswim, stream):
    span = stream.optimal_gain(riverswim)[1]
    return riverswim.spec(features=np.eye(12).reshape(6, 2, 12), knowledge={"span": span})


def test_constants_of_the_theorem(spec):
    config = fopo.theory(spec, 10**5, 0.05)
    beta, radius = fopo.radii(spec, config, 12)
    np.testing.assert_allclose(beta, 20 * 8.310324 * 12 * np.sqrt(np.log(2e6)), rtol=1e-6)
    np.testing.assert_allclose(radius, 8.310324 * np.sqrt(12), rtol=1e-6)
    assert fopo.guarantee(config)
    assert fopo.guarantee(dataclasses.replace(config, method="local")) is None
    assert fopo.guarantee(dataclasses.replace(config, beta_scale=0.1)) is None


def test_updates_when_the_determinant_doubles(riverswim, spec, stream):
    config = dataclasses.replace(fopo.theory(spec, 150), beta_scale=1e-3)
    run = stream.play(riverswim, fopo.LEARNER, config, 150, spec=spec)
    # log2 det(Gram) counts the doublings: the last one may be unfinished
    doublings = np.linalg.slogdet(run.state.gram)[1] / np.log(2)
    assert len(run.infos) - 1 <= doublings + 1e-9
    assert len(run.infos) <= 12 * np.log2(1 + 150 / 12) + 1
    assert run.state.updates == len(run.infos) + 1
    assert all(info["proved"] == 1.0 and info["gap"] <= 1e-6 for info in run.infos)


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "small"), [(1.0, False), (3e-4, True)])
def test_optimism(scale, small, riverswim, spec, stream):
    """J_t >= J* in at least 1 - delta of the updates, also where J_t < 0.9 in most of them."""
    best, _ = stream.optimal_gain(riverswim)
    steps, delta = (5000, 0.05) if not small else (300_000, 0.05)
    config = dataclasses.replace(fopo.theory(spec, steps, delta), beta_scale=scale)
    run = stream.play(riverswim, fopo.LEARNER, config, steps, spec=spec)
    gains = np.array([info["gain"] for info in run.infos])
    assert all(info["proved"] == 1.0 for info in run.infos)
    assert (gains >= best - 1e-7).mean() >= 1 - delta
    if small:
        assert (gains < 0.9).mean() > 0.5
        assert run.means[-steps // 5 :].mean() >= 0.95 * best


def test_infeasible_programs_stop_the_run_with_a_reason():
    ring = tr.FiniteMDP(
        transitions=np.roll(np.eye(20), 1, axis=1)[:, None],
        axes="sas",
        rewards=np.where(np.arange(20) < 10, 1.0, -1.0)[:, None],
        criterion="average",
    )
    with pytest.raises(ConfigError, match=r"no feasible point.*raise beta_scale or span"):
        tr.run(ring, "fopo", steps=3000, span=0.01)


def test_a_failed_solve_keeps_the_policy_and_is_counted(spec, monkeypatch):
    state = fopo.init(spec, fopo.theory(spec, 1000))
    before = state.weights.copy()
    lost = fopo.solve_fixed_point(
        state.features, state.gram, np.zeros(12), np.zeros(12), np.zeros((12, 6)), beta=1, radius=1
    )
    nowhere = dataclasses.replace(lost, status=Status.NOT_CONVERGED, gain=np.nan)
    monkeypatch.setattr(fopo, "solve_fixed_point", lambda *args, **options: nowhere)
    fopo._solve(state)
    np.testing.assert_array_equal(state.weights, before)
    assert state.unmet() == ["in 1 of 2 programs J was not proved optimal"]
    # ties may stay open: Theorem 3 needs only J
    tied = dataclasses.replace(lost, status=Status.NOT_CONVERGED, gain=1.0, upper_bound=1.0)
    monkeypatch.setattr(fopo, "solve_fixed_point", lambda *args, **options: tied)
    fopo._solve(state)
    assert (state.updates, state.unproved) == (3, 1)
    open_gap = dataclasses.replace(tied, gain=0.5)
    monkeypatch.setattr(fopo, "solve_fixed_point", lambda *args, **options: open_gap)
    fopo._solve(state)
    assert (state.updates, state.unproved) == (4, 2)


def test_bad_input(riverswim, spec):
    config = fopo.theory(spec, 1000)
    with pytest.raises(ConfigError, match="needs the span"):
        fopo.check(riverswim.spec(), config)
    with pytest.raises(ConfigError, match="method"):
        fopo.check(spec, dataclasses.replace(config, method="guess"))
    with pytest.raises(ConfigError, match=r"rewards in \[-1, 1\]"):
        fopo.check(
            riverswim.replace(rewards=2.0 * riverswim.rewards).spec(knowledge={"span": 12.0}),
            config,
        )


def test_a_solver_that_goes_in_circles_tries_again():
    """At one update it does, at a node that has a point: once pruned as if it had none."""
    run = tr.run("riverswim", "fopo", steps=45, seed=3, delta=0.05)
    assert run.updates >= 18
    assert run.notes == []
