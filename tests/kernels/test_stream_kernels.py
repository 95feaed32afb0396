"""Compiled kernels of a single stream against their NumPy twins."""

import numpy as np
import pytest

from tightrope.kernels import linear, stream, ucrl
from tightrope.kernels.reference import linear as linear_np
from tightrope.kernels.reference import stream as stream_np
from tightrope.kernels.reference import ucrl as ucrl_np

S, A, D = 23, 3, 4


def world(rng):
    """Rows of 2 to 23 successors, two costs."""
    rows, cumulative = [], []
    for _ in range(S * A):
        successors = np.sort(rng.choice(S, rng.integers(2, S + 1), replace=False))
        probabilities = np.cumsum(rng.dirichlet(np.ones(len(successors))))
        probabilities[-1] = 1.0
        rows.append(successors)
        cumulative.append(probabilities)
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    pays = rng.uniform(size=indptr[-1])
    return (
        indptr[:-1],
        indptr[1:],
        np.concatenate(rows).astype(np.int32),
        np.concatenate(cumulative),
        pays,
        rng.uniform(size=(2, pays.size)),
    )


def policies(rng):
    cumulative = np.cumsum(rng.dirichlet(np.ones(A), size=(2, S)), axis=2)
    cumulative[..., -1] = 1.0
    none = np.zeros((0, 0), dtype=np.int32)
    fixed = rng.integers(0, A, size=(5, S)).astype(np.int32)
    return {"fixed": (fixed, np.zeros((0, 0, 0))), "random": (none, cumulative)}


@pytest.mark.parametrize("kind", ["fixed", "random"])
@pytest.mark.parametrize("rule", ["steps", "visits", "ahead", "determinant"])
@pytest.mark.parametrize("bernoulli", [False, True])
def test_roll_stream_equals_its_twin(kind, rule, bernoulli):
    rng = np.random.default_rng(3)
    table, parts = policies(rng)[kind], world(rng)
    features = rng.dirichlet(np.ones(D), size=(S, A))
    uniforms = rng.random((400, 5))
    outputs = []
    for roll in (stream.roll_stream, stream_np.roll_stream):
        counted = rule in ("visits", "ahead")
        visits = np.full((S, A), 4) if counted else np.zeros((0, 0), dtype=np.int64)
        inverse = np.eye(D) / 20 if rule == "determinant" else np.zeros((0, 0))
        ratio = np.ones(1)
        out = np.zeros(401, np.int32), np.zeros(400, np.int32), np.zeros(400), np.zeros((400, 2))
        done = roll(
            2, 1, *table, *parts, bernoulli, uniforms, visits, rule == "ahead", features,
            inverse, ratio, *out,
        )  # fmt: skip
        outputs.append((*done, *out, visits, inverse, ratio))
    for ours, theirs in zip(*outputs):
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    assert outputs[0][1] == (rule != "steps")


def test_determinant_rule_stops_where_the_determinant_doubles():
    rng = np.random.default_rng(5)
    parts, features = world(rng), rng.normal(size=(S, A, D)) / 3
    gram = 3 * np.eye(D)
    inverse, ratio = np.linalg.inv(gram), np.ones(1)
    out = np.zeros(401, np.int32), np.zeros(400, np.int32), np.zeros(400), np.zeros((400, 2))
    table = policies(rng)["random"]
    none = np.zeros((0, 0), dtype=np.int64)
    steps, stopped = stream.roll_stream(
        0, 0, *table, *parts, False, rng.random((400, 3)), none, False, features, inverse,
        ratio, *out,
    )  # fmt: skip
    phi = features[out[0][:steps], out[1][:steps]]
    before = np.linalg.det(gram + phi[:-1].T @ phi[:-1]) / np.linalg.det(gram)
    after = np.linalg.det(gram + phi.T @ phi) / np.linalg.det(gram)
    assert stopped
    assert before < 2 <= after
    np.testing.assert_allclose(ratio[0], after, rtol=1e-12)


def random_balls(rng):
    p_hat = rng.dirichlet(np.full(S, 0.2), size=(S, A))
    available = rng.random((S, A)) < 0.8
    available[:, 0] = True
    radius = rng.uniform(0, 1.5, size=(S, A))
    p_hat[rng.random((S, A)) < 0.1] = 0.0
    return p_hat, rng.uniform(-1, 1, size=(S, A)), radius, available


