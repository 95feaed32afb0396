"""Results folders: parts written one by one and at once, combined into tidy tables.

``parts/LABEL--seedN.parquet`` (curves), ``.info.parquet`` (the learner's own numbers) and ``.json``
(timing, configuration, optimum). The JSON is written last: a run is finished when it is there.
"""

from __future__ import annotations

import io
import json
import os
import platform
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from tightrope.errors import ResultError
from tightrope.experiment import Arm, Experiment
from tightrope.learners.registry import split_name
from tightrope.simulation.runner import Run, difference

LIBRARIES = ("tightrope", "numpy", "scipy", "numba", "highspy", "pyarrow")


@dataclass(frozen=True)
class Job:
    """One run: an arm with a seed."""

    arm: Arm
    seed: int
    delta: float

    @property
    def label(self) -> str:
        return f"{self.arm.label}--seed{self.seed}"


def jobs_of(experiment: Experiment) -> list[Job]:
    """Every run of an experiment, seed by seed, so that early results cover all arms."""
    return [
        Job(arm, experiment.seed + i, experiment.delta)
        for i in range(experiment.seeds)
        for arm in experiment.arms
        if not 0 < arm.seeds <= i
    ]


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file at once or not at all."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ResultError(
            f"cannot write {path}: {error.strerror}; finished runs are kept"
        ) from error


def write_table(path: Path, table: pa.Table) -> None:
    """A Parquet file whose bytes depend on the table only."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    write_atomic(path, buffer.getvalue())


def open_folder(
    folder: Path, experiment: Experiment, identities: Mapping[str, dict[str, Any]], *, resume: bool
) -> None:
    """Create the folder, or check that it holds this experiment; `identities` are the arms'.

    Raises ResultError if it holds another one, or results without `resume`, or finished runs that
    are not the experiment's.
    """
    record = folder / "experiment.toml"
    if folder.exists() and not folder.is_dir():
        raise ResultError(f"{folder} is a file, expected a folder")
    if record.exists():
        try:
            found = tomllib.loads(record.read_text())
        except (OSError, ValueError) as error:
            raise ResultError(f"{record} cannot be read: {error}") from error
        wanted = tomllib.loads(tomli_w.dumps(experiment.to_dict()))
        for name in ("name", "delta"):
            if found.get(name) != wanted[name]:
                raise ResultError(
                    f"{folder} already holds another experiment ({name} {found.get(name)!r}, not "
                    f"{wanted[name]!r}); choose another --out"
                )
        lengths = {
            arm["problem"]: arm["episodes"]
            for arm in found.get("arms", [])
            if not arm.get("horizon")
        }
        for arm in experiment.arms:
            if not arm.horizon and lengths.get(arm.problem, arm.episodes) != arm.episodes:
                raise ResultError(
                    f"{folder} already holds another experiment ({lengths[arm.problem]} "
                    f"episodes, not {arm.episodes}); choose another --out"
                )
        if not resume:
            raise ResultError(
                f"{folder} already holds results; --resume finishes or extends them, or choose "
                "another --out"
            )
        _check_parts(folder, experiment, identities)
    elif folder.is_dir() and any(folder.iterdir()):
        raise ResultError(f"{folder} is not empty and holds no experiment; choose another --out")
    try:
        (folder / "parts").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultError(f"cannot make {folder}: {error.strerror}") from error
    write_atomic(record, tomli_w.dumps(experiment.to_dict()).encode())


def _check_parts(
    folder: Path, experiment: Experiment, identities: Mapping[str, dict[str, Any]]
) -> None:
    """ResultError unless every finished run is one of the experiment's, as it would be run now."""
    arms = {job.label: job.arm.label for job in jobs_of(experiment)}
    found = [path.name.removesuffix(".json") for path in sorted((folder / "parts").glob("*.json"))]
    extra = [label for label in found if label not in arms]
    if extra:
        raise ResultError(
            f"{folder} holds {len(extra)} finished runs that this command leaves out, first: "
            f"{extra[0]}; --resume extends an experiment: name its learners and seeds too, or "
            "choose another --out"
        )
    for label in found:
        path = folder / "parts" / f"{label}.json"
        try:
            record = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise ResultError(f"{path} cannot be read: {error}") from error
        if not isinstance(record, dict) or "identity" not in record:
            raise ResultError(
                f"{path} does not say which run it is of, as parts of this version do; choose "
                "another --out"
            )
        identity = record["identity"]
        if identity != identities[arms[label]]:
            raise ResultError(
                f"{folder} already holds another experiment: of {label}, "
                f"{difference(identity, identities[arms[label]])}; choose another --out"
            )


