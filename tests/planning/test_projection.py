"""The projection against the quadratic program, closed forms, and its own certificate."""

import sys

import numpy as np
import pytest
from tests.planning.confidence_samples import (
    check_feasible,
    learner_like_targets,
    random_confidence,
    random_instance,
    textbook,
)

from tightrope.errors import ConfigError, MissingExtraError, ModelError, Status
from tightrope.planning.confidence import confidence_from_counts, confidence_set
from tightrope.planning.projection import Projector, project
from tightrope.planning.projection_program import solve_program


def compare(number, solver):
    confidence, z = random_instance(number)
    found = project(z, confidence)
    assert found.status is Status.SOLVED
    assert found.solver == "cuts"
    assert found.distance <= 1e-5
    check_feasible(found)
    other, _, _ = solve_program(confidence, z, solver=solver)
    mine = found.q.ravel()[confidence.pairs]
    # the program's own error: a gap of 1e-10 certifies 1.4e-5, its feasibility adds to that
    assert np.linalg.norm(mine - other) <= found.distance + 2e-5


@pytest.mark.parametrize("number", range(40))
def test_agrees_with_the_program(number):
    compare(number, "piqp")


@pytest.mark.parametrize("number", range(0, 40, 10))
def test_agrees_with_the_program_in_cvxpy(number):
    compare(number, "cvxpy")


def compare_with_textbook(number):
    """Within the certified distance and CVXPY's own accuracy, with no program of the package."""
    confidence, z = random_instance(number)
    found = project(z, confidence)
    assert found.distance <= 1e-5
    other, accuracy = textbook(confidence, z)
    assert accuracy < 5e-5  # the opponent's own gap
    off = np.linalg.norm(found.q.ravel()[confidence.pairs] - other)
    assert off <= found.distance + accuracy


@pytest.mark.parametrize("number", range(0, 40, 8))
def test_agrees_with_the_textbook_form(number):
    compare_with_textbook(number)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(300))
def test_agrees_with_the_textbook_form_on_300_instances(number):
    compare_with_textbook(number)


@pytest.mark.parametrize("number", range(12))
def test_tight_tolerance(number):
    confidence, z = random_instance(number)
    z *= 0.2 / max(0.2, np.abs(z).max())
    found = project(z, confidence, tol=1e-7)
    assert found.status is Status.SOLVED
    assert found.distance <= 1e-7
    other, _, _ = solve_program(confidence, z, tol=1e-13)
    assert np.linalg.norm(found.q.ravel()[confidence.pairs] - other) <= found.distance + 1e-6


@pytest.mark.parametrize("number", range(6))
def test_same_input_gives_the_same_bits(number):
    confidence, z = random_instance(number)
    first, again = project(z, confidence), project(z, confidence)
    for name in ("q", "heights", "fractions", "landing"):
        assert getattr(first, name).tobytes() == getattr(again, name).tobytes()


@pytest.mark.parametrize("number", range(12))
def test_warm_start_gives_the_same_projection(number):
    confidence, z = random_instance(number)
    start = project(z, confidence)
    near = z + 0.01 * np.random.default_rng(number).normal(size=z.shape)
    warm, cold = project(near, confidence, start=start), project(near, confidence)
    assert warm.status is cold.status is Status.SOLVED
    assert np.linalg.norm(warm.q - cold.q) <= warm.distance + cold.distance + 1e-12
    assert project(near, confidence, start=warm).rounds == 1


def test_warm_start_over_a_change_of_the_confidence_set():
    rng = np.random.default_rng(5)
    z = 0.1 * rng.normal(size=(14, 2))
    old = random_confidence(rng, [1, 6, 6, 1], 2, 10, 0.6)
    new = random_confidence(rng, [1, 6, 6, 1], 2, 25, 0.4)
    warm, cold = project(z, new, start=project(z, old)), project(z, new)
    assert warm.status is Status.SOLVED
    assert np.linalg.norm(warm.q - cold.q) <= warm.distance + cold.distance + 1e-12
    check_feasible(warm)


