"""Average and discounted planners side by side, and the frontier against a grid of solves.

    python -m benchmarks.criteria [--large]

Every solver answers the same model in one process, one after the other, to a certified gap of 1e-9;
the linear programs are HiGHS (simplex, presolve on) on sparse matrices. Times are medians over
repeats of the whole of `plan`, certificate and evaluation included.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time

import numpy as np
import scipy.sparse as sp

import tightrope as tr
from tightrope.planning.frontier import frontier


def sparse_model(states: int, criterion: tr.Average | tr.Discounted, costs: int) -> tr.FiniteMDP:
    """Four actions, ten successors a row, uniform rewards and costs; the capacity binds."""
    rng = np.random.default_rng(states)
    rows = states * 4
    heads = rng.integers(0, states, size=(rows, 10)).ravel()
    matrix = sp.csr_array(
        (np.full(rows * 10, 0.1), heads, np.arange(0, rows * 10 + 1, 10)), shape=(rows, states)
    )
    matrix.sum_duplicates()
    scale = 1.0
    if isinstance(criterion, tr.Discounted):
        scale = 1.0 / (1.0 - criterion.discount)
    return tr.FiniteMDP(
        transitions=matrix,
        rewards=rng.random((states, 4)),
        criterion=criterion,
        costs=rng.random((costs, states, 4)) if costs else None,
        capacities=[0.4 * scale] * costs if costs else None,
    )


def compare(label: str, model: tr.FiniteMDP, solvers: tuple[str, ...], repeats: int) -> None:
    """One row for each solver."""
    values = []
    for solver in solvers:
        seconds = []
        for _ in range(repeats + 1):
            started = time.perf_counter()
            solution = tr.plan(model, solver=solver)
            seconds.append(time.perf_counter() - started)
        values.append(solution.value)
        print(
            f"{label:34} {solver:18} {1e3 * statistics.median(seconds[1:]):10.2f} ms  "
            f"value {solution.value:.10g}  gap {solution.gap:.1e}  {solution.status.value}",
            flush=True,
        )
    spread = max(values) - min(values)
    print(f"{'':34} largest difference {spread:.1e}")


def frontier_row() -> None:
    """The Mars rover's frontier against as many single solves as it has breakpoints."""
    model = tr.problems.mars_rover()
    frontier(model, "cost", limit=20)
    for exact in (False, True):
        found = frontier(model, "cost", exact=exact)
        grid = np.linspace(found.least_capacity, found.binds_until, 100)
        started = time.perf_counter()
        for capacity in grid:
            tr.plan(model.replace(capacities=[capacity]))
        each = (time.perf_counter() - started) / grid.size
        print(
            f"mars-rover frontier, exact={exact!s:5}: {found.capacities.size} breakpoints, error "
            f"{found.error:.1e}, {found.programs} programs, {found.seconds:.3f} s; a solve for "
            f"each breakpoint would take {each * found.capacities.size:.3f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true", help="20,000 states as well")
    arguments, _ = parser.parse_known_args()
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    every = ("policy-iteration", "value-iteration", "lp")
    compare("riverswim, average", tr.problems.riverswim(), every, 9)
    compare("access-control (44), average", tr.problems.access_control(), every, 9)
    compare("service-queue (11, m=2), average", tr.problems.service_queue(), every, 3)
    for criterion in (tr.Average(), tr.Discounted(0.99)):
        name = type(criterion).__name__.lower()
        compare(f"sparse 300, {name}", sparse_model(300, criterion, 0), every, 3)
        compare(f"sparse 300, m=1, {name}", sparse_model(300, criterion, 1), every, 1)
        if arguments.large:
            only = ("value-iteration",)
            compare(f"sparse 20000, {name}", sparse_model(20_000, criterion, 0), only, 1)
            compare(f"sparse 20000, m=1, {name}", sparse_model(20_000, criterion, 1), only, 1)
    frontier_row()


if __name__ == "__main__":
    main()