def part_path(folder: Path, job: Job, suffix: str) -> Path:
    """Where a run's file with this suffix is."""
    return folder / "parts" / f"{job.label}{suffix}"


def is_finished(folder: Path, job: Job) -> bool:
    """Whether all of a run's files are there."""
    return all(part_path(folder, job, s).exists() for s in (".json", ".parquet", ".info.parquet"))


def write_part(folder: Path, job: Job, run: Run) -> None:
    """Write a finished run; its JSON comes last and marks it as finished."""
    rows = len(run.columns["episode"])
    keys = {
        "problem": pa.array([job.arm.shown] * rows, pa.string()),
        "learner": pa.array([run.learner] * rows, pa.string()),
        "preset": pa.array([run.preset] * rows, pa.string()),
        "guarantee": pa.array([run.guarantee] * rows, pa.string()),
        "seed": pa.array(np.full(rows, run.seed, dtype=np.int64)),
    }
    curves = pa.table({**keys, **{name: pa.array(v) for name, v in run.columns.items()}})
    write_table(part_path(folder, job, ".parquet"), curves)
    own = {"episode": pa.array(run.columns["episode"])}
    own |= {name: pa.array(v) for name, v in sorted(run.diagnostics.items())}
    write_table(part_path(folder, job, ".info.parquet"), pa.table({**keys, **own}))
    record = {
        "problem": job.arm.shown,
        "horizon": job.arm.horizon,
        "learner": run.learner,
        "preset": run.preset,
        "guarantee": run.guarantee,
        "seed": run.seed,
        "feedback": run.feedback,
        "unit": run.unit,
        "scale": run.scale,
        "senses": run.senses,
        "config": run.config,
        "optimum": run.optimum.to_json(),
        "episodes": int(run.columns["episode"][-1]),
        "updates": run.updates,
        "seconds": run.seconds,
        "state_bytes": run.state_bytes,
        "bounds": run.bounds,
        "notes": run.notes,
        "budgets": run.budgets,
        "identity": run.identity,
    }
    text = json.dumps(record, indent=1, default=float)
    write_atomic(part_path(folder, job, ".json"), text.encode())


