"""Average reward with linear function approximation: every learner on three problems.

[LIN] Wei, Jafarnia-Jahromi, Luo and Jain (2020). RiverSwim with one-hot features, where Assumptions
3 and 5 fail and their constants are declared; a random linear MDP, where all assumptions hold; an
ergodic model with one-hot features. And Appendix E: MDP-EXP2 against NPG at equal samples (the
same trajectories, so many an estimate, and several step sizes).
"""

from __future__ import annotations

from tightrope.experiment import Arm, Experiment

ANYWHERE = ("ucrl2", "psrl", "olsvi-fh", "politex")
BASELINES = ("uniform", "oracle")
LEARNERS = {
    "riverswim": ("fopo", *ANYWHERE, "mdp-exp2@riverswim", "npg@riverswim", *BASELINES),
    "linear-mdp": ("fopo", *ANYWHERE, "mdp-exp2", "npg", *BASELINES),
    "ergodic": (*ANYWHERE, "mdp-exp2@one-hot", "npg", *BASELINES),
}
NPG_STEPS = (0.1, 0.3, 1.0, 3.0)


def wei_average_reward(*, quick: bool = False) -> Experiment:
    """All learners on the three problems, 100,000 steps; `quick`: 10,000 steps, two seeds."""
    steps = 10_000 if quick else 100_000
    arms = tuple(
        Arm(problem=problem, learner=learner, episodes=steps)
        for problem, learners in LEARNERS.items()
        for learner in learners
        if not (quick and learner == "fopo" and problem != "riverswim")
    )
    return Experiment(name="wei-average-reward", arms=arms, seeds=2 if quick else 5, delta=0.05)


def appendix_e(*, quick: bool = False) -> Experiment:
    """MDP-EXP2 and NPG with N = 5 and B = 380 each, on the random linear MDP."""
    steps = 20_000 if quick else 1_000_000
    arms = [Arm(problem="linear-mdp", learner="mdp-exp2", episodes=steps)]
    arms += [
        Arm(problem="linear-mdp", learner=f"npg@step-{step}", episodes=steps) for step in NPG_STEPS
    ]
    return Experiment(name="appendix-e", arms=tuple(arms), seeds=2 if quick else 10, delta=0.05)
