"""The one loop in which a learner meets a world."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tightrope import __version__
from tightrope.errors import ConfigError, ResultError
from tightrope.learners.protocol import Info, Learner, restore_state, state_arrays
from tightrope.learners.registry import make_config, split_name
from tightrope.metrics import Ledger, recording_grid
from tightrope.model.linear import ContinuousLinearMDP, LinearMDP
from tightrope.model.mdp import FiniteMDP, require_model
from tightrope.model.policy import Policy, check_policy
from tightrope.planning import Solution, functions, plan
from tightrope.problems.adversarial import AdversarialProblem
from tightrope.problems.linear import continuous_solution
from tightrope.simulation.adversarial import (
    AdversarialWorld,
    hindsight_solution,
    require_hindsight,
    settled,
    summary,
    told,
)
from tightrope.simulation.assumptions import checked_config, unmet_assumptions
from tightrope.simulation.bounds import bounds_of, margin_notes
from tightrope.simulation.budgets import budget_report, check_null
from tightrope.simulation.episodes import EpisodeWorld
from tightrope.simulation.points import PointWorld
from tightrope.simulation.stream import StreamWorld, check_structure, stream_spec, true_span
from tightrope.simulation.streams import learner_seed, streams
from tightrope.theory import to_json
from tightrope.types import (
    Average,
    Criterion,
    Episodic,
    Feedback,
    FloatArray,
    ProblemSpec,
    as_whole,
)

Progress = Callable[[int], None]
# End points of the weak no-interval regret: every episode of a short run, which makes it exact
SHORT_RUN, INTERVAL_POINTS = 100, 32


@dataclass(kw_only=True, eq=False)
class Run:
    """One learner on one problem with one seed.

    Attributes
    ----------
    columns : dict of arrays, one entry a row of the recording grid
        `episode, steps, reward, cost_0.., regret, violation_0.., violation_plus_0..,
        sampled_reward, sampled_cost_0..` (see `tightrope.metrics`).
    diagnostics : dict of arrays
        What the learner reported, on the same rows; NaN before its first update.
    bounds : list of dict
        Measured value, bound and ratio of every quantity that a theorem speaks of.
    notes : list of str
        What was noticed: a cap that bound, a lost confidence set, a margin rho <= 0, constants that
        are estimates, assumptions of the learner's theorem that fail.
    scale : dict or None
        Of loop-free problems: how rewards and G came from an unrolled model.
    unit : 'episodes' or 'steps'
    senses : dict
        '<=' or '>=' of each cost, by its name.
    budgets : dict or None
        With hard budgets: reward against both benchmarks, when and why the learner stopped, what
        is left (see `simulation.budgets`).
    guarantee : str or None
        The theorem whose constants were used; None if one of its assumptions is known to fail.
    state_bytes : int
        What the learner remembers at the end: the arrays of its state.
    identity : dict
        What a run must share with another to be the same but for the seed: the model's hash,
        learner, configuration as asked for, length, feedback and version.
    """

    problem: str
    learner: str
    preset: str
    guarantee: str | None
    seed: int
    feedback: str
    config: dict[str, Any]
    optimum: Solution
    columns: dict[str, np.ndarray]
    diagnostics: dict[str, np.ndarray]
    seconds: float
    updates: int
    state_bytes: int = 0
    bounds: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    budgets: dict[str, Any] | None = None
    identity: dict[str, Any] = field(default_factory=dict)
    scale: dict[str, Any] | None = None
    unit: str = "episodes"
    senses: dict[str, str] = field(default_factory=dict)


@dataclass(kw_only=True, eq=False)
class Session:
    """A run on its way: `advance` it, `save` it, `resume` it."""

    problem: str
    name: str
    learner: Learner
    config: Any
    model: FiniteMDP | AdversarialProblem | ContinuousLinearMDP
    spec: ProblemSpec
    optimum: Solution
    episodes: int  #: or steps of a single stream
    seed: int
    world: EpisodeWorld | StreamWorld | PointWorld | AdversarialWorld
    state: Any
    ledger: Ledger
    updates: int = 0
    seconds: float = 0.0
    info_rows: dict[str, FloatArray] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)  #: about estimated constants
    identity: dict[str, Any] = field(default_factory=dict)  #: see `Run`
    unmet: list[str] = field(default_factory=list)  #: assumptions of the theorem that fail


def start(
    model: FiniteMDP | LinearMDP | ContinuousLinearMDP | AdversarialProblem,
    learner: str,
    *,
    episodes: int,
    seed: int = 0,
    feedback: Feedback = "sampled",
    delta: float = 0.1,
    problem: str = "model",
    optimum: Solution | None = None,
    **changes: Any,
) -> Session:
    """Prepare a run; nothing is played yet. Arguments are those of `run`.

    `episodes` is the length of the run: steps for a single stream.
    """
    declared = model
    if isinstance(model, LinearMDP):
        model = model.model
    total = as_whole(episodes, "episodes or steps", 1)
    seeds = streams(seed)
    world: EpisodeWorld | StreamWorld | PointWorld | AdversarialWorld
    if isinstance(model, AdversarialProblem):
        if feedback == "bernoulli":
            raise ConfigError(
                "a loop-free problem shows every table in full (feedback 'mean'); 'bernoulli' "
                "does not exist there"
            )
        points = total if total <= SHORT_RUN else INTERVAL_POINTS
        world = AdversarialWorld(model, episodes=total, seed=seed, interval_points=points)
        optimum = hindsight_solution(model, total, seed) if optimum is None else optimum
        require_hindsight(model, total, seed, optimum)
        spec = model.spec(feedback=world.feedback)
    elif isinstance(model, ContinuousLinearMDP):
        optimum = continuous_solution(model) if optimum is None else optimum
        spec = model.spec(span=optimum.statistics["span"])
        world = PointWorld(model, seeds)
    elif isinstance(model.criterion, Episodic):
        world = EpisodeWorld(model, seeds, feedback)
        optimum = plan(model) if optimum is None else optimum
        spec = model.spec(feedback=feedback)
    else:
        optimum = plan(model) if optimum is None else optimum
        assert isinstance(declared, FiniteMDP | LinearMDP)
        spec = stream_spec(declared, feedback, optimum)
        world = StreamWorld(model, seeds, spec, feedback)
    optimum.require_solved()
    stream = isinstance(world, StreamWorld | PointWorld)
    chosen, config = make_config(learner, spec, episodes=total, delta=delta, **changes)
    identity = {
        "model": model.content_hash,
        "learner": "@".join(split_name(learner)),
        "config": config_json(config),  # before what depends on the seed is filled in
        "episodes": total,
        "feedback": world.feedback,
        "version": __version__,
    }
    _check_kind(chosen, model)
    config = told(model, chosen, config, optimum)
    if any(item.name == "seed" for item in dataclasses.fields(config)):
        config = dataclasses.replace(config, seed=learner_seed(seeds.learner))
    notes: list[str] = []
    unmet: list[str] = []
    if isinstance(world, StreamWorld | PointWorld):
        config, notes = checked_config(chosen, spec, config, world.model)
        unmet = unmet_assumptions(chosen, spec, config, world.model, true_span(optimum))
    else:
        chosen.check(spec, config)
    if "null-action" in chosen.traits:
        assert isinstance(model, FiniteMDP)
        check_null(model, config)
    if chosen.name == "conrl-convex" and isinstance(model, FiniteMDP):
        g = functions.constraint(config.constraint, spec.capacities)
        if g is not None:  # one that every policy violates is said before anything is played
            plan(model, constraint=g).require_solved()
    assert optimum.value is not None
    return Session(
        problem=problem,
        name=learner,
        learner=chosen,
        config=config,
        model=model,
        spec=spec,
        optimum=optimum,
        episodes=total,
        seed=seed,
        world=world,
        state=chosen.init(spec, config),
        ledger=Ledger(
            recording_grid(total),
            optimum.value,
            spec.capacities,
            spec.signs,
            steps=getattr(model, "horizon", 1) if not stream else 1,
            windowed=stream,
        ),
        identity=_as_json(identity),
        notes=notes,
        unmet=unmet,
    )


def _length(
    problem: FiniteMDP | LinearMDP | ContinuousLinearMDP | AdversarialProblem,
    episodes: int | None,
    steps: int | None,
) -> int:
    """Episodes of an episodic problem, steps of a single stream."""
    model = problem.model if isinstance(problem, LinearMDP) else problem
    criterion: Criterion = Average()
    if isinstance(model, AdversarialProblem):
        criterion = Episodic(model.horizon)
    elif isinstance(model, FiniteMDP):
        criterion = model.criterion
    if isinstance(criterion, Episodic):
        unit, given, other = "episodes", episodes, steps
    elif isinstance(criterion, Average):
        unit, given, other = "steps", steps, episodes
    else:
        raise ConfigError(f"learners need criterion Episodic(H) or Average(), got {criterion}")
    if given is None or other is not None:
        raise ConfigError(f"a problem with criterion {criterion} is measured in {unit}=")
    return given


def _check_kind(
    learner: Learner, model: FiniteMDP | ContinuousLinearMDP | AdversarialProblem
) -> None:
    """ConfigError if the learner is not for this criterion or this chain structure."""
    stream = isinstance(model, ContinuousLinearMDP) or (
        isinstance(model, FiniteMDP) and not isinstance(model.criterion, Episodic)
    )
    kind = "single streams" if stream else "episodic problems"
    if ("stream" if stream else "episodic") not in learner.traits:
        raise ConfigError(
            f"{learner.name} cannot learn {kind}; its traits: {sorted(learner.traits)}"
        )
    if isinstance(model, FiniteMDP) and stream:
        check_structure(model, learner)


def advance(session: Session, until: int | None = None, progress: Progress | None = None) -> None:
    """Play up to episode `until` (default: the end), updating after each block of a policy.

    A single stream goes on to the first update at or after step `until`: cutting a policy short
    would change what the learner does.
    """
    learner, world, ledger = session.learner, session.world, session.ledger
    watch = getattr(world, "watch", None)  # sums that need the truth beside the learner's state
    last = session.episodes if until is None else min(until, session.episodes)
    whole = isinstance(world, StreamWorld | PointWorld)
    started = time.perf_counter()
    while ledger.count < last:
        policy = learner.policy(session.state)
        stop = learner.horizon(session.state)
        if session.updates == 0 and not whole:
            assert not isinstance(session.model, ContinuousLinearMDP)
            check_policy(policy, session.model.available, session.model.horizon)
        experience, sampled = world.play(
            policy, stop, (session.episodes if whole else last) - ledger.count
        )
        exact = world.exact(policy, experience)
        if watch is not None:
            watch(session.state, experience, exact)
        if getattr(session.config, "privileged_costs", False):
            experience.exact = exact[0]
        session.state, info = learner.update(session.state, experience)
        session.updates += 1
        before = ledger.written
        if ledger.add(exact, sampled):
            _record_info(session, info, before)
        if progress is not None:
            progress(ledger.count)
    session.seconds += time.perf_counter() - started


def _record_info(session: Session, info: Info, before: int) -> None:
    """Write the update's Info to the rows that its block has written."""
    after = session.ledger.written
    for name, value in info.items():
        if isinstance(value, np.ndarray):
            for i in range(value.size):
                _info_column(session, f"{name}_{i}")[before:after] = value[i]
        else:
            _info_column(session, name)[before:after] = value


