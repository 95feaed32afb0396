"""The command line. Heavy modules are imported by the command that needs them."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import sys
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tightrope import __version__
from tightrope.errors import ConfigError, TightropeError, did_you_mean

if TYPE_CHECKING:
    from tightrope.model.mdp import FiniteMDP
    from tightrope.model.policy import Policy
    from tightrope.planning import Solution

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Online reinforcement learning with guarantees, measured exactly.\n\n"
    "To begin: `tightrope list`, then `tightrope plan mars-rover`.",
)
OPTIONS = {"debug": False}
# typer carries its own copy of click, so the base class is found through a public subclass
CLICK_ERROR: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")
CriterionName = Annotated[
    str | None,
    typer.Option(help="episodic, average, discounted or total, in place of the model's own."),
]
Horizon = Annotated[int | None, typer.Option(help="Steps of an episode (criterion episodic).")]
Discount = Annotated[float | None, typer.Option(help="In [0, 1) (criterion discounted).")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tightrope {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of errors.")] = False,
) -> None:
    OPTIONS["debug"] = debug


@app.command("list")
def list_(
    kind: Annotated[
        str, typer.Argument(help="problems, learners or experiments; default all")
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Show what is built in.

    Names of problems are for plan and run, of experiments for run, of learners for run --learners.
    """
    from tightrope.experiment import EXPERIMENTS
    from tightrope.learners.registry import LEARNERS, presets_of
    from tightrope.problems.registry import PROBLEMS

    tables: dict[str, list[dict[str, Any]]] = {
        "problems": [{"name": k, "title": v.title} for k, v in PROBLEMS.items()],
        "learners": [
            {"name": k, "title": v.title, "presets": presets_of(k)} for k, v in LEARNERS.items()
        ],
        "experiments": [
            *({"name": k, "title": v.title} for k, v in EXPERIMENTS.items()),
            *({"name": k, "title": f"default: {v.title}"} for k, v in PROBLEMS.items()),
        ],
    }
    if kind and kind not in tables:
        hint = did_you_mean(kind, tables)
        raise ConfigError(f"list takes problems, learners or experiments, got '{kind}'{hint}")
    chosen = {kind: tables[kind]} if kind else tables
    if as_json:
        typer.echo(json.dumps(chosen[kind] if kind else chosen, indent=1))
        return
    for name, entries in chosen.items():
        typer.echo(f"{name}:")
        shown = [one for one in entries if name != "experiments" or one["name"] in EXPERIMENTS]
        wide = max(len(entry["name"]) for entry in shown)
        for entry in shown:
            presets = "".join(f" @{preset}" for preset in entry.get("presets", ()))
            typer.echo(f"  {entry['name']:{wide}}  {entry['title']}{presets and ':' + presets}")
        if name == "experiments":
            typer.echo("  and every problem's name: its default experiment")


