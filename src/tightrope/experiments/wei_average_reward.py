"""Average reward with linear function approximation: every learner on three problems.

[LIN] Wei, Jafarnia-Jahromi, Luo and Jain (2020). RiverSwim with one-hot features, where Assumptions
3 and 5 fail and their constants are declared; a random linear MDP, where all assumptions hold; an
ergodic model with one-hot features (d = 30), where FOPO's branch and bound does not end and its
local method is run, labelled `fopo@local`. And Appendix E: MDP-EXP2 against NPG at equal samples
(the same trajectories, so many an estimate, and several step sizes).
"""

from __future__ import annotations

from tightrope.experiment import Arm, Experiment
from tightrope.learners.mdp_exp2 import constants
from tightrope.learners.registry import make_config
from tightrope.problems.linear import linear_mdp

ANYWHERE = ("ucrl2", "psrl", "olsvi-fh", "politex")
BASELINES = ("uniform", "oracle")
LEARNERS = {
    "riverswim": ("fopo", *ANYWHERE, "mdp-exp2@riverswim", "npg@riverswim", *BASELINES),
    "linear-mdp": ("fopo", *ANYWHERE, "mdp-exp2", "npg", *BASELINES),
    "ergodic": ("fopo@local", *ANYWHERE, "mdp-exp2", "npg", *BASELINES),
}
EXP2 = "mdp-exp2@appendix-e"
NPG_STEPS = (0.1, 0.3, 1.0, 3.0)


def wei_average_reward(*, quick: bool = False) -> Experiment:
    """All learners on the three problems at T = 1e4, 1e5 and 1e6, five seeds.

    `quick`: 4,000 and 16,000 steps, two seeds, FOPO on RiverSwim only.
    """
    horizons = (16_000, 4_000) if quick else (1_000_000, 100_000, 10_000)
    arms = tuple(
        Arm(problem=problem, learner=learner, episodes=steps, horizon=steps < horizons[0])
        for steps in horizons
        for problem, learners in LEARNERS.items()
        for learner in learners
        if not (quick and learner.startswith("fopo") and problem != "riverswim")
    )
    return Experiment(name="wei-average-reward", arms=arms, seeds=2 if quick else 5, delta=0.05)


def appendix_e(*, quick: bool = False, steps: int | None = None) -> Experiment:
    """MDP-EXP2 against NPG with the same N and B, on the random linear MDP, for several steps.

    N and B are those of MDP-EXP2 at each T (`steps` is one T instead of all).
    """
    horizons = [16_000, 4_000] if quick else [1_000_000, 100_000, 10_000]
    if steps is not None:
        horizons = [steps]
    arms = tuple(arm for T in horizons for arm in _at_equal_samples(T, horizon=horizons[0] > T))
    return Experiment(name="appendix-e", arms=arms, seeds=2 if quick else 10, delta=0.05)


def _at_equal_samples(steps: int, *, horizon: bool) -> list[Arm]:
    spec = linear_mdp().spec()
    _, config = make_config(EXP2, spec, episodes=steps, delta=0.05)
    parts = constants(spec, config, spec.features.shape[2])
    arms = [Arm(problem="linear-mdp", learner=EXP2, episodes=steps, horizon=horizon)]
    return arms + [
        Arm(
            problem="linear-mdp",
            learner=f"npg@step-{step}",
            episodes=steps,
            changes={"length": parts.length, "batch": parts.batch},
            horizon=horizon,
        )
        for step in NPG_STEPS
    ]
