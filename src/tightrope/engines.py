"""Where runs are executed: in this process, or in worker processes. The bytes are the same."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from tightrope.errors import ConfigError
from tightrope.experiment import model_of
from tightrope.model.linear import finite_model
from tightrope.planning import Solution, plan
from tightrope.results import Job, part_path, write_part
from tightrope.simulation import runner

CHECKPOINT_SECONDS = 20.0
PROGRESS_SECONDS = 0.5


def execute(job: Job, folder: Path, optimum: Solution | None = None) -> Job:
    """Run one job and write its part; go on from its checkpoint if a killed run left one."""
    arm = job.arm
    session = runner.start(
        model_of(arm.problem, arm.parameters), arm.learner, episodes=arm.episodes, seed=job.seed,
        feedback=arm.feedback, delta=job.delta, problem=arm.problem, optimum=optimum,
        **arm.changes,
    )  # fmt: skip
    checkpoint = part_path(folder, job, ".state.npz")
    progress = part_path(folder, job, ".progress")
    if checkpoint.exists():
        runner.resume(session, checkpoint)
    clock = {"saved": time.monotonic(), "told": 0.0}

    def report(episodes: int) -> None:
        now = time.monotonic()
        if now - clock["told"] > PROGRESS_SECONDS:
            clock["told"] = now
            progress.write_text(str(episodes))
            if now - clock["saved"] > CHECKPOINT_SECONDS:
                clock["saved"] = now
                runner.save(session, checkpoint)

    runner.advance(session, progress=report)
    write_part(folder, job, runner.finish(session))
    checkpoint.unlink(missing_ok=True)
    progress.unlink(missing_ok=True)
    return job


def run_jobs(jobs: list[Job], folder: Path, workers: int) -> Iterator[Job]:
    """Execute the jobs, yielding each as it is finished, in any order.

    With several workers every process has one thread for BLAS and numba.
    """
    if workers < 1:
        raise ConfigError(f"jobs must be >= 1, got {workers}")
    optima = _optima(jobs)
    if workers == 1 or len(jobs) == 1:
        for job in jobs:
            yield execute(job, folder, optima[_key(job)])
        return
    from joblib import Parallel, delayed, parallel_config

    _compile(jobs, optima)
    with parallel_config(backend="loky", inner_max_num_threads=1):
        tasks = (delayed(execute)(job, folder, optima[_key(job)]) for job in jobs)
        yield from Parallel(
            n_jobs=min(workers, len(jobs)), return_as="generator_unordered", batch_size=1,
            pre_dispatch="all",
        )(tasks)  # fmt: skip


def _key(job: Job) -> tuple[str, str]:
    return job.arm.problem, str(sorted(job.arm.parameters.items()))


def _optima(jobs: list[Job]) -> dict[tuple[str, str], Solution]:
    """The benchmark of every problem, planned once."""
    out: dict[tuple[str, str], Solution] = {}
    for job in jobs:
        if _key(job) not in out:
            out[_key(job)] = plan(finite_model(model_of(job.arm.problem, job.arm.parameters)))
    return out


def _compile(jobs: list[Job], optima: dict[tuple[str, str], Solution]) -> None:
    """Play two episodes of every arm here, so that workers find the kernels in the cache."""
    for arm in {job.arm.label: job.arm for job in jobs}.values():
        job = next(job for job in jobs if job.arm == arm)
        session = runner.start(
            model_of(arm.problem, arm.parameters), arm.learner, episodes=arm.episodes,
            seed=job.seed, feedback=arm.feedback, delta=job.delta, optimum=optima[_key(job)],
            **arm.changes,
        )  # fmt: skip
        runner.advance(session, min(2, arm.episodes))


def episodes_done(jobs: list[Job], finished: set[str], folder: Path) -> int:
    """Episodes played so far, from finished runs and from what running ones last told."""
    total = 0
    for job in jobs:
        if job.label in finished:
            total += job.arm.episodes
            continue
        try:
            total += int(part_path(folder, job, ".progress").read_text())
        except (OSError, ValueError):
            continue
    return total


def default_workers() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
