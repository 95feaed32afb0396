"""Column generation against HiGHS on the whole program of the same model, side by side.

    python -m benchmarks.planning [--small] [--large]

HiGHS is the fastest of its default, simplex and interior point, presolve on, tolerances 1e-9,
timed over `run()` alone (the program is built and passed before). Column generation is timed over
the whole of `plan`, its certificate included. One core; medians, of 5 runs of each HiGHS method
(one if it takes more than 10 s), taken in turn with ours. Ratios are of processor time, which a
loaded machine changes least; those of wall time stand beside them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import platform
import resource
import statistics
import time

import highspy

import tightrope as tr
from tightrope.planning import lp
from tightrope.planning.episodic import signed_tables

ROUNDS, LONG = 5, 10.0  # runs of each HiGHS method, seconds above which there is only one
METHODS = {
    "default": {},
    "simplex": {"solver": "simplex", "presolve": "on"},
    "ipm": {"solver": "ipm", "presolve": "on"},
}


def whole_program(
    program: tuple, options: dict[str, str], budget: float
) -> tuple[float, float, float]:
    """Processor seconds, wall seconds and value of a HiGHS method, `budget` seconds at most."""
    highs = lp.load(*program)
    for key, value in options.items():
        highs.setOptionValue(key, value)
    highs.setOptionValue("threads", 1)
    highs.setOptionValue("time_limit", budget)
    cpu, wall = _timed(highs.run)
    solved = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
    value = highs.getInfo().objective_function_value if solved else float("nan")
    return cpu, wall, value


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    """Processor and wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def compare(label: str, model: tr.FiniteMDP, target: float, repeats: int, budget: float) -> None:
    """One row of the table."""
    solution = tr.plan(model)
    tables, limits = signed_tables(model)
    program = lp.episodic_program(tables, model.horizon, limits)
    ours, theirs = [], {name: [] for name in METHODS}
    for _ in range(ROUNDS):  # in turn, so that the machine's moods are shared
        ours += [_timed(lambda: tr.plan(model)) for _ in range(repeats)]
        for name, options in METHODS.items():
            if not theirs[name] or theirs[name][0][0] < LONG:
                theirs[name].append(whole_program(program, options, budget))
    cpu, wall = (statistics.median(column) for column in zip(*ours))
    medians = {k: [statistics.median(c) for c in zip(*runs)] for k, runs in theirs.items()}
    solved = {k: v for k, v in medians.items() if abs(v[2] - solution.value) <= 1e-6}
    if not solved:
        print(f"{label:26} no HiGHS method agreed within {budget:.0f} s: {medians}")
        return
    fastest = min(solved, key=lambda k: solved[k][0])
    ratio = solved[fastest][0] / cpu
    methods = ", ".join(f"{k} {v[0]:.3g} s" for k, v in medians.items())
    verdict = "reached" if ratio >= target else "NOT REACHED"
    print(
        f"{label:26} {1e3 * cpu:8.2f} ms {solution.statistics['dynamic_programs']:4d} programs "
        f"{ratio:6.0f}x of {fastest:7} (target {target:.0f}x: {verdict}; wall "
        f"{min(v[1] for v in solved.values()) / wall:.0f}x; {methods}; gap {solution.gap:.1e})",
        flush=True,
    )


def large(num_states: int) -> None:
    """Four million transitions, relative gap 1e-6."""
    started = time.perf_counter()
    model = tr.problems.random_cmdp(num_states, 4, horizon=30, num_costs=1)
    built = time.perf_counter() - started
    tr.plan(tr.problems.random_cmdp(20_001, 4, horizon=2))  # compile the parallel sweep
    solution = tr.plan(model, tolerance=1e-6)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"S = {num_states:,}: built in {built:.1f} s, solved in {solution.seconds:.1f} s, "
        f"{solution.statistics['dynamic_programs']} programs, gap {solution.gap:.1e}, peak memory "
        f"{peak:.2f} GiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="leave S = 500 out")
    parser.add_argument("--large", action="store_true", help="only S = 100,000")
    arguments = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    if arguments.large:
        large(100_000)
        return
    compare("mars-rover", tr.problems.mars_rover(), 200, 21, 60)
    compare("box", tr.problems.box(), 200, 21, 60)
    for num_states, target in ((100, 500), (500, 1500)):
        if arguments.small and num_states > 100:
            continue
        for m in (1, 3):
            model = tr.problems.random_cmdp(num_states, 4, horizon=30, num_costs=m)
            label = f"random S={num_states} A=4 H=30 m={m}"
            compare(label, model, target if m == 1 else target / 2, 15, 300)


if __name__ == "__main__":
    main()
