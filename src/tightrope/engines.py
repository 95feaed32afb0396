"""Where runs are executed: in this process, or in worker processes. The bytes are the same."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tightrope.errors import ResultError
from tightrope.experiment import model_of
from tightrope.model.linear import ContinuousLinearMDP, finite_model
from tightrope.planning import Solution, plan
from tightrope.problems.adversarial import AdversarialProblem
from tightrope.results import Job, part_path, write_part
from tightrope.simulation import runner

CHECKPOINT_SECONDS = 20.0
PROGRESS_SECONDS = 0.5
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)


def _session(job: Job, optimum: Solution | None) -> runner.Session:
    arm = job.arm
    return runner.start(
        model_of(arm.problem, arm.parameters), arm.learner, episodes=arm.episodes, seed=job.seed,
        feedback=arm.feedback, delta=job.delta, problem=arm.problem, optimum=optimum,
        **arm.changes,
    )  # fmt: skip


def execute(job: Job, folder: Path, optimum: Solution | None = None) -> Job:
    """Run one job and write its part; go on from its checkpoint if a killed run left one."""
    session = _session(job, optimum)
    checkpoint = part_path(folder, job, ".state.npz")
    progress = part_path(folder, job, ".progress")
    if checkpoint.exists():
        runner.resume(session, checkpoint)
    clock = {"saved": time.monotonic(), "told": 0.0}
    faults: list[OSError] = []

    def report(episodes: int) -> None:
        now = time.monotonic()
        if now - clock["told"] > PROGRESS_SECONDS:
            clock["told"] = now
            with contextlib.suppress(OSError):  # it is shown only
                progress.write_text(str(episodes))
            if now - clock["saved"] > CHECKPOINT_SECONDS:
                clock["saved"] = now
                try:
                    runner.save(session, checkpoint)
                except OSError as error:  # the run needs none to go on
                    if not faults:
                        note = f"tightrope: note: no checkpoint of {job.label}: {error}"
                        print(note, file=sys.stderr, flush=True)
                    faults.append(error)

    runner.advance(session, progress=report)
    write_part(folder, job, runner.finish(session))
    checkpoint.unlink(missing_ok=True)
    progress.unlink(missing_ok=True)
    return job


def prepare(
    jobs: list[Job],
) -> tuple[dict[str, Solution | None], str, dict[str, dict[str, Any]]]:
    """The certified optimum of every arm, by label, after checking that every learner can run.

    None where the optimum belongs to the run (of adversarial problems it is in hindsight). Then the
    unit of the runs' lengths: 'episodes', 'steps' of single streams, or both; and the identity of
    every arm's runs (see `simulation.runner.Run`), by label.
    Raises ConfigError or PlanError, before anything is played.
    """
    by_problem: dict[tuple[str, str], Solution | None] = {}
    out, units, identities = {}, set(), {}
    for job in _one_an_arm(jobs):
        arm = job.arm
        key = (arm.problem, str(sorted(arm.parameters.items())))
        if key not in by_problem:
            model = model_of(arm.problem, arm.parameters)
            own = isinstance(model, AdversarialProblem | ContinuousLinearMDP)
            by_problem[key] = None if own else plan(finite_model(model))
        out[arm.label] = by_problem[key]
        session = _session(job, out[arm.label])
        units.add("steps" if session.ledger.windowed else "episodes")
        identities[arm.label] = session.identity
    return out, " and ".join(sorted(units)), identities


def run_jobs(
    jobs: list[Job], folder: Path, workers: int, optima: dict[str, Solution | None]
) -> Iterator[Job]:
    """Execute the jobs, yielding each as it is finished, in any order.

    With several workers every process has one thread for BLAS and numba. Interrupted, or with an
    error in a worker, it stops the other workers at once. ResultError if a worker was killed.
    """
    if workers == 1 or len(jobs) <= 1:
        for job in jobs:
            yield execute(job, folder, optima[job.arm.label])
        return
    from concurrent.futures import BrokenExecutor, as_completed

    from loky import ProcessPoolExecutor

    for job in _one_an_arm(jobs):  # compile here, so that workers find the kernels in the cache
        runner.advance(_session(job, optima[job.arm.label]), min(2, job.arm.episodes))
    pool = ProcessPoolExecutor(
        min(workers, len(jobs)),
        env=dict.fromkeys(THREAD_VARIABLES, "1"),
        initializer=_ignore_sigint,
    )
    try:
        futures = [pool.submit(execute, job, folder, optima[job.arm.label]) for job in jobs]
        for future in as_completed(futures):
            yield future.result()
    except BaseException as error:
        pool.shutdown(wait=True, kill_workers=True)
        if isinstance(error, BrokenExecutor):
            raise ResultError(
                "a worker process was killed, perhaps for want of memory; finished runs are kept: "
                "the same command with --resume goes on, with fewer --jobs in less memory"
            ) from error
        raise
    pool.shutdown()


def _ignore_sigint() -> None:
    """Ctrl-C reaches the whole process group; the parent alone decides what happens."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _one_an_arm(jobs: list[Job]) -> list[Job]:
    return list({job.arm.label: job for job in reversed(jobs)}.values())[::-1]


def episodes_done(jobs: list[Job], finished: set[str], folder: Path, told: dict[str, int]) -> int:
    """Episodes played so far, from finished runs and from what running ones last told.

    `told` keeps the most that each run told, by label, from one call to the next: the file of a run
    is empty while it is written anew, and gone a little before the run is known to be finished.
    """
    total = 0
    for job in jobs:
        if job.label in finished:
            total += job.arm.episodes
            continue
        with contextlib.suppress(OSError, ValueError):
            now = int(part_path(folder, job, ".progress").read_text())
            told[job.label] = max(now, told.get(job.label, 0))
        total += told.get(job.label, 0)
    return total


def default_workers() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
