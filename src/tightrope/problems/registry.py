"""Problems by name. A new one needs its function and one line here."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tightrope.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from tightrope.model.mdp import FiniteMDP


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A named problem: where its function is, and one line for `tightrope list`."""

    home: str  #: "module:function"
    title: str
    episodes: int = 1000  #: length of its default experiment
    learners: tuple[str, ...] = ("conrl", "uniform", "oracle")


LOOP_FREE_LEARNERS = ("pdgd-ops", "uc-o-reps", "uniform", "oracle")

PROBLEMS: dict[str, Problem] = {
    "mars-rover": Problem(
        home="tightrope.problems.gridworlds:mars_rover",
        title="8x8 Mars rover: reach the goal, avoid the rocks [CON, Figure 1]",
    ),
    "box": Problem(
        home="tightrope.problems.gridworlds:box",
        title="6x6 Box: reach the goal, do not push the box into a corner [CON, Figure 1]",
        episodes=1500,
    ),
    "mars-rover-stream": Problem(
        home="tightrope.problems.gridworlds:mars_rover_stream",
        title="Mars rover as one stream without resets [CON, Figure 1, panel C]",
        episodes=30_000,
        learners=("tfw-ucrl2", "uniform", "oracle"),
    ),
    "rover-knapsack": Problem(
        home="tightrope.problems.null:rover_knapsack",
        title="4x4 Mars rover with a null action and budgets over all episodes [CON, Section 5]",
        episodes=500,
        learners=("conrl-knapsack", "conrl-knapsack@before-violation", "uniform", "oracle"),
    ),
    "inventory": Problem(
        home="tightrope.problems.operations:inventory",
        title="stock of one product with ragged orders; holding and ordering costs [Puterman, 3.2]",
    ),
    "media-buffer": Problem(
        home="tightrope.problems.operations:media_buffer",
        title="media player with a fast and a slow channel [Bura et al. 2022, Section 6]",
    ),
    "budget-pacing": Problem(
        home="tightrope.problems.operations:budget_pacing",
        title="bidding in repeated auctions with a budget [Balseiro and Gur 2019]",
    ),
    "service-queue": Problem(
        home="tightrope.problems.operations:service_queue",
        title="queue with a choice of service rate and admitted flow [Altman, Ch. 5]",
        learners=("uniform", "oracle"),
    ),
    "machine-replacement": Problem(
        home="tightrope.problems.operations:machine_replacement",
        title="a machine that wears out: keep, repair or replace [Derman, Ch. 1]",
        learners=("uniform", "oracle"),
    ),
    "random-cmdp": Problem(
        home="tightrope.problems.random:random_cmdp",
        title="random sparse constrained model with binding capacities",
    ),
    **{
        f"{family}-{rewards}-{constraints}": Problem(
            home=f"tightrope.problems.loop_free:{function}_{rewards}_{constraints}",
            title=f"{title}, {rewards} rewards, {constraints} constraints [BOBW]",
            episodes=4000,
            learners=LOOP_FREE_LEARNERS,
        )
        for family, function, title in (
            ("loop-free", "random", "random loop-free world"),
            ("condition-2", "roomy", "small world that meets Condition 2 at T = 1e6"),
        )
        for rewards in ("stochastic", "adversarial")
        for constraints in ("stochastic", "adversarial")
    },
    "switching": Problem(
        home="tightrope.problems.loop_free:switching",
        title="constraints that switch between a loose and a tight table [BOBW]",
        episodes=4000,
        learners=LOOP_FREE_LEARNERS,
    ),
    **{
        f"{name}-{world}": Problem(
            home=f"tightrope.problems.loop_free:{function}_{world}",
            title=title,
            episodes=4000,
            learners=LOOP_FREE_LEARNERS,
        )
        for name, function, title in (
            ("ten-layers", "ten_layers", "why alpha = rho/(1+rho) is wrong for L > 1 [BOBW]"),
            ("impossibility", "impossibility", "sublinear regret and violation at once: no"),
        )
        for world in ("relief", "trap")
    },
    "mars-rover-loop-free": Problem(
        home="tightrope.problems.loop_free:mars_rover_loop_free",
        title="the 8x8 Mars rover, unrolled: 30 layers of 64 states, capacity as G [BOBW]",
        episodes=200,
        learners=LOOP_FREE_LEARNERS,
    ),
    "auction-pacing": Problem(
        home="tightrope.problems.loop_free:auction_pacing",
        title="budget pacing in repeated second-price auctions, spend as G",
        episodes=4000,
        learners=LOOP_FREE_LEARNERS,
    ),
    "riverswim": Problem(
        home="tightrope.problems.average:riverswim",
        title="swim against the current, average reward [Osband 2013 and other sources]",
        episodes=100_000,
        learners=("ucrl2", "psrl", "olsvi-fh", "politex", "uniform", "oracle"),
    ),
    "ergodic": Problem(
        home="tightrope.problems.average:ergodic_mdp",
        title="random ergodic model with known mixing time, average reward",
        episodes=100_000,
        learners=("ucrl2", "psrl", "politex", "mdp-exp2", "npg", "uniform", "oracle"),
    ),
    "continuous-linear-mdp": Problem(
        home="tightrope.problems.linear:random_continuous_mdp",
        title="linear MDP on [0, 1] with mixture-of-Beta measures, average reward [LIN]",
        episodes=10_000,
        learners=("olsvi-fh@lazy", "uniform", "oracle"),
    ),
    "linear-mdp": Problem(
        home="tightrope.problems.linear:linear_mdp",
        title="random linear MDP, simplex features, ergodic, average reward [LIN]",
        episodes=100_000,
        learners=("olsvi-fh", "mdp-exp2", "npg", "politex", "ucrl2", "uniform", "oracle"),
    ),
    "access-control": Problem(
        home="tightrope.problems.average:access_control",
        title="access to a multi-server queue, average reward [Sutton and Barto, Example 10.2]",
        episodes=100_000,
        learners=("ucrl2", "psrl", "uniform", "oracle"),
    ),
    "admission-control": Problem(
        home="tightrope.problems.average:admission_control",
        title="admission to an M/M/1/N queue, average reward",
        episodes=100_000,
        learners=("ucrl2", "psrl", "uniform", "oracle"),
    ),
    "admission-control-polynomial": Problem(
        home="tightrope.problems.linear:admission_control_polynomial",
        title="the same with polynomial features and rewards scaled to [-1, 1]",
        episodes=100_000,
        learners=("olsvi-fh", "politex", "npg", "ucrl2", "psrl", "uniform", "oracle"),
    ),
}


def make_problem(name: str, **parameters: Any) -> FiniteMDP:
    """The model of a named problem; ConfigError for an unknown name or parameter.

    >>> make_problem("mars-rover", capacity=0.2).capacities
    array([0.2])
    """
    if name not in PROBLEMS:
        raise unknown_name("problem", name, PROBLEMS)
    module, _, function = PROBLEMS[name].home.partition(":")
    made = getattr(importlib.import_module(module), function)
    if not parameters:
        return made()
    try:
        return made(**parameters)
    except TypeError as error:
        raise ConfigError(f"problem '{name}' with {parameters}: {error}") from error