def test_saved_arrays_continue_bit_for_bit():
    rng = np.random.default_rng(6)
    confidence = random_confidence(rng, [1, 7, 7, 7, 1], 3, 20, 0.5)
    targets = 0.1 * rng.normal(size=(6, *confidence.shape))
    whole = Projector(confidence)
    for z in targets[:3]:
        whole.project(z)
    resumed = Projector(confidence, heights=whole.heights.copy(), fractions=whole.fractions.copy())
    for z in targets[3:]:
        assert whole.project(z) == resumed.project(z)
        assert whole.occupancy.tobytes() == resumed.occupancy.tobytes()


# in 7, 50, 111, 194 and 225 a Newton step that does not rise was once tried for ever
@pytest.mark.parametrize("number", [0, 1, 2, 3, 7, 50, 111, 194, 225])
def test_many_warm_rounds_are_all_certified(number):
    projector, q = None, 0.1
    for confidence, loss in learner_like_targets(number):
        if projector is None:
            projector = Projector(confidence)
        elif projector.confidence is not confidence:
            projector.change(confidence)
        assert projector.project(q - loss) <= 1e-5
        assert projector.rounds <= 15
        assert projector.steps <= 100
        q = projector.occupancy.copy()


def simplex_projection(v):
    """Held, Wolfe and Crowder: the threshold from the sorted entries."""
    w = np.sort(v)[::-1]
    shift = (1.0 - np.cumsum(w)) / np.arange(1, v.size + 1)
    return np.maximum(v + shift[w + shift > 0][-1], 0.0)


def test_vacuous_set_is_a_product_of_simplices():
    rng = np.random.default_rng(7)
    layers = np.repeat([0, 1, 2, 3], [1, 5, 4, 1])
    z = rng.normal(size=(11, 3))
    found = project(z, confidence_set(layers, np.zeros((11, 3, 11)), 2.0))
    for k in range(3):
        here = layers == k
        expected = simplex_projection(z[here].ravel())
        np.testing.assert_allclose(found.q[here].ravel(), expected, atol=1e-12)
    check_feasible(found)


def test_known_transitions_and_one_action_leave_one_point():
    rng = np.random.default_rng(8)
    confidence = random_confidence(rng, [1, 4, 5, 3, 1], 1, 30, 0.0)
    rows = confidence.p_bar.toarray()
    mass = np.eye(14)[0]
    expected = mass.copy()
    for _ in range(3):
        mass = mass @ rows
        expected += mass
    found = project(rng.normal(size=(14, 1)), confidence)
    np.testing.assert_allclose(found.q[:-1, 0], expected[:-1], atol=1e-12)


def test_a_feasible_target_is_its_own_projection():
    confidence, z = random_instance(11)
    inside = project(z, confidence, tol=1e-7)
    again = project(inside.q, confidence)
    assert np.linalg.norm(again.q - inside.q) <= again.distance + 1e-9


def test_policy_and_transitions_reproduce_q():
    confidence, z = random_instance(13)
    found = project(z, confidence)
    chain = (found.policy.probabilities.reshape(-1, 1) * found.transitions.toarray()).reshape(
        *confidence.shape, -1
    )
    step = chain.sum(axis=1)
    mass = np.zeros(confidence.shape[0])
    mass[0] = 1.0
    total = mass.copy()
    for _ in range(confidence.layers[-1]):
        mass = mass @ step
        total += mass
    inner = confidence.layers < confidence.layers[-1]
    np.testing.assert_allclose(total[inner], found.q.sum(axis=1)[inner], atol=1e-12)


def test_fallback_is_recorded_and_certified():
    rng = np.random.default_rng(9)
    confidence = random_confidence(rng, [1, 6, 6, 6, 1], 2, 20, 0.3)
    z = rng.normal(size=confidence.shape)
    exact = project(z, confidence)
    assert exact.rounds > 1
    found = project(z, confidence, max_rounds=1)
    assert found.solver == "qp"
    assert found.status is Status.SOLVED
    assert np.linalg.norm(found.q - exact.q) <= found.distance + exact.distance
    check_feasible(found)


