"""Finite models as Gymnasium environments, one or many at once, and a discretiser.

``import tightrope.adapter`` registers the problems: ``gymnasium.make("tightrope/MarsRover-v0")``,
and so does ``import tightrope`` after ``import gymnasium``. Gymnasium >= 1.0 reads no entry points,
but a name may say the module that registers it: ``tightrope.adapter:tightrope/MarsRover-v0`` works
in any order of imports. ``gymnasium.make_vec`` makes copies that step in one NumPy pass.

When an episode ends. The horizon of an episodic model is part of the task, so step H is a
termination: nothing is earned after it and there is nothing to bootstrap. A discounted or total
model terminates in a state that it cannot leave and that pays nothing, since the rest is zero. An
average-reward model never ends. These environments never truncate; a time limit from outside
(``gymnasium.wrappers.TimeLimit``) does, and such a step is an ordinary transition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from tightrope.errors import ConfigError
from tightrope.types import Average, BoolArray, Episodic, Feedback, FloatArray, IntArray

if TYPE_CHECKING:
    from tightrope.model.mdp import FiniteMDP


class FiniteMDPEnv(gymnasium.Env[Any, Any]):
    """A `FiniteMDP` step by step; observations and actions are its state and action numbers.

    `step` returns the 5-tuple of Gymnasium. ``info`` holds ``cost`` (m,) as paid in that step,
    ``stage`` (steps taken in this episode) and ``action_mask`` (A,) int8 of the actions that exist
    in the new state. The model, with its capacities, is ``env.unwrapped.model``.

    Parameters
    ----------
    model : FiniteMDP
    feedback : 'sampled', 'mean' or 'bernoulli'
        What is paid: the value of the transition, its mean, or a Bernoulli draw with that mean.

    Raises
    ------
    ConfigError
        For an action that does not exist in the state, or means outside [0, 1] with 'bernoulli'.

    Examples
    --------
    >>> import numpy as np
    >>> from tightrope.model.mdp import FiniteMDP
    >>> model = FiniteMDP(transitions=np.ones((1, 2, 1)), rewards=[[0, 1]],
    ...                   criterion="episodic", horizon=2)
    >>> env = FiniteMDPEnv(model)
    >>> state, info = env.reset(seed=0)
    >>> env.step(1)[:4], env.step(0)[:4]
    ((0, 1.0, False, False), (0, 0.0, True, False))
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own form

    def __init__(
        self,
        model: FiniteMDP,
        *,
        feedback: Feedback = "sampled",
        render_mode: str | None = None,
    ) -> None:
        check_feedback(model, feedback)
        self.model = model
        self.feedback = feedback
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Discrete(model.num_states)
        self.action_space = gymnasium.spaces.Discrete(model.num_actions)
        self._ends = end_states(model)
        self._state: int | None = None
        self._stage = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Start an episode; ``options={"state": s}`` starts it in state s.

        The generator is seeded only if a seed is given, so episodes differ.
        """
        super().reset(seed=seed)
        wanted = (options or {}).get("state")
        if wanted is None:
            wanted = draw(self.model.initial, self.np_random.random())
        elif wanted not in self.observation_space:
            raise ConfigError(
                f"state {wanted!r} is not a state number below {self.model.num_states}"
            )
        self._state, self._stage = int(wanted), 0
        return self._state, self._info(np.zeros(self.model.num_costs))

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Take one step; see the class for ``info``."""
        if self._state is None:
            raise gymnasium.error.ResetNeeded("the episode is over or has not begun: call reset()")
        model, state, stage = self.model, self._state, self._stage
        if action not in self.action_space or not model.available[state, action]:
            exist = np.flatnonzero(model.available[state]).tolist()
            raise ConfigError(
                f"action {action!r} does not exist in state {model.state_name(state)}; "
                f"those that do are {exist}"
            )
        row = ((stage if model.num_tables > 1 else 0) * model.num_states + state) * (
            model.num_actions
        ) + int(action)
        low, high = model.indptr[row], model.indptr[row + 1]
        entry = int(low) + draw(model.data[low:high], self.np_random.random())
        reward, cost = payments(
            model, self.feedback, np.array([stage]), np.array([state]), np.array([action]), entry
        )
        if self.feedback == "bernoulli":
            reward = (self.np_random.random(1) < reward).astype(float)
            cost = (self.np_random.random(cost.shape) < cost).astype(float)
        self._state, self._stage = int(model.indices[entry]), stage + 1
        result = self._state, float(reward[0]), self._over(), False, self._info(cost[:, 0])
        if result[2]:
            self._state = None
        return result

    def _over(self) -> bool:
        if isinstance(self.model.criterion, Episodic):
            return self._stage == self.model.criterion.horizon
        return bool(self._ends[self._state])

    def _info(self, cost: FloatArray) -> dict[str, Any]:
        mask = self.model.available[self._state].astype(np.int8)
        return {"cost": cost, "stage": self._stage, "action_mask": mask}


