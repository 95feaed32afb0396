"""FOPO's program: exact against brute force written independently in CVXPY."""

import itertools

import numpy as np
import pytest

from tightrope.errors import Status
from tightrope.planning import fixed_point
from tightrope.planning.fixed_point import solve_fixed_point
from tightrope.problems import riverswim

cp = pytest.importorskip("cvxpy")


def instance(seed, states=3, actions=2, dimension=3, steps=60):
    """Statistics of a random stream with normed features that span the constant."""
    rng = np.random.default_rng(seed)
    features = rng.dirichlet(np.full(dimension, 0.4), size=(states, actions))
    path, played = rng.integers(0, states, steps + 1), rng.integers(0, actions, steps)
    rewards = rng.uniform(-1, 1, size=(states, actions))[path[:-1], played]
    phi = features[path[:-1], played]
    successors = np.zeros((dimension, states))
    np.add.at(successors.T, path[1:], phi)
    gram = np.eye(dimension) + phi.T @ phi
    return {
        "features": features,
        "gram": gram,
        "reward_sum": phi.T @ rewards,
        "feature_sum": phi.sum(axis=0),
        "successor_sum": successors,
        "beta": float(10 ** rng.uniform(-1.5, 0.7)),
        "radius": float(rng.uniform(1.0, 8.0)),
    }


def brute_force(parts):
    """The largest J over all action selections, each a cone program as the paper writes it."""
    features, gram = parts["features"], parts["gram"]
    states, actions, dimension = features.shape
    inverse, root = np.linalg.inv(gram), np.linalg.cholesky(gram).T
    best = -np.inf
    for selection in itertools.product(range(actions), repeat=states):
        w, b, gain = cp.Variable(dimension), cp.Variable(dimension), cp.Variable()
        values = [features[y, a] @ w for y, a in enumerate(selection)]
        target = parts["reward_sum"] - gain * parts["feature_sum"]
        target = target + sum(parts["successor_sum"][:, y] * v for y, v in enumerate(values))
        rules = [
            w == inverse @ target + b,
            cp.norm(root @ b) <= parts["beta"],
            cp.norm(w) <= parts["radius"],
            gain <= 1,
            gain >= -1,
        ]
        for y, a in enumerate(selection):
            rules += [values[y] >= features[y, other] @ w for other in range(actions) if other != a]
        problem = cp.Problem(cp.Maximize(gain), rules)
        problem.solve(solver=cp.CLARABEL)
        if problem.status in ("optimal", "optimal_inaccurate"):
            best = max(best, float(gain.value))
    return best


def check_feasible(parts, found):
    """Every constraint of the program, at the returned point."""
    values = (parts["features"] @ found.weights).max(axis=1)
    target = parts["reward_sum"] - found.gain * parts["feature_sum"]
    fitted = np.linalg.solve(parts["gram"], target + parts["successor_sum"] @ values)
    np.testing.assert_allclose(found.weights, fitted + found.slack, atol=1e-6)
    norm = float(np.sqrt(found.slack @ parts["gram"] @ found.slack))
    np.testing.assert_allclose(norm, found.slack_norm, atol=1e-8)
    assert norm <= parts["beta"] * (1 + 1e-7) + 1e-9
    assert np.linalg.norm(found.weights) <= parts["radius"] * (1 + 1e-7)
    assert -1 - 1e-9 <= found.gain <= min(1.0, found.upper_bound) + 1e-9