def _info_column(session: Session, name: str) -> FloatArray:
    if name not in session.info_rows:
        session.info_rows[name] = np.full(session.ledger.grid.size, np.nan)
    return session.info_rows[name]


def finish(session: Session) -> Run:
    """The run's record; ResultError if episodes are left."""
    if session.ledger.count < session.episodes:
        raise ResultError(f"{session.episodes - session.ledger.count} episodes are left to play")
    bare, preset = split_name(session.name)
    optimum, columns = session.optimum, session.ledger.columns()
    bounds: list[dict[str, Any]] = []
    scale = None
    if isinstance(session.world, AdversarialWorld):
        record = summary(session)
        optimum, columns = settled(session)
        rows = bounds_of(record)
        bounds = [to_json(row) for row in rows]
        own = record.notes + margin_notes(rows)
        scale = session.world.problem.scale
    else:
        own = session.state.notes() if hasattr(session.state, "notes") else []
    unmet = [*session.unmet, *(session.state.unmet() if hasattr(session.state, "unmet") else [])]
    notes = [*session.notes, *(f"no theorem covers this run: {x}" for x in unmet), *own]
    budgets = None
    if "null-action" in session.learner.traits:
        assert isinstance(session.model, FiniteMDP)
        assert optimum.value is not None
        budgets = budget_report(
            session.model, session.config, {k: v[-1] for k, v in session.info_rows.items()},
            reward=session.episodes * optimum.value - float(columns["regret"][-1]),
            feedback=session.world.feedback,
        )  # fmt: skip
    return Run(
        problem=session.problem,
        learner=bare,
        preset=preset,
        guarantee=None if unmet else session.learner.guarantee(session.config),
        seed=session.seed,
        feedback=session.world.feedback,
        config=config_json(session.config),
        optimum=optimum,
        columns=columns,
        diagnostics=session.info_rows,
        seconds=session.seconds,
        updates=session.updates,
        state_bytes=sum(array.nbytes for array in state_arrays(session.state).values()),
        bounds=bounds,
        notes=notes,
        budgets=budgets,
        identity=session.identity,
        scale=scale,
        unit="steps" if isinstance(session.world, StreamWorld | PointWorld) else "episodes",
        senses={
            name: "<=" if sign > 0 else ">="
            for name, sign in zip(optimum.cost_names, session.spec.signs)
        },
    )


