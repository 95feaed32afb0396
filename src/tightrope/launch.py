"""From an experiment to a finished folder: run what is missing, combine, draw."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from types import FrameType
from typing import Any

import pyarrow.compute as pc

from tightrope.engines import default_workers, episodes_done, prepare, run_jobs
from tightrope.errors import ConfigError, ResultError
from tightrope.experiment import Experiment
from tightrope.growth import write_growth
from tightrope.results import (
    Job,
    combine,
    group_name,
    is_finished,
    jobs_of,
    load_budgets,
    load_meta,
    load_results,
    open_folder,
)
from tightrope.slopes import write_slopes

PLAIN_SECONDS = 10.0


def launch(
    experiment: Experiment, folder: Path, *, workers: int | None = None, resume: bool = False,
    quiet: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Run an experiment into a folder and return a summary.

    Finished runs are kept whatever happens; `resume` runs only those that are missing, and refuses
    a folder with runs of another model or setting, or with some that `experiment` leaves out.

    Raises
    ------
    ConfigError, PlanError
        Before anything is run, if a learner cannot run on its problem.
    ResultError
        If the folder holds something else, or a file cannot be written.
    KeyboardInterrupt
        After the finished runs were combined.
    """
    started = time.perf_counter()
    workers = default_workers() if workers is None else workers
    if workers < 1:
        raise ConfigError(f"jobs must be >= 1, got {workers}")
    optima, unit, identities = prepare(jobs_of(experiment))
    open_folder(folder, experiment, identities, resume=resume)
    jobs = [job for job in jobs_of(experiment) if not is_finished(folder, job)]
    stop = Event()
    finished: set[str] = set()
    watcher = Thread(target=_watch, args=(jobs, finished, folder, stop, unit), daemon=True)
    if jobs and not quiet:
        watcher.start()
    try:
        with _interrupts() as pressed:
            for job in run_jobs(jobs, folder, workers, optima):
                finished.add(job.label)
                if pressed:
                    raise KeyboardInterrupt
    except KeyboardInterrupt:
        stop.set()
        combine(folder, experiment, seconds=time.perf_counter() - started)
        kept = sum(is_finished(folder, job) for job in jobs_of(experiment))
        raise KeyboardInterrupt(
            f"{kept} of {len(jobs_of(experiment))} runs are finished and kept in {folder}; "
            "the same command with --resume goes on"
        ) from None
    finally:
        stop.set()
        if watcher.is_alive():
            watcher.join()
    missing = combine(folder, experiment, seconds=time.perf_counter() - started)
    if missing:
        raise ResultError(f"{len(missing)} runs left no result, first: {missing[0].label}")
    from tightrope.plots import draw_figures

    slopes = write_slopes(folder, experiment)
    growth = write_growth(folder, experiment)
    try:
        figures = draw_figures(folder)
    except OSError as error:
        raise ResultError(
            f"cannot write figures in {folder}: {error.strerror}; all runs are kept, the same "
            "command with --resume draws them"
        ) from error
    return {
        "folder": str(folder),
        "runs": len(jobs_of(experiment)),
        "seconds": time.perf_counter() - started,
        "figures": [str(path) for path in figures],
        "arms": summarise(folder),
        "slopes": slopes,
        "growth": growth,
        "budgets": load_budgets(folder) if (folder / "budgets.json").exists() else [],
    }


@contextlib.contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Ctrl-C as ever, and a list that is not empty once it was pressed.

    An exception that is raised while extension code calls back is now and then lost there (seen in
    one run of sixteen); the list is then what stops the experiment, after the run at hand.
    """
    pressed: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    ours = threading.current_thread() is threading.main_thread()
    if not ours or before is not signal.default_int_handler:
        yield pressed
        return

    def press(number: int, frame: FrameType | None) -> None:
        pressed.append(number)
        signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)


def summarise(folder: Path) -> list[dict[str, Any]]:
    """Mean exact reward and costs over the last tenth of each arm's runs."""
    table, out = load_results(folder), []
    for arm in load_meta(folder)["arms"]:
        chosen = pc.and_(
            pc.equal(table["learner"], arm["learner"]), pc.equal(table["preset"], arm["preset"])
        )
        rows = table.filter(pc.and_(chosen, pc.equal(table["problem"], arm["problem"])))
        episode = rows["episode"].to_numpy()
        first = arm["episodes"] - max(1, arm["episodes"] // 10)
        before = episode[episode <= first].max(initial=0)  # on the recording grid

        def mean(column: str, level: float, rows: Any = rows, before: int = int(before)) -> float:
            """`level` plus the mean rise, per episode and seed, of a cumulative column."""
            at = rows["episode"].to_numpy()
            values = rows[column].to_numpy()
            rise = (
                values[at == at.max()].mean() - values[at == before].sum() / (at == at.max()).sum()
            )
            return level + float(rise) / float(at.max() - before)

        optimum = arm["optimum"]
        out.append(
            {
                "problem": arm["problem"],
                "learner": group_name(arm["learner"], arm["preset"]),
                "guarantee": arm["guarantee"],
                "window": int(arm["episodes"] - before),
                "unit": arm["unit"],
                "reward": -mean("regret", -optimum["value"]),
                "optimum": optimum["value"],
                "costs": {
                    name: mean(f"violation_{i}", limit)
                    if arm["senses"][name] == "<="
                    else -mean(f"violation_{i}", -limit)
                    for i, (name, limit) in enumerate(optimum["capacities"].items())
                },
                "capacities": optimum["capacities"],
            }
        )
    return out


def _watch(jobs: list[Job], finished: set[str], folder: Path, stop: Event, unit: str) -> None:
    """Progress with rate and time left: a bar on a terminal, plain lines otherwise."""
    total = sum(job.arm.episodes for job in jobs)
    told: dict[str, int] = {}
    started = time.monotonic()
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        columns = (
            TextColumn("{task.fields[runs]}"), BarColumn(), MofNCompleteColumn(),
            TextColumn(f"{unit}, {{task.fields[rate]:,.0f}}/s"), TimeRemainingColumn(),
        )  # fmt: skip
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task("", total=total, runs="", rate=0.0)
            while True:
                last = stop.wait(0.5)
                done = episodes_done(jobs, set(finished), folder, told)
                rate = done / max(time.monotonic() - started, 1e-9)
                runs = f"{len(finished)}/{len(jobs)} runs"
                bar.update(task, completed=done, runs=runs, rate=rate)
                if last:
                    return
    while not stop.wait(PLAIN_SECONDS):
        done = episodes_done(jobs, set(finished), folder, told)
        rate = done / (time.monotonic() - started)
        left = f"{(total - done) / rate:,.0f} s left" if rate else "no time estimate yet"
        print(
            f"{len(finished)}/{len(jobs)} runs, {done:,}/{total:,} {unit}, {rate:,.0f} "
            f"{unit}/s, {left}",
            file=sys.stderr,
            flush=True,
        )
