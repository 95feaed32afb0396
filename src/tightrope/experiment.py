"""Experiments as data: which learner runs on which problem, for how long, with which seeds."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tightrope.errors import ConfigError, unknown_name
from tightrope.learners.presets import PROBLEM_CHANGES
from tightrope.learners.registry import get_learner, split_name
from tightrope.problems.registry import PROBLEMS, make_problem

if TYPE_CHECKING:
    from tightrope.model.mdp import FiniteMDP
    from tightrope.types import Feedback

QUICK_EPISODES, QUICK_SEEDS = 200, 2
MODEL_SUFFIXES = (".npz", ".json", ".csv", ".mdp", ".pomdp", ".tra")


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One learner on one problem.

    Attributes
    ----------
    problem : a problem's name, or the path of a model file
    learner : ``name`` or ``name@preset``
    episodes : length of a run (steps for a single stream)
    parameters : keywords of the problem's function
    changes : fields of the learner's Config to replace
    horizon : whether this is one of several lengths, which its name in the results then says
    seeds : how many of the experiment's seeds it is run with; 0 for all
    """

    problem: str
    learner: str
    episodes: int
    parameters: dict[str, Any] = field(default_factory=dict)
    changes: dict[str, Any] = field(default_factory=dict)
    feedback: Feedback = "sampled"
    horizon: bool = False
    seeds: int = 0

    @property
    def shown(self) -> str:
        """The problem's name in tables and figures."""
        return Path(self.problem).stem + (f"-T{self.episodes}" if self.horizon else "")

    @property
    def label(self) -> str:
        """A file name for the arm."""
        bare, preset = split_name(self.learner)
        extra = [f"{k}={v}" for k, v in sorted({**self.parameters, **self.changes}.items())]
        parts = [self.shown, f"{bare}@{preset}", *extra, self.feedback]
        text = "--".join(parts)
        return "".join(c if c.isalnum() or c in "-@=._" else "_" for c in text)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """Arms, each run with the seeds ``seed .. seed + seeds - 1``."""

    name: str
    arms: tuple[Arm, ...]
    seeds: int = 10
    seed: int = 0
    delta: float = 0.1

    def __post_init__(self) -> None:
        labels = [arm.label for arm in self.arms]
        twice = sorted({label for label in labels if labels.count(label) > 1})
        if twice:
            raise ConfigError(f"arms of an experiment need names of their own; twice: {twice[0]}")

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as `experiment.toml` holds them."""
        out = dataclasses.asdict(self)
        out["arms"] = [{k: v for k, v in arm.items() if v not in ({}, 0)} for arm in out["arms"]]
        return out


@dataclass(frozen=True)
class Entry:
    """Where an experiment is: a function (``module:function``) of `quick`; and what it is."""

    home: str
    title: str


# Built-in experiments. A problem's name is one too: its default experiment.
EXPERIMENTS: dict[str, Entry] = {
    "appendix-e": Entry(
        "tightrope.experiments.wei_average_reward:appendix_e",
        "MDP-EXP2 against NPG at equal samples [LIN, Appendix E]",
    ),
    "brantley-figure-1": Entry(
        "tightrope.experiments.brantley_figure_1:brantley_figure_1",
        "ConRL, RCPO and ApproPO on Mars rover and Box, TFW-UCRL2 on one stream [CON, Figure 1]",
    ),
    "wei-average-reward": Entry(
        "tightrope.experiments.wei_average_reward:wei_average_reward",
        "all average-reward learners on RiverSwim, a linear MDP and an ergodic model [LIN]",
    ),
    "best-of-both-worlds": Entry(
        "tightrope.experiments.best_of_both_worlds:best_of_both_worlds",
        "PDGD-OPS, unchanged, on stochastic and adversarial rewards and constraints [BOBW]",
    ),
}


def make_experiment(
    name: str,
    *,
    learners: list[str] | None = None,
    episodes: int | None = None,
    seeds: int | None = None,
    seed: int | None = None,
    quick: bool = False,
) -> Experiment:
    """A built-in experiment, or the default one of a problem or of a model file, with changes.

    Raises ConfigError for unknown names, with the nearest known one.

    >>> e = make_experiment("mars-rover", learners=["conrl@theory"], episodes=50, seeds=3)
    >>> [arm.learner for arm in e.arms], e.arms[0].episodes, e.seeds
    (['conrl@theory'], 50, 3)
    """
    if name in EXPERIMENTS:
        module, _, function = EXPERIMENTS[name].home.partition(":")
        build = getattr(importlib.import_module(module), function)
        known = {"steps": episodes} if "steps" in inspect.signature(build).parameters else {}
        base: Experiment = build(quick=quick, **known)
    elif name in PROBLEMS or is_model_file(name):
        base = _default(name, quick)
    else:
        raise unknown_name("experiment or problem", name, [*EXPERIMENTS, *PROBLEMS])
    arms = base.arms
    if learners is not None:
        if not learners or len({split_name(x) for x in learners}) != len(learners):
            raise ConfigError(f"learners must be distinct names, got {','.join(learners)!r}")
        shown = [arm.shown for arm in arms]
        chosen = [arm for learner in learners for arm in _arms_of(arms, learner)]
        arms = tuple(sorted(chosen, key=lambda arm: shown.index(arm.shown)))
    if episodes is not None:
        arms = tuple(dataclasses.replace(arm, episodes=episodes, horizon=False) for arm in arms)
        arms = tuple({arm.label: arm for arm in arms}.values())
    out = dataclasses.replace(
        base,
        arms=arms,
        seeds=base.seeds if seeds is None else seeds,
        seed=base.seed if seed is None else seed,
    )
    if out.seeds < 1 or out.seed < 0:
        raise ConfigError(f"need seeds >= 1 and seed >= 0, got {out.seeds} and {out.seed}")
    if min(arm.episodes for arm in arms) < 1:
        raise ConfigError(f"episodes must be >= 1, got {min(arm.episodes for arm in arms)}")
    return out


def _arms_of(arms: tuple[Arm, ...], learner: str) -> list[Arm]:
    """A learner's own arms; one that has none is put on every problem that it can be run on."""
    own = [arm for arm in arms if split_name(arm.learner) == split_name(learner)]
    if "@" not in learner:  # where the experiment has it with another preset only, that
        served = {arm.shown for arm in own}
        own += [
            arm for arm in arms if split_name(arm.learner)[0] == learner and arm.shown not in served
        ]
    if own:
        return own
    firsts = {(arm.shown, str(arm.parameters)): arm for arm in reversed(arms)}
    problems = list(reversed(firsts.values()))
    kinds = _kinds(learner)
    fitting = [arm for arm in problems if kinds & _kinds(arm.learner)]
    return [
        dataclasses.replace(
            arm, learner=learner, changes=changes_for(arm.problem, learner), feedback="sampled"
        )
        for arm in fitting or problems
    ]


