"""Best responses by A2C on fictitious episodes of a known or estimated model [CON, Algorithm 3].

Needs the extra `deep` (Stable-Baselines3). The answer is a stationary stochastic policy, read off
the network at every state; like the authors' it is far from the best response unless it is given
many episodes, and `planning.lagrangian` or the learner's Info say how far.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tightrope.errors import ConfigError, require
from tightrope.model.mdp import FiniteMDP
from tightrope.types import FloatArray

COPIES = 8  # of the environment, stepped together


def a2c_response(
    model: FiniteMDP, *, episodes: int, seed: int, step: float = 1e-3, entropy: float = 1e-3,
    value_coefficient: float = 0.5,
) -> FloatArray:  # fmt: skip
    """(S, A) probabilities of a policy trained for the model's reward, undiscounted.

    Parameters
    ----------
    episodes : fictitious episodes, in updates of one episode in each of 8 copies
    step, entropy, value_coefficient : as in the paper's Table 2
    """
    if not model.available.all():
        raise ConfigError("the A2C planner needs every action in every state")
    stable = require("stable_baselines3", "deep")
    vec = require("stable_baselines3.common.vec_env", "deep")
    torch = require("torch", "deep")
    from tightrope.adapter import FiniteMDPEnv  # at the top of the layers, so only when asked for

    copies = vec.DummyVecEnv([lambda: FiniteMDPEnv(model, feedback="mean")] * COPIES)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for nets this small, threads cost ten times what they save
    agent: Any = stable.A2C(
        "MlpPolicy", copies, n_steps=model.horizon, gamma=1.0, gae_lambda=1.0, learning_rate=step,
        ent_coef=entropy, vf_coef=value_coefficient, use_rms_prop=False, seed=seed, device="cpu",
        policy_kwargs={"net_arch": [64]},
    )  # fmt: skip
    try:
        agent.learn(total_timesteps=episodes * model.horizon)
        with torch.no_grad():
            states = torch.arange(model.num_states)
            logits = agent.policy.get_distribution(states).distribution.logits.double().numpy()
    finally:
        torch.set_num_threads(threads)
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    return chances / chances.sum(axis=1, keepdims=True)