@app.command("plan")
def plan_(
    model: Annotated[
        str,
        typer.Argument(
            help="A problem's name (see list), a model file (.npz .json .csv .mdp .pomdp .tra), or "
            "gymnasium:NAME."
        ),
    ],
    capacity: Annotated[
        list[str] | None,
        typer.Option(help="NAME=X, as often as needed; replaces a capacity (NAME>=X: a floor)."),
    ] = None,
    solver: Annotated[
        str,
        typer.Option(
            help="auto, lp, column-generation; also policy- or value-iteration if not episodic."
        ),
    ] = "auto",
    criterion: CriterionName = None,
    horizon: Horizon = None,
    discount: Discount = None,
    policy: Annotated[
        bool, typer.Option("--policy", help="Show what the policy does, state by state.")
    ] = False,
    stage: Annotated[
        int | None, typer.Option(help="Only that step of an episode, from 0, of the policy.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option(help="Save the policy as a table to this .csv file.")
    ] = None,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the policy to this .png, .pdf or .svg file.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Save the policy to this .npz file, for tr.load_policy.")
    ] = None,
    frontier: Annotated[
        str | None, typer.Option(help="NAME of a cost: trace the optimum as its capacity varies.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="With --frontier: every breakpoint, with no error left.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Find the optimum of a known model.

    Prints its value with certified bounds and, for every capacity, what is used, what a unit more
    would earn, whether it binds and the tightest that can be kept. Ends with 0 if solved; 1 if
    infeasible, unbounded or not converged; 2 for a mistake in what was asked.
    """
    _announce_compilation()
    from tightrope.answers import frontier_text, picture_title, solution_text
    from tightrope.planning import plan

    if stage is not None and not (policy or table or figure):
        raise ConfigError("--stage goes with --policy, --table or --figure")
    if exact and frontier is None:
        raise ConfigError("--exact goes with --frontier NAME")
    mdp = _model(model, capacity, criterion, horizon, discount)
    solution = plan(mdp, solver=solver)
    answer = solution.to_json()
    if mdp.num_costs:
        from tightrope.planning.frontier import least_capacities

        answer["least_capacities"] = least_capacities(mdp)
    texts = [solution_text(solution, answer, mdp.senses)]
    if policy or out or table or figure:
        from tightrope.planning.policies import policy_table, policy_text

        chosen = _policy_of(solution)
        if policy and as_json:
            answer["policy"] = policy_table(mdp, chosen, stage=stage).to_pylist()
        elif policy:
            texts.append(policy_text(mdp, chosen, stage=stage))
        _save_policy(mdp, chosen, stage, out, table)
        if figure is not None:
            from tightrope.pictures import draw_policy

            draw_policy(mdp, chosen, figure, stage=stage, title=picture_title(model, answer))
    if frontier is not None:
        from tightrope.planning.frontier import frontier as trace

        curve = trace(mdp, frontier, exact=exact)
        answer["frontier"] = curve.to_json()
        texts.append(frontier_text(curve))
    typer.echo(json.dumps(answer, indent=1) if as_json else "\n\n".join(texts))
    if solution.status.value != "solved":
        raise typer.Exit(1)


def _model(
    name: str,
    capacity: list[str] | None,
    criterion: str | None,
    horizon: int | None,
    discount: float | None,
    **reading: str,
) -> FiniteMDP:
    """A problem or a model file, with what the command line says in place of its own."""
    from tightrope.experiment import is_model_file, model_of

    said: dict[str, Any] = {"criterion": criterion, "horizon": horizon, "discount": discount}
    said = {key: value for key, value in said.items() if value is not None}
    if capacity:
        parts = [_assignment(text) for text in capacity]
        said["capacities"] = {name: value for name, _, value in parts}
        senses = {name: sense for name, sense, _ in parts if sense != "="}
        if senses:
            said["senses"] = senses
    if is_model_file(name):
        return model_of(name, {**said, **reading})
    if name.startswith("gymnasium:"):
        from tightrope.io import from_gymnasium

        if criterion is None:
            raise ConfigError(
                "an environment does not say the criterion: --criterion average or total, episodic "
                "with --horizon, or discounted with --discount"
            )
        return from_gymnasium(name.removeprefix("gymnasium:"), **said)
    found = _finite_model(name, model_of(name))
    return found.replace(**said) if said else found


def _finite_model(name: str, problem: Any) -> FiniteMDP:
    """The finite model that a built-in problem stands for."""
    if hasattr(problem, "loop_free"):
        from tightrope.problems.adversarial import hindsight_model
        from tightrope.problems.registry import PROBLEMS

        episodes = PROBLEMS[name].episodes
        _show_warning(
            f"{name} is a sequence of rewards and constraints; its model is that of their averages "
            f"in hindsight over {episodes:,} episodes, seed 0"
        )
        return hindsight_model(problem, episodes, 0)
    if hasattr(problem, "theta"):
        from tightrope.problems.linear import continuous_solution

        known = continuous_solution(problem)
        raise ConfigError(
            f"the states of {name} are continuous, so it is no table to plan with; its optimal "
            f"gain is between {known.lower_bound:.10g} and {known.upper_bound:.10g}"
        )
    return problem.model if hasattr(problem, "model") else problem


@app.command()
def convert(
    source: Annotated[
        str, typer.Argument(help="A model file, a problem's name or gymnasium:NAME.")
    ],
    target: Annotated[Path, typer.Argument(help="What to write; its end chooses the format.")],
    capacity: Annotated[
        list[str] | None,
        typer.Option(help="NAME=X, as often as needed; replaces a capacity (NAME>=X: a floor)."),
    ] = None,
    criterion: CriterionName = None,
    horizon: Horizon = None,
    discount: Discount = None,
    deadlock: Annotated[
        str, typer.Option(help="error, or absorb: states without actions get a free loop.")
    ] = "error",
) -> None:
    """Write a model in another format.

    What the format cannot hold is refused by name; what must be said again on reading is noted.
    """
    from tightrope.io import save

    reading = {"deadlock": deadlock} if deadlock != "error" else {}
    model = _model(source, capacity, criterion, horizon, discount, **reading)
    save(model, target)
    typer.echo(f"{target}: {model}")


def _assignment(text: str) -> tuple[str, str, float]:
    """(name, '=', '<=' or '>=', number) of a capacity."""
    found = re.fullmatch(r"(.*[^<>=])(<=|>=|=)([^<>=]*)", text)
    try:
        if found is None:
            raise ValueError
        return found[1], found[2], float(found[3])
    except ValueError:
        raise ConfigError(f"--capacity takes NAME=NUMBER, got '{text}'") from None


def _policy_of(solution: Solution) -> Policy:
    """The planner's policy; for an infeasible model the one of least violation, said in a note."""
    if solution.policy is not None:
        return solution.policy
    if solution.least_violation is None:
        raise ConfigError(f"there is no policy to show: the model is {solution.status.value}")
    _show_warning("no policy keeps the capacities; the policy shown is that of least violation")
    return solution.least_violation.policy


def _save_policy(
    model: FiniteMDP, policy: Policy, stage: int | None, out: Path | None, table: Path | None
) -> None:
    if table is not None:
        from pyarrow.csv import write_csv

        from tightrope.planning.policies import policy_table

        write_csv(policy_table(model, policy, stage=stage), str(table))
    if out is not None:
        from tightrope.model.policy import save_policy

        save_policy(out, policy)


@app.command()
def run(
    experiment: Annotated[str, typer.Argument(help="An experiment, a problem or a model file.")],
    learners: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated, each NAME or NAME@PRESET; default the experiment's own."
        ),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option("--episodes", "--steps", help="Episodes, or steps of a stream, of each run."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds.")] = None,
    seed: Annotated[int | None, typer.Option(help="The first seed.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Worker processes; default all cores.")] = None,
    out: Annotated[Path | None, typer.Option(help="Results folder; default results/NAME.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the runs that are there, do the rest.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small version, for a first look.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Run learners against the exact optimum.

    Curves, figures and everything needed to resume or repeat go to a folder (--out).
    """
    if not quiet:
        _announce_compilation()
    from tightrope.experiment import make_experiment
    from tightrope.launch import launch

    names = None if learners is None else [name.strip() for name in learners.split(",")]
    what = make_experiment(
        experiment, learners=names, episodes=episodes, seeds=seeds, seed=seed, quick=quick
    )
    folder = out or Path("results") / what.name
    try:
        summary = launch(what, folder, workers=jobs, resume=resume, quiet=quiet)
    except KeyboardInterrupt as error:
        typer.echo(f"tightrope: interrupted: {_one_line(str(error))}", err=True)
        raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(summary, indent=1))
        return
    _print_summary(summary)


def _print_summary(summary: dict[str, Any]) -> None:
    for row in summary["arms"]:
        costs = "".join(
            f"  {name} {_four(value)} (capacity {row['capacities'][name]:.4g})"
            for name, value in row["costs"].items()
        )
        typer.echo(
            f"{row['problem']:14} {row['learner']:26} last {row['window']} {row['unit']}: "
            f"reward {_four(row['reward'])} (optimum {row['optimum']:.4f}){costs}"
        )
    if summary["slopes"]:
        from tightrope.slopes import slopes_text

        typer.echo(slopes_text(summary["slopes"]))
    if summary["growth"]:
        from tightrope.growth import growth_text

        typer.echo(growth_text(summary["growth"]))
    if summary["budgets"]:
        from tightrope.simulation.budgets import table_text

        typer.echo(table_text(summary["budgets"]))
    typer.echo(f"{summary['runs']} runs in {summary['seconds']:.1f} s: {summary['folder']}")
    for path in summary["figures"]:
        typer.echo(f"figure: {path}")


@app.command()
def bounds(
    folder: Annotated[Path, typer.Argument(help="A results folder.")],
    as_json: JsonFlag = False,
) -> None:
    """Set a run beside its theorem's bounds.

    What was measured, what the theorem says, and their ratio; the worst seed of each arm.
    """
    from tightrope.results import group_name, load_bounds
    from tightrope.theory import table_text, worst_of_seeds

    entries = load_bounds(folder)
    if as_json:
        typer.echo(json.dumps(entries, indent=1))
        return
    arms: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for entry in entries:
        arm = (entry["problem"], group_name(entry["learner"], entry["preset"]))
        arms.setdefault(arm, []).append(entry)
    for (problem, learner), runs in arms.items():
        seeds = f"{len(runs)} seed{'s' * (len(runs) > 1)}"
        typer.echo(f"{problem}, {learner}, T = {runs[0]['episodes']}, {seeds}")
        typer.echo(table_text(worst_of_seeds([run["bounds"] for run in runs])))
        for run in runs:
            for note in run["notes"]:
                typer.echo(f"note, seed {run['seed']}: {note}")
        typer.echo("")


@app.command()
def budgets(
    folder: Annotated[Path, typer.Argument(help="A results folder.")],
    as_json: JsonFlag = False,
) -> None:
    """Show how runs with hard budgets ended.

    Reward against both benchmarks, when and why runs stopped, what is left.
    """
    from tightrope.results import load_budgets
    from tightrope.simulation.budgets import table_text

    reports = load_budgets(folder)
    typer.echo(json.dumps(reports, indent=1) if as_json else table_text(reports))


def _announce_compilation() -> None:
    """Say on standard error when a kernel is compiled that is not in the cache."""
    from tightrope.kernels.jit import WATCHERS

    text = "compiling kernels, the first time that they are used (some seconds) ..."
    WATCHERS[:] = [lambda: typer.echo(text, err=True)]


def main() -> None:
    """Run the command line; users' mistakes end with one line on standard error and code 2."""
    warnings.showwarning = _show_warning
    try:
        code = app(standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        typer.echo("tightrope: interrupted", err=True)
        code = 130
    except CLICK_ERROR as error:
        typer.echo(f"tightrope: {_one_line(error.format_message())}", err=True)
        code = 2
    except (TightropeError, OSError) as error:  # an OSError: a file that cannot be read or written
        if OPTIONS["debug"]:
            traceback.print_exc()
        typer.echo(f"tightrope: {_one_line(str(error))}", err=True)
        code = 2
    sys.exit(code if isinstance(code, int) else 0)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"tightrope: note: {_one_line(str(message))}", err=True)


def script() -> None:
    """`main` as the installed command: it starts and ends faster.

    Imports make a million objects and no garbage; and unloading compiled code at exit takes half a
    second, as long as a plan, so the process ends without it.
    """
    gc.set_threshold(100_000)
    code: Any = 1
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # a full disk was said before
            stream.flush()
    os._exit(code if isinstance(code, int) else 0)


def _four(value: float) -> str:
    """Four digits, and no minus before a rounded 0."""
    return f"{round(value, 4) + 0.0:.4f}"


def _one_line(text: str) -> str:
    return " ".join(text.split())