def changes_for(problem: str, learner: str) -> dict[str, Any]:
    """What a learner's preset changes with the problem; see `learners.presets`.

    >>> changes_for("box", "appropo")
    {'reward_floor': 1.58, 'step': 10.0, 'round_episodes': 25}
    """
    own = PROBLEM_CHANGES.get(problem, {})
    bare, preset = split_name(learner)
    return {**own.get(bare, {}), **own.get(f"{bare}@{preset}", {})}


def _kinds(learner: str) -> frozenset[str]:
    """Whether a learner plays episodes, streams or both."""
    return get_learner(split_name(learner)[0]).traits & {"episodic", "stream"}


def _default(name: str, quick: bool) -> Experiment:
    """The experiment that a problem's name stands for."""
    problem = PROBLEMS.get(name)
    learners = problem.learners if problem else ("conrl", "uniform", "oracle")
    episodes = QUICK_EPISODES if quick else (problem.episodes if problem else 1000)
    return Experiment(
        name=name if problem else Path(name).stem,
        arms=tuple(
            Arm(problem=name, learner=x, episodes=episodes, changes=changes_for(name, x))
            for x in learners
        ),
        seeds=QUICK_SEEDS if quick else 10,
    )


def model_of(problem: str, parameters: dict[str, Any] | None = None) -> FiniteMDP:
    """The model of a problem's name or of a model file; `parameters` go to what makes it."""
    if not is_model_file(problem):
        return make_problem(problem, **(parameters or {}))
    from tightrope.io import load

    return load(problem, **(parameters or {}))


def is_model_file(name: str) -> bool:
    """Whether a name is no built-in problem and ends as model files do."""
    suffix = Path(name.lower().removesuffix(".gz")).suffix
    return name not in PROBLEMS and suffix in MODEL_SUFFIXES
