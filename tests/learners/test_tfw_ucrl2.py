"""TFW-UCRL2: its planner, its gradient, its epochs; Mars rover as one stream."""

import numpy as np
import pytest

import tightrope as tr
from tightrope.errors import ConfigError
from tightrope.kernels import ucrl as fast
from tightrope.kernels.reference import ucrl as plain
from tightrope.learners import tfw_ucrl2
from tightrope.simulation.runner import run


@pytest.mark.parametrize("seed", range(4))
def test_interval_value_iteration_twins(seed):
    rng = np.random.default_rng(seed)
    S, A = 5, 3
    p = rng.dirichlet(np.ones(S), size=(S, A))
    p[rng.random((S, A)) < 0.2] = 0.0  # never visited: every law is allowed
    radius = rng.random((S, A, S)) * 0.3
    radius[p.sum(axis=2) == 0] = 1.0
    available = rng.random((S, A)) < 0.8
    available[:, 0] = True
    args = (p, radius, rng.normal(size=(S, A)), available, np.zeros(S), 1e-9, 5000)
    left, right = fast.interval_value_iteration(*args), plain.interval_value_iteration(*args)
    assert (left[0] == right[0]).all()
    for a, b in zip(left[1:], right[1:]):
        assert a == pytest.approx(b, rel=1e-9, abs=1e-9)


def test_without_radius_it_is_plain_value_iteration():
    model = tr.problems.mars_rover_stream()
    reward = np.array(model.rewards)
    _, _, low, high, _ = fast.interval_value_iteration(
        model.dense(), np.zeros((64, 4, 64)), reward, np.array(model.available), np.zeros(64),
        1e-10, 100_000,
    )  # fmt: skip
    assert high - low < 1e-10
    free = tr.plan(model.replace(capacities=[1.0]))
    assert 0.5 * (low + high) == pytest.approx(free.value, abs=1e-9)
    assert 30 * free.value == pytest.approx(4.773, abs=5e-4)


def test_the_streams_own_optimum():
    solution = tr.plan(tr.problems.mars_rover_stream())
    assert 30 * solution.value == pytest.approx(2.0402, abs=5e-5)
    assert 30 * solution.costs[0] == pytest.approx(0.3, abs=1e-7)


def test_gradient_is_that_of_the_objective():
    spec = tr.problems.mars_rover_stream().spec()
    config = tfw_ucrl2.Config(coefficient=0.3)

    def g(w):
        over = np.maximum(w - np.array([1.0, spec.capacities[0]]), 0.0)
        return (0.3 * w[0] - 0.5 * over @ over) / 2

    w = np.array([0.2, 0.37])
    found = tfw_ucrl2.gradients(w[None], config, spec)[0]
    for i in range(2):
        step = 1e-6 * np.eye(2)[i]
        assert found[i] == pytest.approx((g(w + step) - g(w - step)) / 2e-6, abs=1e-8)


@pytest.mark.parametrize("m", [1, 2])
def test_epochs_end_where_the_rules_say(m):
    """Step by step, from the definition: the next pair's doubling, or the gradient's threshold."""
    base = tr.problems.random_cmdp(4, 2, horizon=3, num_costs=m, seed=1)
    model = tr.FiniteMDP(
        transitions=base.dense(), axes="sas", rewards=base.rewards, costs=base.costs,
        capacities=np.full(m, 0.1), criterion=tr.Average(),
    )  # fmt: skip
    spec = model.spec(feedback="mean")
    config = tfw_ucrl2.Config(radius="program", threshold=0.05)
    state = tfw_ucrl2.init(spec, config)
    rng = np.random.default_rng(3)
    s, mean, visits = 0, np.zeros(1 + m), np.zeros((4, 2))
    start, start_visits, changed = tfw_ucrl2.gradients(mean[None], config, spec)[0], visits, 0.0
    t, epoch, by_threshold, passed_over = 0, 1, 0, 0
    while t < 600:
        policy, stop = tfw_ucrl2.policy(state), tfw_ucrl2.horizon(state)
        states, actions, rewards, costs = [s], [], [], []
        room = stop.counts.copy()
        ended = False
        while len(actions) < stop.number and room[s, policy.actions[s]] > 0:
            assert not ended, "played on after the epoch's end"
            a = policy.actions[s]
            actions.append(a)
            rewards.append(model.rewards[s, a])
            costs.append(model.costs[:, s, a])
            room[s, a] -= 1
            t += 1
            mean = mean + (np.concatenate([[rewards[-1]], costs[-1]]) - mean) / t
            visits = visits + np.eye(8)[2 * s + a].reshape(4, 2)
            changed += np.linalg.norm(tfw_ucrl2.gradients(mean[None], config, spec)[0] - start)
            new = visits - start_visits
            s = int(rng.choice(4, p=model.dense()[s, a]))
            states.append(s)
            a = policy.actions[s]
            doubled = new[s, a] >= max(1, start_visits[s, a])
            passed_over += bool((new >= np.maximum(1, start_visits)).any() and not doubled)
            ended = bool(doubled or changed > 0.05)
            by_threshold += bool(ended and not doubled)
        from tightrope.learners.protocol import Experience

        seen = Experience(
            first=1, states=np.array(states, dtype=np.int32),
            actions=np.array(actions, dtype=np.int32), rewards=np.array(rewards),
            costs=np.array(costs),
        )  # fmt: skip
        state, _ = tfw_ucrl2.update(state, seen)
        if ended:
            epoch += 1
            start = tfw_ucrl2.gradients(mean[None], config, spec)[0]
            start_visits, changed = visits, 0.0
        assert state.epoch == epoch
    assert by_threshold > 3
    assert passed_over > 10  # counts that doubled and ended nothing, as another pair was next


