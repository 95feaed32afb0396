"""Seeded confidence sets and targets for the tests of the projection."""

import warnings

import numpy as np

from tightrope.planning.confidence import confidence_from_counts, confidence_set


def random_confidence(rng, sizes, actions, counts, radius, *, available=None):
    """Rows drawn from `counts` samples of Dirichlet(0.3) distributions over the next layer."""
    layers = np.repeat(np.arange(len(sizes)), sizes)
    states, start = layers.size, np.concatenate([[0], np.cumsum(sizes)])
    p_bar = np.zeros((states, actions, states))
    for k in range(len(sizes) - 1):
        for x in range(start[k], start[k + 1]):
            for a in range(actions):
                p = rng.dirichlet(np.full(sizes[k + 1], 0.3))
                drawn = rng.multinomial(counts, p / p.sum()) / counts
                p_bar[x, a, start[k + 1] : start[k + 2]] = drawn
    return confidence_set(layers, p_bar, radius, available=available)


def random_instance(number):
    """Layer sizes 1..8, actions 1..4, radii from 0 to vacuous, z from inside to far outside."""
    rng = np.random.default_rng([20231, number])
    sizes = [1, *rng.integers(1, 9, size=rng.integers(1, 6)), 1]
    actions = int(rng.integers(1, 5))
    shape = (sum(sizes), actions)
    radius = rng.choice([0.0, 0.1, 0.4, 1.0, 1.6, 2.5]) * rng.uniform(0.5, 1.5, size=shape)
    if number % 4 == 0:
        radius = rng.uniform(0.0, 2.3, size=shape)
    available = None
    if number % 5 == 0:
        available = rng.random(shape) < 0.7
        available[:, 0] = True
    confidence = random_confidence(
        rng, sizes, actions, int(rng.integers(1, 40)), radius, available=available
    )
    z = rng.choice([0.0, 0.02, 0.2, 3.0]) * rng.normal(size=shape) + rng.choice([0.0, 0.1])
    return confidence, z


def check_feasible(projection, atol=1e-9):
    """The occupancies flow along the returned transitions, which lie in the confidence set."""
    confidence, q = projection.confidence, projection.q
    rows = projection.transitions.toarray()
    inner = confidence.layers < confidence.layers[-1]
    exists = confidence.available.ravel()
    assert (q >= 0).all()
    assert (q[~confidence.available] == 0).all()
    np.testing.assert_allclose(rows[exists].sum(axis=1), 1.0, atol=atol)
    assert (rows >= 0).all()
    distance = np.abs(rows - confidence.p_bar.toarray()).sum(axis=1)
    bound = confidence.radius.ravel()
    assert (distance[exists] <= np.where(bound < 2, bound, 2)[exists] + atol).all()
    inflow = q.ravel() @ rows
    inflow[0] = 1.0
    np.testing.assert_allclose(q.sum(axis=1)[inner], inflow[inner], atol=atol)
    np.testing.assert_allclose(
        np.bincount(confidence.layers[inner], weights=q.sum(axis=1)[inner]), 1.0, atol=atol
    )


def learner_like_targets(number, rounds=80):
    """(confidence set, step of loss) as a learner meets them: counts grow, losses may have ties.

    A new set every 8 rounds; the steps of one number are alike, of all from 1e-4 to 10.
    """
    rng = np.random.default_rng(number)
    sizes = [1, *rng.integers(1, 9, size=rng.integers(1, 6)), 1]
    shape = (sum(sizes), int(rng.integers(1, 5)))
    layers, start = np.repeat(np.arange(len(sizes)), sizes), np.concatenate([[0], np.cumsum(sizes)])
    concentration = rng.choice([0.05, 0.3, 3])
    true = np.zeros((*shape, shape[0]))
    for k in range(len(sizes) - 1):
        rows = rng.dirichlet(np.full(sizes[k + 1], concentration), (sizes[k], shape[1]))
        true[start[k] : start[k + 1], :, start[k + 1] : start[k + 2]] = rows
    counts = np.zeros_like(true)
    step, ties = 10.0 ** rng.uniform(-4, 1), rng.random() < 0.3
    for t in range(rounds):
        if t % 8 == 0:
            scale = 10.0 ** rng.uniform(-1, 3.5)
            for x in range(shape[0] - 1):
                for a in range(shape[1]):
                    visits = int(rng.exponential(scale))
                    counts[x, a] += rng.multinomial(visits, true[x, a] / true[x, a].sum())
            confidence = confidence_from_counts(layers, counts, episodes=1000, delta=0.1)
            steady = rng.random(shape)
        loss = rng.random(shape) if t % 3 == 0 else steady
        yield confidence, step * (np.round(2 * loss) if ties else loss)


def textbook(confidence, z):
    """The projection as the paper writes it, in q(x, a, y), solved by CVXPY; and its own accuracy.

    Nothing of the package but the set's tables is used. The accuracy is sqrt(2 gap) from the
    solver's primal and dual objective, and what its constraints are off.
    """
    import cvxpy as cp

    layers, (states, actions) = confidence.layers, confidence.shape
    p_bar = confidence.p_bar.toarray()
    pairs, objective, constraints = [], 0.0, []
    arrive = {x: [] for x in range(states)}
    leave = {x: [] for x in range(states)}
    for x in np.flatnonzero(layers < layers[-1]):
        following = np.flatnonzero(layers == layers[x] + 1)
        for a in np.flatnonzero(confidence.available[x]):
            q = cp.Variable(following.size, nonneg=True)
            total, radius = cp.sum(q), confidence.radius[x, a]
            if radius < 2.0:
                centre = p_bar[x * actions + a, following]
                constraints.append(cp.norm1(q - total * centre) <= radius * total)
            pairs.append(total)
            leave[x].append(total)
            objective += 0.5 * cp.square(total - z[x, a])
            for i, y in enumerate(following):
                arrive[y].append(q[i])
    constraints += [
        sum(leave[x]) == (1.0 if x == 0 else sum(arrive[x]))
        for x in np.flatnonzero(layers < layers[-1])
    ]
    problem = cp.Problem(cp.Minimize(objective), constraints)
    tight = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-12)
    options = {**tight, "accept_unknown": True}  # the last digits are out of reach now and then
    data, chain, inverse = problem.get_problem_data("CLARABEL", solver_opts=options)
    found = chain.solve_via_data(problem, data, solver_opts=options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        problem.unpack_results(found, chain, inverse)
    off = max(float(np.max(constraint.violation())) for constraint in constraints)
    accuracy = np.sqrt(2.0 * abs(found.obj_val - found.obj_val_dual)) + 10.0 * off
    return np.array([pair.value for pair in pairs]), accuracy