@pytest.mark.parametrize(
    "seeds", [range(4), pytest.param(range(4, 50), marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_exact_equals_brute_force(seeds):
    interesting = 0
    for seed in seeds:
        parts = instance(seed)
        found = solve_fixed_point(**parts)
        expected = brute_force(parts)
        assert found.status is Status.SOLVED
        np.testing.assert_allclose(found.gain, expected, atol=2e-6)
        check_feasible(parts, found)
        interesting += found.gain < 0.999
    assert interesting >= len(seeds) / 4


def test_local_solutions_are_feasible_and_bounded():
    for seed in range(6):
        parts = instance(seed, states=6, dimension=4, steps=200)
        exact = solve_fixed_point(**parts)
        local = solve_fixed_point(**parts, method="local")
        check_feasible(parts, local)
        assert local.gain <= exact.gain + 1e-6 <= local.upper_bound + 2e-6
        assert local.nodes < exact.nodes + 30


def test_node_limit_is_said_and_bounded():
    parts = instance(3, states=7, actions=3, dimension=5, steps=300)
    parts["beta"] = 0.2
    exact = solve_fixed_point(**parts)
    cut = solve_fixed_point(**parts, node_limit=3)
    assert cut.status is Status.NOT_CONVERGED
    assert cut.gain <= exact.gain + 1e-6 <= cut.upper_bound + 2e-6
    assert cut.gap > 0
    assert not cut.proved


def test_ties_left_open_do_not_unprove_the_gain():
    """The tie-break has the nodes that the first stage left, all of them."""
    parts = instance(0, states=5)
    parts["beta"] = 10.0
    assert solve_fixed_point(**parts).status is Status.SOLVED
    for limit in range(10, 20):
        cut = solve_fixed_point(**parts, node_limit=limit)
        assert cut.status is Status.NOT_CONVERGED
        assert cut.proved
        assert cut.gain == cut.upper_bound == 1.0
        assert cut.nodes > limit


def test_weights_do_not_depend_on_the_order_of_things():
    """Relabelled states and turned coordinates give the same w to 1e-6: ties are broken."""
    rng = np.random.default_rng(1)
    for seed in range(12):
        parts = instance(seed, states=4, dimension=3, steps=100)
        parts["beta"] = [0.2, 1e4][seed % 2]
        found = solve_fixed_point(**parts)
        turn, other = moved(parts, rng)
        again = solve_fixed_point(**other)
        np.testing.assert_allclose(turn.T @ again.weights, found.weights, atol=1e-6)


def riverswim_statistics(rng):
    """What some steps on one-hot RiverSwim leave, a hundredth as many on some pairs."""
    model = riverswim()
    counts = np.floor(10 ** rng.uniform(2.3, 4.5) * 10 ** rng.uniform(-2, 0, (6, 2))).ravel()
    return {
        "features": np.eye(12).reshape(6, 2, 12),
        "gram": np.diag(1 + counts),
        "reward_sum": counts * model.rewards.ravel(),
        "feature_sum": counts.copy(),
        "successor_sum": counts[:, None] * model.dense().reshape(12, 6),
        "beta": float(10 ** rng.uniform(-0.5, 1)),
        "radius": 8.31 * np.sqrt(12),
    }


def moved(parts, rng):
    """The same program with states relabelled and coordinates turned by `turn`."""
    states, _, dimension = parts["features"].shape
    order, turn = (
        rng.permutation(states),
        np.linalg.qr(rng.normal(size=(dimension, dimension)))[0],
    )
    return turn, {
        **parts,
        "features": parts["features"][order] @ turn.T,
        "gram": turn @ parts["gram"] @ turn.T,
        "reward_sum": turn @ parts["reward_sum"],
        "feature_sum": turn @ parts["feature_sum"],
        "successor_sum": turn @ parts["successor_sum"][:, order],
    }


@pytest.mark.parametrize(
    "number", [6, pytest.param(40, marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_weights_on_riverswim_are_right_to_rounding(number):
    """The polish, not the interior point: that one left up to 6e-6 here."""
    rng, below = np.random.default_rng(5), 0
    for _ in range(number):
        parts = riverswim_statistics(rng)
        found = solve_fixed_point(**parts)
        turn, other = moved(parts, rng)
        again = solve_fixed_point(**other)
        np.testing.assert_allclose(turn.T @ again.weights, found.weights, atol=1e-9)
        np.testing.assert_allclose(again.gain, found.gain, atol=1e-12)
        check_feasible(parts, found)
        below += found.gain < 0.9
    assert below >= number / 3


def test_tie_break_at_the_cap_is_right_to_rounding():
    """J = 1, |w| on its sphere: one instance where the interior point was off by 4e-5."""
    parts = instance(201, states=4, actions=3, dimension=3, steps=15)
    parts["beta"] = 2.8659194838655186
    for seed in range(4):
        turn, other = moved(parts, np.random.default_rng(seed))
        found, again = solve_fixed_point(**parts), solve_fixed_point(**other)
        assert found.gain == 1.0
        np.testing.assert_allclose(np.linalg.norm(found.weights), parts["radius"], rtol=1e-12)
        np.testing.assert_allclose(turn.T @ again.weights, found.weights, atol=1e-10)


def test_infeasible_is_a_status():
    """200 rounds of a ring of 20 states: w must have the span of its bias, and may not."""
    ring = np.roll(np.eye(20), 1, axis=0)  # [x, y]: x goes to x + 1
    rewards = np.where(np.arange(20) < 10, 1.0, -1.0)
    found = solve_fixed_point(
        np.eye(20)[:, None],
        201.0 * np.eye(20),
        200.0 * rewards,
        np.full(20, 200.0),
        200.0 * ring.T,
        beta=0.5,
        radius=8.0,
    )
    assert found.status is Status.INFEASIBLE
    assert np.isnan(found.gain)
    assert np.isnan(found.weights).all()


def test_a_cone_program_that_fails_leaves_its_node_open(monkeypatch):
    """Nothing is proved, and the bound still holds, where the solver gives up at some node."""
    parts = instance(3, states=7, actions=3, dimension=5, steps=300)
    parts["beta"] = 0.2
    exact = solve_fixed_point(**parts)
    inner, calls = fixed_point._relaxation, []

    def failing(program, fixed, gain, **options):
        calls.append(1)
        if len(calls) % 3 == 0 and (fixed < 0).any():
            raise fixed_point._Undecided("MaxIterations")
        return inner(program, fixed, gain, **options)

    monkeypatch.setattr(fixed_point, "_relaxation", failing)
    found = solve_fixed_point(**parts)
    assert found.status is Status.NOT_CONVERGED
    assert found.gain <= exact.gain + 1e-6 <= found.upper_bound + 2e-6


def test_no_data_gives_the_origin():
    features = np.eye(4).reshape(2, 2, 4)
    found = solve_fixed_point(
        features, np.eye(4), np.zeros(4), np.zeros(4), np.zeros((4, 2)), beta=10.0, radius=5.0
    )
    assert (found.gain, found.status) == (1.0, Status.SOLVED)
    np.testing.assert_allclose(found.weights, 0.0, atol=1e-9)


def test_singular_system_takes_the_least_weights():
    """phi = (1, 0) three times into a state with (4/3, 0): Gram - M phi' = diag(0, 1), w_1 is free.

    By hand: 0 = 3 r - 3 J + 4 b_1, |b|_Gram = 2 |b_1| <= beta, so J = r + 2 beta / 3 and w = 0.
    """
    found = solve_fixed_point(
        np.array([[[4 / 3, 0.0]], [[0.0, 1.0]]]),
        np.diag([4.0, 1.0]),
        np.array([0.3, 0.0]),
        np.array([3.0, 0.0]),
        np.array([[3.0, 0.0], [0.0, 0.0]]),
        beta=0.3,
        radius=5.0,
    )
    np.testing.assert_allclose(found.gain, 0.1 + 0.2, atol=1e-7)
    np.testing.assert_allclose(found.weights, 0.0, atol=1e-6)
    np.testing.assert_allclose(found.slack, [0.15, 0.0], atol=1e-6)


def test_tie_break_at_the_cap_is_the_least_slack():
    """One pair, n visits to itself, J = 1: (1 + n(1 - 1)) w = n (r - 1) + (1 + n) b, |w| <= R.

    w = n (r - 1) is out of reach for large n, so b is the least that brings w to -R.
    """
    n, reward, radius = 50.0, 0.5, 5.0
    found = solve_fixed_point(
        np.ones((1, 1, 1)),
        np.array([[1 + n]]),
        np.array([n * reward]),
        np.array([n]),
        np.array([[n]]),
        beta=1e4,
        radius=radius,
    )
    assert found.gain == 1.0
    slack = (-radius - n * (reward - 1)) / (1 + n)
    np.testing.assert_allclose(found.weights, [-radius], atol=1e-6)
    np.testing.assert_allclose(found.slack, [slack], atol=1e-6)
    np.testing.assert_allclose(found.slack_norm, slack * np.sqrt(1 + n), atol=1e-6)
