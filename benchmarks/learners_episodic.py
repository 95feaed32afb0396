"""Episodes a second of one core, everything included: planning, rollout, update, exact evaluation.

    python -m benchmarks.learners_episodic

ConRL with a replan after every episode on the Mars rover (one cost, and the same cost twice with
different capacities), and without a constraint on a chain of ten states (then a UCBVI-like
learner). Processor time, medians over the last pieces of a run, and the ratio of its last piece to
its second: 1 means that the time of an episode does not grow.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import platform
import statistics
import time

import numpy as np

import tightrope as tr
from tightrope.simulation.runner import advance, start

PIECES = 10


def chain(num_states: int = 10, horizon: int = 20) -> tr.FiniteMDP:
    """Left is sure; right may slip; a little at the left end, much at the right end."""
    transitions = np.zeros((num_states, 2, num_states))
    for s in range(num_states):
        transitions[s, 0, max(0, s - 1)] = 1.0
        transitions[s, 1, min(num_states - 1, s + 1)] += 0.7
        transitions[s, 1, s] += 0.3
    rewards = np.zeros((num_states, 2))
    rewards[0, 0], rewards[-1, 1] = 0.05, 1.0
    return tr.FiniteMDP(transitions=transitions, rewards=rewards, criterion=tr.Episodic(horizon))


def measure(label: str, model: tr.FiniteMDP, learner: str, episodes: int, target: float) -> None:
    """One row of the table."""
    session = start(model, learner, episodes=episodes, seed=1)
    rates = []
    for piece in range(1, PIECES + 1):
        began, before = time.process_time(), session.ledger.count
        advance(session, piece * episodes // PIECES)
        rates.append((session.ledger.count - before) / (time.process_time() - began))
    rate = statistics.median(rates[1:])
    programs = session.state.dynamic_programs / session.state.replans
    verdict = "reached" if rate >= target else "NOT REACHED"
    print(
        f"{label:22} {rate:7.0f} episodes/s (target {target:.0f}: {verdict}); {programs:.1f} "
        f"programs a replan, {session.state.replans} replans in {session.ledger.count} episodes, "
        f"time of an episode, last / second piece {rates[1] / rates[-1]:.2f}",
        flush=True,
    )


def main() -> None:
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    rover = tr.problems.mars_rover()
    twice = rover.replace(
        costs=np.concatenate([rover.costs, rover.costs]), capacities=[0.3, 0.2],
        senses=["<=", "<="], cost_names=["first", "second"],
    )  # fmt: skip
    measure("mars-rover", rover, "conrl@paper-experiments", 3000, 1000)
    measure("mars-rover m=2", twice, "conrl@paper-experiments", 2000, 500)
    measure("chain, no constraint", chain(), "conrl@paper-experiments", 10000, 6000)


if __name__ == "__main__":
    main()