def test_extended_value_iteration_equals_its_twin():
    rng = np.random.default_rng(11)
    p_hat, rewards, radius, available = random_balls(rng)
    args = (p_hat, rewards, radius, available, np.zeros(S), 1e-4, 10_000)
    ours = ucrl.extended_value_iteration(*args)
    theirs = ucrl_np.extended_value_iteration(*args)
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_allclose(ours[1], theirs[1], atol=1e-8)
    np.testing.assert_allclose(ours[2:4], theirs[2:4], atol=1e-8)
    assert ours[4] == theirs[4] < 10_000


def test_inner_maximum_equals_a_linear_program():
    """The row of the twin against HiGHS over the L1 ball."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(2)
    for _ in range(20):
        p_hat, values, radius = rng.dirichlet(np.ones(5)), rng.normal(size=5), rng.uniform(0, 2.2)
        row = ucrl_np.optimistic_row(p_hat, radius, values)
        # p = p_hat + up - down with sum(up) + sum(down) <= radius
        eye = np.eye(5)
        solved = linprog(
            np.concatenate([-values, values]),
            A_ub=np.vstack([np.ones((1, 10)), np.hstack([-eye, eye])]),
            b_ub=np.concatenate([[radius], p_hat]),
            A_eq=np.concatenate([np.ones(5), -np.ones(5)])[None],
            b_eq=[0.0],
            bounds=(0, None),
        )
        np.testing.assert_allclose(row @ values, p_hat @ values - solved.fun, atol=1e-9)


def test_counting_equals_its_twin():
    rng = np.random.default_rng(0)
    states, actions = rng.integers(0, S, 501), rng.integers(0, A, 500)
    rewards = rng.random(500)
    ours = np.zeros((S, A)), np.zeros((S, A, S)), np.zeros((S, A))
    theirs = np.zeros((S, A)), np.zeros((S, A, S)), np.zeros((S, A))
    ucrl.count_transitions(states, actions, rewards, *ours)
    ucrl_np.count_transitions(states, actions, rewards, *theirs)
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_least_squares_value_iteration_equals_its_twin():
    rng = np.random.default_rng(7)
    features = rng.dirichlet(np.ones(D), size=(S, A))
    states, actions = rng.integers(0, S, 501), rng.integers(0, A, 500)
    rewards = rng.random(500)
    ours = np.eye(D), np.zeros(D), np.zeros((D, S))
    theirs = np.eye(D), np.zeros(D), np.zeros((D, S))
    linear.add_to_statistics(features, states, actions, rewards, *ours)
    linear_np.add_to_statistics(features, states, actions, rewards, *theirs)
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(one, other, atol=1e-10)
    available = rng.random((S, A)) < 0.7
    available[:, 1] = True
    args = (features, *ours, 0.7, available, 6.0, 12)
    for one, other in zip(
        linear.least_squares_value_iteration(*args), linear_np.least_squares_value_iteration(*args)
    ):
        np.testing.assert_allclose(one, other, atol=1e-10)


def test_sgd_and_lstd_equal_their_twins():
    rng = np.random.default_rng(8)
    gradients, targets = rng.normal(size=(300, D)), rng.normal(size=300)
    for radius in (0.05, 100.0):
        ours = linear.averaged_sgd(gradients, targets, 0.02, radius)
        theirs = linear_np.averaged_sgd(gradients, targets, 0.02, radius)
        np.testing.assert_allclose(ours, theirs, atol=1e-12)
    features = rng.dirichlet(np.ones(D), size=(S, A))
    policy = rng.dirichlet(np.ones(A), size=S)
    states, actions = rng.integers(0, S, 501), rng.integers(0, A, 500)
    rewards = rng.random(500)
    one, other = (np.zeros((D, D)), np.zeros(D)), (np.zeros((D, D)), np.zeros(D))
    linear.add_differences(features, policy, states, actions, rewards, 0.4, *one)
    linear_np.add_differences(features, policy, states, actions, rewards, 0.4, *other)
    np.testing.assert_allclose(one[0], other[0], atol=1e-10)
    np.testing.assert_allclose(one[1], other[1], atol=1e-10)