def test_radii_after_cheung(monkeypatch):
    """sqrt(2 x log / N) + 3 log / N, intervals clipped to [0, 1], feedback at its better end."""
    caught = {}

    def plan(p_hat, radius, rewards, available, values, tolerance, most):
        caught.update(p_hat=p_hat, radius=radius, rewards=rewards)
        return np.zeros(4, np.int32), np.zeros(4), 0.0, 0.0, 1

    monkeypatch.setattr(tfw_ucrl2, "interval_value_iteration", plan)
    base = tr.problems.random_cmdp(4, 2, horizon=3, num_costs=1, seed=1)
    model = tr.FiniteMDP(
        transitions=base.dense(), axes="sas", rewards=base.rewards, costs=base.costs,
        capacities=[0.1], criterion=tr.Average(),
    )  # fmt: skip
    config = tfw_ucrl2.Config(radius="cheung", delta=0.05, coefficient=0.5)
    state = tfw_ucrl2.init(model.spec(), config)
    rng = np.random.default_rng(0)
    state.visits = rng.integers(0, 900, (4, 2)).astype(float)
    state.visits[0, 0] = 0.0
    state.moves = state.visits[:, :, None] * rng.dirichlet(np.ones(4), (4, 2))
    state.sums = state.visits * rng.random((2, 4, 2))
    state.mean, state.time = np.array([0.2, 0.7]), 5_000
    tfw_ucrl2._start_epoch(state)
    K, S, A, t = 2, 4, 2, 5_000
    log_v, log_p = np.log(12 * K * S * A * t**2 / 0.05), np.log(12 * K * S * S * A * t**2 / 0.05)
    gradient = np.array([0.5, 0.1 - 0.7]) / 2
    assert state.gradient == pytest.approx(gradient)
    for s in range(S):
        for a in range(A):
            n = state.visits[s, a]
            ends = (1.0, 0.0)
            if n:
                p, v = state.moves[s, a] / n, state.sums[:, s, a] / n
                wide = np.sqrt(2 * p * log_p / n) + 3 * log_p / n
                assert caught["radius"][s, a] == pytest.approx(np.minimum(wide, 1.0))
                far = np.sqrt(2 * v * log_v / n) + 3 * log_v / n
                ends = (min(1.0, v[0] + far[0]), max(0.0, v[1] - far[1]))
            assert caught["rewards"][s, a] == pytest.approx(gradient @ ends)
    assert (caught["radius"][0, 0] == 1.0).all()


def test_it_plays_mars_rover_as_one_stream():
    result = run("mars-rover-stream", "tfw-ucrl2", steps=2_000, seed=0)
    info = result.diagnostics
    assert info["converged"].min() == 1.0
    assert 50 < info["epochs"][-1] < 2_000
    assert result.columns["violation_0"][-1] > 0


def test_refusals():
    with pytest.raises(ConfigError, match=r"single stream|Average|episodic"):
        run("mars-rover", "tfw-ucrl2", episodes=5)
    with pytest.raises(ConfigError, match="radius must be one of"):
        run("mars-rover-stream", "tfw-ucrl2", steps=5, radius="l1")
    stream = tr.problems.mars_rover_stream()
    for name, value in (
        ("radius_scale", np.nan), ("coefficient", np.inf), ("threshold", 0.0), ("tolerance", "a"),
        ("max_iterations", 1.5), ("delta", "a"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=name):
            run(stream, "tfw-ucrl2", steps=5, **{name: value})
    with pytest.raises(ConfigError, match="put 1 - c with capacity 1 - x"):
        run(stream.replace(senses=[">="]), "tfw-ucrl2", steps=5)