def test_out_of_reach_tolerance_is_flagged():
    rng = np.random.default_rng(9)
    confidence = random_confidence(rng, [1, 6, 6, 6, 1], 2, 20, 0.3)
    found = project(rng.normal(size=confidence.shape), confidence, tol=1e-30, max_rounds=20)
    assert found.status is Status.NOT_CONVERGED
    assert found.distance > 1e-30
    check_feasible(found)


def test_bad_targets_are_named():
    confidence, z = random_instance(1)
    with pytest.raises(ConfigError, match="shape"):
        project(z[:-1], confidence)
    z[0, 0] = np.nan
    with pytest.raises(ConfigError, match=r"state 0, action 0.* is nan"):
        project(z, confidence)
    z[0, 0] = 1e200
    with pytest.raises(ConfigError, match=r"state 0, action 0.* is 1e\+200"):
        project(z, confidence)
    for tol in (0.0, np.nan, "a", None):
        with pytest.raises(ConfigError, match="tol must be > 0"):
            project(np.zeros_like(z), confidence, tol=tol)
    z[0, 0] = np.nan
    projector = Projector(confidence)
    with pytest.raises(ConfigError, match="not finite"):
        projector.project(z)
    with pytest.raises(ConfigError, match="shape"):
        projector.project(z[:-1])


def test_targets_may_be_read_only_or_strided():
    confidence, z = random_instance(1)
    expected = project(z, confidence).q
    z.setflags(write=False)
    np.testing.assert_array_equal(project(z, confidence).q, expected)
    np.testing.assert_array_equal(project(np.asfortranarray(z), confidence).q, expected)


def test_bad_sets_are_named():
    p_bar = np.zeros((4, 1, 4))
    p_bar[0, 0, 1:3] = [0.5, 0.44]
    p_bar[1:3, 0, 3] = 1.0
    with pytest.raises(ModelError, match=r"\(state 0, action 0\) sums to 0.94"):
        confidence_set([0, 1, 1, 2], p_bar, 0.5)
    p_bar[0, 0] = [0.0, 0.5, 0.0, 0.5]
    with pytest.raises(ModelError, match=r"to state 3 .* into layer 1 only"):
        confidence_set([0, 1, 1, 2], p_bar, 0.5)
    with pytest.raises(ModelError, match="radius of"):
        confidence_set([0, 1, 1, 2], p_bar, -0.5)
    with pytest.raises(ModelError, match="state 2 is in layer 3"):
        confidence_set([0, 1, 3, 3], p_bar, 2.0)
    with pytest.raises(ModelError, match="one state in layer 0"):
        confidence_set([0, 0, 1, 2], p_bar, 2.0)
    with pytest.raises(ModelError, match="state 1 has no available action"):
        confidence_set([0, 1, 1, 2], p_bar, 2.0, available=[[1], [0], [1], [1]])


def test_counts_give_equation_10():
    counts = np.zeros((4, 1, 4))
    counts[0, 0, 1:3] = [300, 100]
    counts[1, 0, 3] = 400
    confidence = confidence_from_counts([0, 1, 1, 2], counts, episodes=1000, delta=0.1)
    expected = np.sqrt(2 * 2 * np.log(1000 * 4 / 0.1) / 400)
    assert confidence.radius[0, 0] == pytest.approx(expected, rel=1e-12)
    assert confidence.radius[2, 0] >= 2.0
    np.testing.assert_allclose(confidence.p_bar.toarray()[0], [0, 0.75, 0.25, 0])
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(ModelError, match="counts must be finite numbers >= 0"):
            confidence_from_counts(
                [0, 1, 1, 2], np.where(counts > 0, wrong, 0.0), episodes=1000, delta=0.1
            )
    with pytest.raises(ConfigError, match="delta"):
        confidence_from_counts([0, 1, 1, 2], counts, episodes=1000, delta=1.0)


def test_fallback_names_its_extra(monkeypatch):
    rng = np.random.default_rng(9)
    confidence = random_confidence(rng, [1, 6, 6, 6, 1], 2, 20, 0.3)
    monkeypatch.setitem(sys.modules, "piqp", None)
    with pytest.raises(MissingExtraError, match=r"tightrope\[qp\]"):
        project(rng.normal(size=confidence.shape), confidence, max_rounds=1)