def combine(folder: Path, experiment: Experiment, *, seconds: float) -> list[Job]:
    """Write `curves.parquet`, `info.parquet`, `timings.parquet` and `meta.json` from the parts.

    Returns the runs that are still missing.
    """
    jobs = jobs_of(experiment)
    done = [job for job in jobs if is_finished(folder, job)]
    if not done:
        return jobs
    for suffix, name in ((".parquet", "curves"), (".info.parquet", "info")):
        tables = [pq.read_table(part_path(folder, job, suffix)) for job in done]
        write_table(folder / f"{name}.parquet", pa.concat_tables(tables, promote_options="default"))
    records = [json.loads(part_path(folder, job, ".json").read_text()) for job in done]
    if any(record["bounds"] for record in records):
        kept = ("problem", "learner", "preset", "guarantee", "seed", "episodes", "bounds", "notes")
        tables_of = [{name: r[name] for name in kept} for r in records if r["bounds"]]
        write_atomic(folder / "bounds.json", json.dumps(tables_of, indent=1).encode())
    if any(record["budgets"] for record in records):
        reports = [
            {
                "problem": r["problem"],
                "learner": group_name(r["learner"], r["preset"]),
                "seed": r["seed"],
                **r["budgets"],
            }
            for r in records
            if r["budgets"]
        ]
        write_atomic(folder / "budgets.json", json.dumps(reports, indent=1).encode())
    names = ["problem", "learner", "preset", "seed", "episodes", "updates", "seconds"]
    names += ["state_bytes"]
    timings = {name: [record[name] for record in records] for name in names}
    timings["episodes_per_second"] = [r["episodes"] / max(r["seconds"], 1e-9) for r in records]
    write_table(folder / "timings.parquet", pa.table(timings))
    meta = {
        "experiment": experiment.name,
        "versions": {name: version(name) for name in LIBRARIES},
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "seeds": sorted({record["seed"] for record in records}),
        "runs": len(done),
        "missing": [job.label for job in jobs if job not in done],
        "seconds": seconds,
        "arms": _arms(records),
    }
    write_atomic(folder / "meta.json", json.dumps(meta, indent=1).encode())
    return [job for job in jobs if job not in done]


def _arms(records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is common to the seeds of an arm."""
    arms: dict[str, dict[str, Any]] = {}
    for record in records:
        own = ("seed", "seconds", "updates", "state_bytes", "bounds", "notes", "budgets")
        kept = {k: v for k, v in record.items() if k not in (*own, "identity")}
        kept["optimum"] = {k: v for k, v in kept["optimum"].items() if k != "seconds"}
        kept["config"] = {k: v for k, v in kept["config"].items() if k != "seed"}
        arms.setdefault(json.dumps(kept, sort_keys=True), kept)
    return list(arms.values())


def load_bounds(folder: str | Path) -> list[dict[str, Any]]:
    """`bounds.json`: one entry an arm and seed, with its rows of measured value, bound and ratio.

    Raises ResultError if no run of the folder has a theorem to be held against.
    """
    return load_list(
        Path(folder) / "bounds.json",
        "table of bounds; runs of pdgd-ops, uc-o-gdps and uc-o-reps on loop-free problems",
    )


def load_budgets(folder: str | Path) -> list[dict[str, Any]]:
    """`budgets.json`: one report a run with hard budgets (see `simulation.budgets`).

    Raises ResultError if the folder has no such run.
    """
    return load_list(Path(folder) / "budgets.json", "report on budgets; runs of conrl-knapsack")


def load_list(path: Path, what: str) -> list[dict[str, Any]]:
    """A JSON file of a results folder; ResultError, with what would write one, if there is none."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ResultError(f"{path.parent} has no {what} write one ({error})") from error


def load_results(folder: str | Path) -> pa.Table:
    """The curves of a results folder as an Arrow table (``.to_pandas()``).

    Columns: `problem, learner, preset, guarantee, seed, episode, steps, reward, cost_0.., regret,
    violation_0.., violation_plus_0.., sampled_reward, sampled_cost_0..`; see `tightrope.metrics`.
    Raises ResultError if there are none.
    """
    path = Path(folder) / "curves.parquet"
    if not path.exists():
        raise ResultError(f"{folder} holds no results (no curves.parquet)")
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise ResultError(f"{path} cannot be read: {error}") from error


def load_meta(folder: str | Path) -> dict[str, Any]:
    """`meta.json` of a results folder; ResultError if there is none."""
    try:
        return json.loads((Path(folder) / "meta.json").read_text())
    except (OSError, ValueError) as error:
        raise ResultError(f"{folder} holds no readable meta.json: {error}") from error


def group_name(learner: str, preset: str) -> str:
    """How a learner with its preset is shown: the bare name where the preset is the default."""
    return learner if split_name(learner)[1] == preset else f"{learner}@{preset}"