def run(
    problem: FiniteMDP | LinearMDP | ContinuousLinearMDP | AdversarialProblem | str,
    learner: str,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    seed: int = 0,
    feedback: Feedback = "sampled",
    delta: float = 0.1,
    **changes: Any,
) -> Run:
    """Let a learner learn a problem, measured exactly.

    Parameters
    ----------
    problem : a model, or the name of a problem
    learner : ``name`` or ``name@preset``
    episodes : int >= 1, for an episodic problem
    steps : int >= 1, for a single stream (criterion Average())
    seed : int >= 0
        The same seed gives the same draws to every learner.
    feedback : 'sampled', 'mean' or 'bernoulli'
        What the learner observes; the accounting always uses the exact means.
    delta : failure probability of the learner's confidence sets
    changes : fields of the learner's Config to replace

    Raises
    ------
    ConfigError
        Unknown names, or a problem on which the learner cannot run.
    PlanError
        If the problem has no certified optimum to compare with.

    Examples
    --------
    >>> result = run("mars-rover", "conrl", episodes=3, seed=1)
    >>> result.columns["episode"], result.learner, result.preset
    (array([1, 2, 3]), 'conrl', 'tuned')
    """
    name = "model"
    if isinstance(problem, str):
        from tightrope.problems.registry import make_problem

        name, problem = problem, make_problem(problem)
    if not isinstance(problem, LinearMDP | ContinuousLinearMDP | AdversarialProblem):
        require_model(problem, "run")
    session = start(
        problem, learner, episodes=_length(problem, episodes, steps), seed=seed,
        feedback=feedback, delta=delta, problem=name, **changes,
    )  # fmt: skip
    advance(session)
    return finish(session)