class FiniteMDPVectorEnv(gymnasium.vector.VectorEnv):
    """Many copies of a `FiniteMDP` at once, in one NumPy pass a step.

    ``info["cost"]`` is (num_envs, m), ``info["stage"]`` (num_envs,), ``info["action_mask"]``
    (num_envs, A). A copy whose episode is over restarts at its next step (Gymnasium's default).
    """

    def __init__(
        self, model: FiniteMDP, num_envs: int = 1, *, feedback: Feedback = "sampled"
    ) -> None:
        check_feedback(model, feedback)
        self.model = model
        self.feedback = feedback
        self.num_envs = num_envs
        self.metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}
        self.single_observation_space = gymnasium.spaces.Discrete(model.num_states)
        self.single_action_space = gymnasium.spaces.Discrete(model.num_actions)
        batch = gymnasium.vector.utils.batch_space
        self.observation_space = batch(self.single_observation_space, num_envs)
        self.action_space = batch(self.single_action_space, num_envs)
        self._ends = end_states(model)
        self._start_law = np.cumsum(model.initial)
        rows = np.repeat(np.arange(model.indptr.size - 1), np.diff(model.indptr))
        running = np.cumsum(model.data)
        before = np.concatenate([[0.0], running])[model.indptr[:-1]]
        self._sorted = rows + (running - before[rows])  # row + share of the row up to this entry
        self._states = np.zeros(num_envs, dtype=np.int64)
        self._stages = np.zeros(num_envs, dtype=np.int64)
        self._over = np.zeros(num_envs, dtype=bool)

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[IntArray, dict[str, Any]]:
        """Start an episode in every copy; one seed for all of them."""
        if isinstance(seed, list):
            raise ConfigError("the copies share one generator: give one seed, not a list")
        super().reset(seed=seed)
        self._states[:] = self._starts(self.num_envs)
        self._stages[:] = 0
        self._over[:] = False
        return self._states.copy(), self._info(np.zeros((self.model.num_costs, self.num_envs)))

    def step(
        self, actions: IntArray
    ) -> tuple[IntArray, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """One step in every copy; those that were over restart instead, with reward 0."""
        model = self.model
        actions = np.asarray(actions)
        playing = ~self._over
        wrong = np.flatnonzero(
            playing & ~((actions >= 0) & (actions < model.num_actions))
            | (playing & ~model.available[self._states, np.clip(actions, 0, model.num_actions - 1)])
        )
        if wrong.size:
            raise ConfigError(
                f"action {actions[wrong[0]]} of copy {wrong[0]} does not exist in state "
                f"{model.state_name(int(self._states[wrong[0]]))}"
            )
        actions = np.where(playing, actions, 0)
        tables = self._stages if model.num_tables > 1 else 0
        rows = (tables * model.num_states + self._states) * model.num_actions + actions
        rows = np.where(playing, rows, 0)
        entries = np.searchsorted(self._sorted, rows + self.np_random.random(self.num_envs))
        entries = np.clip(entries, model.indptr[rows], model.indptr[rows + 1] - 1)
        stages = np.where(playing, self._stages, 0)
        rewards, costs = payments(model, self.feedback, stages, self._states, actions, entries)
        if self.feedback == "bernoulli":
            rewards = (self.np_random.random(rewards.shape) < rewards).astype(float)
            costs = (self.np_random.random(costs.shape) < costs).astype(float)
        rewards, costs = rewards * playing, costs * playing
        starts = self._starts(self.num_envs)
        self._states[:] = np.where(playing, model.indices[entries], starts)
        self._stages[:] = np.where(playing, self._stages + 1, 0)
        if isinstance(model.criterion, Episodic):
            self._over[:] = self._stages == model.criterion.horizon
        else:
            self._over[:] = playing & self._ends[self._states]
        over = self._over.copy()
        return self._states.copy(), rewards, over, np.zeros_like(over), self._info(costs)

    def _starts(self, count: int) -> IntArray:
        drawn = np.searchsorted(self._start_law, self.np_random.random(count), side="right")
        return np.minimum(drawn, np.flatnonzero(self.model.initial)[-1])

    def _info(self, costs: FloatArray) -> dict[str, Any]:
        mask = self.model.available[self._states].astype(np.int8)
        return {"cost": costs.T.copy(), "stage": self._stages.copy(), "action_mask": mask}


class Discretise(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Observations of a Box as numbers, by equal bins (or given edges) in every coordinate.

    Values outside the outermost edges belong to the outermost bins.

    Parameters
    ----------
    env : environment with Box observations
    bins : int, one int a coordinate, or one increasing sequence of inner edges a coordinate
    low, high : (n,)
        Where the equal bins begin and end; by default the Box's own bounds, which must be finite.

    Raises
    ------
    ConfigError

    Examples
    --------
    >>> env = Discretise(gymnasium.make("CartPole-v1"), bins=[1, 1, 6, 3],
    ...                  low=[-1, -1, -0.21, -2], high=[1, 1, 0.21, 2])
    >>> env.observation_space, env.observation(np.array([0, 0, 0.01, -5.0]))
    (Discrete(18), np.int64(9))
    """

    def __init__(self, env: gymnasium.Env[Any, Any], bins: Any, low: Any = None, high: Any = None):
        super().__init__(env)
        box = env.observation_space
        if not isinstance(box, gymnasium.spaces.Box):
            raise ConfigError(f"Discretise needs a Box of observations, got {box}")
        size = int(np.prod(box.shape))
        counts = bins if hasattr(bins, "__len__") else [bins] * size
        if len(counts) != size:
            raise ConfigError(f"bins has length {len(counts)}, expected one a coordinate: {size}")
        low = np.ravel(box.low if low is None else low).astype(float)
        high = np.ravel(box.high if high is None else high).astype(float)
        if low.shape != (size,) or high.shape != (size,):
            raise ConfigError(f"low and high must have one number a coordinate: {size}")
        self.edges = [_edges(i, part, low[i], high[i]) for i, part in enumerate(counts)]
        self._shape = tuple(len(edges) + 1 for edges in self.edges)
        self.observation_space = gymnasium.spaces.Discrete(int(np.prod(self._shape)))

    def observation(self, observation: Any) -> np.int64:
        """Number of the cell of an observation."""
        place = [
            int(np.searchsorted(edges, value, side="right"))
            for edges, value in zip(self.edges, np.ravel(observation))
        ]
        return np.int64(np.ravel_multi_index(place, self._shape))


def _edges(i: int, part: Any, low: float, high: float) -> FloatArray:
    """Inner edges of the bins of one coordinate."""
    if np.ndim(part):
        edges = np.asarray(part, dtype=np.float64)
        if not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
            raise ConfigError(f"edges of coordinate {i} must be finite and increase, got {part}")
        return edges
    if int(part) != part or part < 1:
        raise ConfigError(f"bins of coordinate {i} must be a whole number >= 1, got {part!r}")
    if part == 1:
        return np.zeros(0)
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ConfigError(
            f"coordinate {i} goes from {low:g} to {high:g}: say low= and high=, or give edges"
        )
    return np.linspace(low, high, int(part) + 1)[1:-1]


def make(problem: str, *, feedback: Feedback = "sampled", render_mode: str | None = None,
         **parameters: Any) -> FiniteMDPEnv:  # fmt: skip
    """The environment of a named problem; `parameters` are the problem's."""
    model = _model_of(problem, parameters)
    return FiniteMDPEnv(model, feedback=feedback, render_mode=render_mode)


def make_vec(problem: str, *, num_envs: int = 1, feedback: Feedback = "sampled",
             **parameters: Any) -> FiniteMDPVectorEnv:  # fmt: skip
    """Copies of the environment of a named problem that step together."""
    return FiniteMDPVectorEnv(_model_of(problem, parameters), num_envs, feedback=feedback)


def _model_of(problem: str, parameters: dict[str, Any]) -> FiniteMDP:
    """The finite model of a named problem; a linear one has its model inside."""
    from tightrope.problems.registry import make_problem

    made: Any = make_problem(problem, **parameters)
    return made if hasattr(made, "num_states") else made.model


def environment_id(problem: str) -> str:
    """Gymnasium's name of a problem.

    >>> environment_id("mars-rover")
    'tightrope/MarsRover-v0'
    """
    return "tightrope/" + "".join(word.capitalize() for word in problem.split("-")) + "-v0"


def registered_problems() -> list[str]:
    """Names of the problems that are one finite model, not a sequence or a continuum."""
    from tightrope.problems.registry import PROBLEMS

    others = (".loop_free:", ":random_continuous_mdp")
    return [name for name, one in PROBLEMS.items() if not any(x in one.home for x in others)]


def register() -> None:
    """Register these problems with Gymnasium; importing this module does it."""
    for name in registered_problems():
        if environment_id(name) not in gymnasium.registry:
            gymnasium.register(
                environment_id(name),
                entry_point="tightrope.adapter:make",
                vector_entry_point="tightrope.adapter:make_vec",
                kwargs={"problem": name},
            )


def draw(probabilities: FloatArray, uniform: float) -> int:
    """Index drawn from a law by a uniform number in [0, 1); never one of probability 0.

    >>> draw(np.array([0.25, 0.0, 0.75]), 0.25)
    2
    """
    shares = np.cumsum(probabilities)
    found = int(np.searchsorted(shares, uniform, side="right"))
    return min(found, int(np.flatnonzero(probabilities)[-1]))


def payments(
    model: FiniteMDP,
    feedback: Feedback,
    stages: IntArray,
    states: IntArray,
    actions: IntArray,
    entries: Any,
) -> tuple[FloatArray, FloatArray]:
    """Reward (n,) and costs (m, n) of n steps; with 'bernoulli' their means."""
    entries = np.atleast_1d(entries)
    place = (stages, states, actions)
    if feedback == "sampled" and model.rewards_next is not None:
        rewards = model.rewards_next[entries]
    else:
        rewards = model.rewards[place if model.rewards.ndim == 3 else place[1:]]
    if feedback == "sampled" and model.costs_next is not None:
        costs = model.costs_next[:, entries]
    else:
        costs = model.costs[(slice(None), *(place if model.costs.ndim == 4 else place[1:]))]
    return rewards, costs


def end_states(model: FiniteMDP) -> BoolArray:
    """(S,) states that cannot be left and pay nothing: there the rest of a sum is zero."""
    if isinstance(model.criterion, Average | Episodic):
        return np.zeros(model.num_states, dtype=bool)
    pays = (model.rewards != 0).any(axis=1) | (model.costs != 0).any(axis=(0, 2))
    sources = np.repeat(np.arange(model.indptr.size - 1), np.diff(model.indptr)) // (
        model.num_actions
    )
    pays[sources[model.indices != sources]] = True
    return ~pays


def check_feedback(model: FiniteMDP, feedback: Feedback) -> None:
    """Raise ConfigError for an unknown feedback, or Bernoulli means outside [0, 1]."""
    if feedback not in ("sampled", "mean", "bernoulli"):
        raise ConfigError(f"feedback must be 'sampled', 'mean' or 'bernoulli', got {feedback!r}")
    if feedback == "bernoulli":
        for name, table in (("rewards", model.rewards), ("costs", model.costs)):
            if table.size and (table.min() < 0 or table.max() > 1):
                raise ConfigError(
                    f"feedback 'bernoulli' needs {name} in [0, 1], they go from {table.min()} "
                    f"to {table.max()}"
                )


register()
