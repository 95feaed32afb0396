"""Concave-convex planning against the direct CVXPY form of [CON, Eq. (15)] at S = 64, H = 30.

The opponent is what a user would write: occupancy variables, flow, the box, f and g, as a DPP
problem whose `solve()` is timed after the first call and from a cold start (a warm start from the
same answer is no solve). Of its solvers the fastest setting that agrees with ours to 1e-6 counts.
Ours is the whole call, from the model to the certified solution, also after the first, which
canonicalises f and g. Times are CPU seconds, so that a busy machine does not matter.
"""

from __future__ import annotations

import platform
import statistics
import time
import warnings
from functools import partial

import cvxpy as cp
import numpy as np

import tightrope as tr

OPPONENTS = [
    ("Clarabel", "CLARABEL", {}),
    ("SCS, default", "SCS", {}),
    ("SCS, eps 1e-6", "SCS", {"eps": 1e-6, "max_iters": 50_000}),
    ("SCS, eps 1e-7", "SCS", {"eps": 1e-7, "max_iters": 50_000}),
]


def direct(model, f, g, radius) -> cp.Problem:
    """Eq. (15) over occupancy measures, with the estimates as parameters."""
    H, S, A, m = model.horizon, model.num_states, model.num_actions, model.num_costs
    matrix = model.matrix().T.tocsc()
    gather = np.kron(np.eye(S), np.ones((1, A)))
    rho = [cp.Variable(S * A, nonneg=True) for _ in range(H)]
    flow = [gather @ rho[0] == model.initial]
    flow += [gather @ rho[h + 1] == matrix @ rho[h] for h in range(H - 1)]
    visits = sum(rho)
    pairs, b = S * A, radius.ravel()
    sides = [cp.Parameter(pairs), cp.Parameter(pairs)]
    sides += [cp.Parameter((m, pairs)), cp.Parameter((m, pairs))]
    r, c = model.rewards.ravel(), model.costs.reshape(m, -1)
    for side, value in zip(sides, (r - b, r + b, c - b, c + b)):
        side.value = value
    y, u = cp.Variable(), cp.Variable(m)
    box = [y >= sides[0] @ visits, y <= sides[1] @ visits]
    box += [u >= sides[2] @ visits, u <= sides[3] @ visits]
    return cp.Problem(cp.Maximize(f(y)), [*flow, *box, g(u) <= 0])


def cpu_seconds(call, repeats: int) -> float:
    """Median over repeats, after one call that is not counted."""
    times = []
    for _ in range(repeats + 1):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return statistics.median(times[1:])


def main() -> None:
    machine = platform.processor() or platform.machine()
    print(f"{machine}, Python {platform.python_version()}, CVXPY {cp.__version__}")
    random = partial(tr.problems.random_cmdp, 64, 4, horizon=30, num_costs=2, seed=1)
    cases = [
        ("mars-rover", tr.problems.mars_rover()),
        ("random, 10 successors", random()),
        ("random, 64 successors", random(successors=64)),
    ]
    print(
        f"{'log f, norm g':22} {'opponent':14} {'ours s':>8} {'CVXPY s':>8} {'ratio':>6} difference"
    )
    for name, model in cases:
        limit = float(np.linalg.norm(model.capacities))
        radius = 0.01 * np.random.default_rng(0).random((64, 4))

        def g(u, limit=limit):
            return cp.norm(u, 2) - limit

        box = {"reward_radius": radius, "cost_radius": radius}
        call = partial(tr.plan, model, objective=cp.log, constraint=g, **box)
        ours, mine = call(), cpu_seconds(call, 9)
        problem = direct(model, cp.log, g, radius)
        for label, solver, options in OPPONENTS:
            start = f"{name:22} {label:14} {mine:8.4f}"
            solve = partial(problem.solve, solver=solver, warm_start=False, **options)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # inaccurate answers show as a difference
                    theirs = cpu_seconds(solve, 1)
            except cp.error.SolverError as error:
                print(f"{start}   failed: {str(error).split('.')[0]}")
                continue
            off = abs(problem.value - ours.value)
            print(f"{start} {theirs:8.3f} {theirs / mine:6.0f} {off:10.1e}")


if __name__ == "__main__":
    main()