def config_json(config: Any) -> dict[str, Any]:
    """A configuration as JSON values; a policy given to a privileged learner is left out."""
    values = {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}
    values.pop("policy", None)
    return values


def simulate(
    model: FiniteMDP, policy: Policy, *, episodes: int, seed: int = 0,
    feedback: Feedback = "sampled",
) -> tuple[Any, FloatArray]:  # fmt: skip
    """Play a policy; returns the last block's Experience and (episodes, 1 + m) sampled totals.

    >>> from tightrope.planning import plan
    >>> from tightrope.problems import mars_rover
    >>> model = mars_rover()
    >>> _, totals = simulate(model, plan(model).policy, episodes=1000, seed=3)
    >>> totals.shape
    (1000, 2)
    """
    require_model(model, "simulate")
    episodes = as_whole(episodes, "episodes", 1)
    check_policy(policy, model.available, model.horizon)
    from tightrope.learners.protocol import Stop

    world = EpisodeWorld(model, streams(seed), feedback)
    totals = np.empty((episodes, 1 + model.num_costs))
    experience = None
    while world.episode < episodes:
        done = world.episode
        experience, sums = world.play(policy, Stop("episodes", episodes - done), episodes - done)
        totals[done : world.episode] = sums
    return experience, totals


def save(session: Session, path: str | Path) -> None:
    """Write a session to one file, at once or not at all."""
    arrays = {f"state/{name}": value for name, value in state_arrays(session.state).items()}
    arrays.update({f"ledger/{name}": value for name, value in session.ledger.arrays().items()})
    written = session.ledger.written
    arrays.update({f"world/{name}": value for name, value in session.world.arrays().items()})
    arrays.update({f"info/{name}": v[:written] for name, v in session.info_rows.items()})
    arrays["identity"] = np.array(json.dumps({**session.identity, "seed": session.seed}))
    arrays["seconds"], arrays["updates"] = np.array(session.seconds), np.array(session.updates)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    temporary = Path(f"{path}.tmp")
    try:
        temporary.write_bytes(buffer.getvalue())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def resume(session: Session, path: str | Path) -> None:
    """Bring a fresh session to where `save` left one; ResultError if it was another run's."""
    try:
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ResultError(f"{path} is no saved session: {error}") from error
    if "identity" not in arrays:
        raise ResultError(f"{path} is no saved session, or one of another version; delete it")
    found, wanted = json.loads(str(arrays["identity"])), {**session.identity, "seed": session.seed}
    if found != wanted:
        raise ResultError(
            f"{path} was saved by another run: {difference(found, wanted)}; delete it, or choose "
            "another folder"
        )

    def group(prefix: str) -> dict[str, np.ndarray]:
        return {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}

    session.state = restore_state(session.learner, session.spec, session.config, group("state/"))
    session.ledger.restore(group("ledger/"))
    session.world.restore(group("world/"))
    session.info_rows = {}
    for name, values in group("info/").items():
        _info_column(session, name)[: values.size] = values
    session.seconds, session.updates = float(arrays["seconds"]), int(arrays["updates"])


def difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """In words, where the identities of two runs differ.

    >>> difference({"seed": 1, "config": {"clip": 0}}, {"seed": 1, "config": {"clip": 2}})
    'config clip is 0 there, 2 here'
    """
    flat = [
        {k: v for k, v in one.items() if k != "config"}
        | {f"config {k}": v for k, v in one.get("config", {}).items()}
        for one in (found, wanted)
    ]
    names = dict.fromkeys([*flat[0], *flat[1]])
    values = [(name, *(one.get(name) for one in flat)) for name in names]
    return ", ".join(f"{name} is {a!r} there, {b!r} here" for name, a, b in values if a != b)


def _as_json(values: dict[str, Any]) -> dict[str, Any]:
    """What reading them from JSON gives."""
    out: dict[str, Any] = json.loads(json.dumps(values, default=float))
    return out
