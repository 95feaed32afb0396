"""Learners on environments with Gymnasium's interface: sampled totals, since no model is known.

A learner sees states and actions as numbers. Two states are added to the environment's own where
they are needed: ``end``, in which the rest of an episode that terminated early is spent at no
reward and no cost, and ``start``, before the first observation, if the start law is not known. A
step that a time limit cut is no transition: an environment that truncates earlier than the horizon
is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tightrope.errors import ConfigError
from tightrope.io.gymnasium import (
    Cost,
    index_space,
    join_batch,
    named_environment,
    split_batch,
    step_costs,
)
from tightrope.learners.protocol import Experience, Stop
from tightrope.learners.registry import make_config, split_name
from tightrope.model.features import features_of
from tightrope.model.mdp import FiniteMDP
from tightrope.model.policy import (
    DeterministicPolicy,
    MixturePolicy,
    Policy,
    StochasticPolicy,
    check_policy,
)
from tightrope.simulation.streams import learner_seed, streams
from tightrope.types import Average, Criterion, Episodic, Feedback, FloatArray, ProblemSpec


@dataclass(kw_only=True, eq=False)
class Learned:
    """What a learner did in an environment.

    Attributes
    ----------
    policy : Policy
        What it would play next, over the states of `spec`.
    spec : ProblemSpec
        What it was told; states ``num_observations`` and after are the added ones.
    num_observations : int
    columns : dict of arrays
        ``episode, steps, sampled_reward, sampled_cost_0..``, cumulative, one row an update (a
        stream has no ``episode``). There is no regret without a model.
    guarantee : str or None
    state : the learner's own
    """

    learner: str
    preset: str
    guarantee: str | None
    config: Any
    spec: ProblemSpec
    num_observations: int
    columns: dict[str, np.ndarray]
    policy: Policy
    state: Any


def learn(
    env: Any,
    learner: str,
    *,
    episodes: int | None = None,
    steps: int | None = None,
    horizon: int | None = None,
    costs: Mapping[str, Cost] | None = None,
    capacities: Mapping[str, float] | None = None,
    senses: Mapping[str, str] | None = None,
    reward_range: tuple[float, float] = (0.0, 1.0),
    cost_ranges: Mapping[str, tuple[float, float]] | None = None,
    features: FloatArray | None = None,
    knowledge: Mapping[str, float] | None = None,
    seed: int = 0,
    delta: float = 0.1,
    **changes: Any,
) -> Learned:
    """Let a tabular learner learn in a Gymnasium environment with discrete spaces.

    Parameters
    ----------
    env : environment, vector environment, or the name of one
        A vector environment plays one episode in each copy between two updates.
    learner : ``name`` or ``name@preset``
    episodes, horizon : int
        For episodic learners: how many episodes, and of how many steps.
    steps : int
        For learners on a single stream; a terminated episode goes on from a new start.
    costs : mapping from name to a key of ``info`` or a function of (observation, action, next
        observation)
    capacities, senses : mappings from the names of the costs
    reward_range, cost_ranges : (low, high), by default (0, 1)
        What a step can pay; the learner relies on it, so anything outside is an error.
    features, knowledge
        What the learner may be told besides (see `ProblemSpec`).
    seed : int >= 0
    delta : failure probability of the learner's confidence sets
    changes : fields of the learner's Config to replace

    Environments made of a `FiniteMDP` need only `episodes` or `steps`: the rest is the model's.

    Raises
    ------
    ConfigError
        Unknown names, spaces that are not discrete, rewards outside the range, truncation.

    Examples
    --------
    >>> from tightrope.adapter import FiniteMDPEnv
    >>> from tightrope.problems import mars_rover
    >>> result = learn(FiniteMDPEnv(mars_rover()), "conrl", episodes=3, seed=1)
    >>> result.columns["episode"], result.columns["steps"]
    (array([1, 2, 3]), array([30, 60, 90]))
    """
    env = named_environment(env)
    if (episodes is None) == (steps is None):
        raise ConfigError("say either episodes= or steps=")
    total = int(episodes if episodes is not None else steps or 0)
    if total < 1:
        raise ConfigError(f"episodes and steps must be >= 1, got {total}")
    seeds = streams(seed)
    world = World(env, costs, steps is not None, learner_seed(seeds.environment))
    if world.model is not None:
        for name, value in (("horizon", horizon), ("capacities", capacities), ("senses", senses)):
            if value is not None:
                raise ConfigError(
                    f"{name} is that of the environment's model: change the model with replace()"
                )
        spec = world.model.spec(
            feedback=world.feedback, features=features, knowledge=dict(knowledge or {})
        )
    else:
        if steps is None and horizon is None:
            raise ConfigError("say horizon=, the number of steps of an episode")
        criterion = Average() if horizon is None else Episodic(horizon + world.has_start)
        spec = world.spec(
            criterion, capacities or {}, senses or {}, reward_range, cost_ranges or {}
        )
        spec = dataclasses.replace(spec, features=features, knowledge=dict(knowledge or {}))
    world.ranges = np.vstack([spec.reward_range, spec.cost_ranges])
    chosen, config = make_config(learner, spec, episodes=total, delta=delta, **changes)
    if any(item.name == "seed" for item in dataclasses.fields(config)):
        config = dataclasses.replace(config, seed=learner_seed(seeds.learner))
    chosen.check(spec, config)
    state = chosen.init(spec, config)
    rng = np.random.default_rng(seeds.learner)
    rows: list[Any] = []
    sums, done = np.zeros(1 + spec.num_costs), 0
    while done < total:
        policy, stop = chosen.policy(state), chosen.horizon(state)
        if world.stream:
            experience = world.play_stream(policy, stop, total - done, done + 1, spec, rng)
            done += len(experience.actions)
        else:
            experience = world.play_episodes(policy, total - done, done + 1, spec, rng)
            done += len(experience.actions)
        sums[0] += experience.rewards.sum()
        sums[1:] += experience.costs.reshape(experience.rewards.size, spec.num_costs).sum(axis=0)
        rows.append([done, world.steps, *sums])
        state, _ = chosen.update(state, experience)
    bare, preset = split_name(learner)
    return Learned(
        learner=bare,
        preset=preset,
        guarantee=None if getattr(state, "unmet", list)() else chosen.guarantee(config),
        config=config,
        spec=spec,
        num_observations=world.num_observations,
        columns=_columns(np.array(rows), world.stream),
        policy=chosen.policy(state),
        state=state,
    )


def play(
    env: Any,
    policy: Policy,
    *,
    episodes: int,
    horizon: int | None = None,
    costs: Mapping[str, Cost] | None = None,
    seed: int = 0,
) -> FloatArray:
    """Play a policy in an environment; (episodes, 1 + m) totals of reward and costs.

    Parameters
    ----------
    env : environment, vector environment, or the name of one
    policy : over the environment's observations as numbers, such as `load_policy` reads
    horizon : int
        Longest episode, unless the environment is made of an episodic `FiniteMDP`.
    costs : as in `learn`

    Examples
    --------
    >>> from tightrope.adapter import FiniteMDPVectorEnv
    >>> from tightrope.planning import plan
    >>> from tightrope.problems import mars_rover
    >>> model = mars_rover()
    >>> totals = play(FiniteMDPVectorEnv(model, 500), plan(model).policy, episodes=500)
    >>> totals.shape, bool(abs(totals[:, 0].mean() - 1.536) < 0.1)
    ((500, 2), True)
    """
    seeds = streams(seed)
    world = World(named_environment(env), costs, False, learner_seed(seeds.environment))
    world.has_start = world.ends_have_actions = False  # the policy says nothing of those states
    world.ranges = np.tile([-np.inf, np.inf], (1 + len(world.costs), 1))
    if world.model is not None:
        spec = world.model.spec()
        check_policy(policy, world.model.available, spec.horizon)
    else:
        if horizon is None:
            raise ConfigError("say horizon=, the longest episode")
        limits = dict.fromkeys(world.costs, np.inf)
        world.law = np.eye(1, world.num_observations)[0]
        spec = world.spec(Episodic(horizon), limits, {}, (-np.inf, np.inf), {})
        check_policy(policy, np.ones((world.num_observations, world.num_actions), bool), horizon)
    rng = np.random.default_rng(seeds.learner)
    parts: list[FloatArray] = []
    done = 0
    while done < episodes:
        seen = world.play_episodes(policy, episodes - done, done + 1, spec, rng)
        done += len(seen.actions)
        parts.append(np.column_stack([seen.rewards.sum(axis=1), seen.costs.sum(axis=1)]))
    return np.concatenate(parts)


def _columns(rows: FloatArray, stream: bool) -> dict[str, np.ndarray]:
    out = {} if stream else {"episode": rows[:, 0].astype(int)}
    out |= {"steps": rows[:, 1].astype(int), "sampled_reward": rows[:, 2]}
    return out | {f"sampled_cost_{i}": column for i, column in enumerate(rows[:, 3:].T)}


class World:
    """One environment, or several copies of one, with states and actions as numbers."""

    def __init__(self, env: Any, costs: Mapping[str, Cost] | None, stream: bool, seed: int) -> None:
        if not hasattr(env, "reset"):
            raise ConfigError(f"expected a Gymnasium environment, got a {type(env).__name__}")
        self.env, self.stream = env, stream
        self.copies = int(getattr(env, "num_envs", 0))  # 0: a single environment
        spaces = env if not self.copies else None
        observations = spaces.observation_space if spaces else env.single_observation_space
        actions = spaces.action_space if spaces else env.single_action_space
        self.num_observations, self.encode, _ = index_space(observations)
        self.num_actions, _, self.decode = index_space(actions)
        if self.copies:
            if stream:
                raise ConfigError("a single stream needs one environment, not a vector of them")
            mode = str(env.metadata.get("autoreset_mode"))
            if not mode.endswith("NEXT_STEP"):
                raise ConfigError(f"vector environments must reset at the next step, not {mode}")
        inner = env.unwrapped
        model = getattr(inner, "model", None)
        self.model = model if isinstance(model, FiniteMDP) else None
        self.feedback: Feedback = getattr(inner, "feedback", "sampled")
        if self.model is not None:
            if costs is not None:
                raise ConfigError(
                    "the costs are those of the environment's model: leave out costs="
                )
            costs = {name: ("cost", i) for i, name in enumerate(self.model.cost_names)}
        self.costs = dict(costs or {})
        self.law = getattr(inner, "initial_state_distrib", None)
        self.has_start = not stream and self.model is None and self.law is None
        self.end = self.num_observations
        self.ends_have_actions = True
        self.ranges = np.zeros((0, 2))
        self.steps = 0
        self._seed: int | None = seed % 2**31
        self._first: Any = None
        if stream:
            self._first = self.reset()[0]

    def spec(
        self,
        criterion: Criterion,
        capacities: Mapping[str, float],
        senses: Mapping[str, str],
        reward_range: tuple[float, float],
        cost_ranges: Mapping[str, tuple[float, float]],
    ) -> ProblemSpec:
        """What a learner is told of an environment without a model."""
        names = tuple(self.costs)
        for given, label in ((capacities, "capacities"), (senses, "senses"),
                             (cost_ranges, "cost_ranges")):  # fmt: skip
            unknown = [name for name in given if name not in names]
            if unknown:
                raise ConfigError(f"{label} name '{unknown[0]}', which is no cost: {names}")
        missing = [name for name in names if name not in capacities]
        if missing:
            raise ConfigError(f"capacities lack '{missing[0]}'")
        size = self.num_observations + (0 if self.stream else 1 + self.has_start)
        initial = np.zeros(size)
        if self.stream:
            initial[self.encode(self._first)] = 1.0
        elif self.has_start:
            initial[-1] = 1.0
        else:
            initial[: self.num_observations] = self.law
        return ProblemSpec(
            num_states=size,
            num_actions=self.num_actions,
            num_costs=len(names),
            criterion=criterion,
            available=np.ones((size, self.num_actions), dtype=bool),
            initial=initial,
            cost_names=names,
            capacities=np.array([float(capacities[name]) for name in names]),
            signs=np.array([-1.0 if senses.get(name) == ">=" else 1.0 for name in names]),
            staged=False,
            reward_range=reward_range,
            cost_ranges=np.array(
                [cost_ranges.get(name, (0.0, 1.0)) for name in names], dtype=np.float64
            ).reshape(len(names), 2),
        )

    def reset(self) -> list[Any]:
        """First observations of a new episode in every copy; seeded only the first time."""
        found, _ = self.env.reset(seed=self._seed)
        self._seed = None
        return self._split(found)

    def _split(self, found: Any) -> list[Any]:
        return split_batch(self.env, found) if self.copies else [found]

    def step(self, before: list[Any], numbers: list[int]) -> tuple[Any, ...]:
        """(observations, rewards, costs (n, m), terminated, truncated) of one step."""
        actions = [self.decode(number) for number in numbers]
        if not self.copies:
            one, reward, end, cut, info = self.env.step(actions[0])
            paid = step_costs(self.costs, before[0], actions[0], one, info)[None]
            return [one], [float(reward)], paid, [bool(end)], [bool(cut)]
        found, rewards, ended, cut, info = self.env.step(join_batch(self.env, actions))
        after = self._split(found)
        paid = np.array(
            [
                step_costs(self.costs, *one, {key: info[key][i] for key in info if key[0] != "_"})
                for i, one in enumerate(zip(before, actions, after))
            ]
        )
        return after, rewards.tolist(), paid, ended.tolist(), cut.tolist()

    def _check(self, reward: float, paid: FloatArray, place: str) -> None:
        low, high = self.ranges.T
        values = np.array([reward, *paid])
        bad = np.flatnonzero(~((values >= low - 1e-9) & (values <= high + 1e-9)))
        if bad.size:
            name = ["reward", *self.costs][bad[0]]
            raise ConfigError(
                f"{name} {values[bad[0]]:g} in {place} is outside the range "
                f"[{low[bad[0]]:g}, {high[bad[0]]:g}] that the learner was told; say "
                "reward_range= or cost_ranges="
            )

    def play_episodes(
        self, policy: Policy, limit: int, first: int, spec: ProblemSpec, rng: np.random.Generator
    ) -> Experience:
        """One episode in every copy, at most `limit` of them."""
        width, steps, m = max(1, self.copies), spec.horizon, spec.num_costs
        components = [_draw_component(policy, rng) for _ in range(width)]
        parts = [_component(policy, c) for c in components]
        states = np.full((width, steps + 1), self.end, dtype=np.int32)
        actions = np.zeros((width, steps), dtype=np.int32)
        rewards, costs = np.zeros((width, steps)), np.zeros((width, steps, m))
        before, going = self.reset(), [True] * width
        begin = int(self.has_start)
        for i in range(width):
            states[i, begin] = self.encode(before[i])
            if begin:
                states[i, 0] = spec.num_states - 1
                actions[i, 0] = _action(parts[i], 0, int(states[i, 0]), rng)
        for h in range(begin, steps):
            for i in range(width):
                if going[i] or self.ends_have_actions:
                    actions[i, h] = _action(parts[i], h, int(states[i, h]), rng)
            if not any(going):
                continue  # the rest is spent in `end`
            after, pay, paid, ended, cut = self.step(before, actions[:, h].tolist())
            for i in np.flatnonzero(going).tolist():
                place = f"state {states[i, h]} at step {h - begin}"
                self._check(pay[i], paid[i], place)
                rewards[i, h], costs[i, h] = pay[i], paid[i]
                self.steps += 1
                if not ended[i] or self.model is not None:
                    states[i, h + 1] = self.encode(after[i])
                if cut[i] and not ended[i] and h + 1 < steps:
                    raise ConfigError(
                        f"the environment cut an episode after {h + 1 - begin} steps, before the "
                        f"horizon {steps - begin}: raise its time limit or lower horizon="
                    )
                going[i] = not (ended[i] or cut[i])
            before = after
        n = min(width, limit)
        return Experience(
            first=first,
            states=states[:n],
            actions=actions[:n],
            rewards=rewards[:n],
            costs=costs[:n],
            components=np.array(components[:n], dtype=np.int32),
        )

    def play_stream(
        self, policy: Policy, stop: Stop, limit: int, first: int, spec: ProblemSpec,
        rng: np.random.Generator,
    ) -> Experience:  # fmt: skip
        """Play until the rule says stop; a terminated episode goes on from a new start."""
        if stop.kind == "episodes":
            raise ConfigError("a single stream cannot stop after 'episodes'")
        visits = np.zeros((spec.num_states, spec.num_actions))
        inverse, features = None, np.zeros((0, 0, 0))
        if stop.kind == "determinant-doubling":
            assert stop.counts is not None
            inverse, features = np.linalg.inv(stop.counts), features_of(spec)
        states, actions = [self.encode(self._first)], list[int]()
        rewards, costs = list[float](), list[FloatArray]()
        ratio, stopped = 1.0, False
        while len(actions) < min(limit, stop.number) and not stopped:
            state = states[-1]
            action = _action(_component(policy, 0), len(actions), state, rng)
            if stop.kind == "visits-left":
                assert stop.counts is not None
                if visits[state, action] >= stop.counts[state, action]:
                    break
            after, pay, paid, ended, cut = self.step([self._first], [action])
            self._check(pay[0], paid[0], f"state {state}")
            if cut[0] and not ended[0]:
                raise ConfigError(
                    f"the environment cut the stream after {self.steps + 1} steps: make it without "
                    "a time limit (gymnasium.make(..., max_episode_steps=-1))"
                )
            self._first = self.reset()[0] if ended[0] else after[0]
            self.steps += 1
            states.append(self.encode(self._first))
            actions.append(action)
            rewards.append(pay[0])
            costs.append(paid[0])
            visits[state, action] += 1
            if stop.kind == "visit-doubling":
                assert stop.counts is not None
                stopped = bool(visits[state, action] >= max(1, stop.counts[state, action]))
            elif inverse is not None:
                feature = features[state, action]
                pulled = inverse @ feature
                scale = 1.0 + float(feature @ pulled)
                ratio, inverse = ratio * scale, inverse - np.outer(pulled, pulled) / scale
                stopped = ratio >= 2.0
        return Experience(
            first=first,
            states=np.array(states, dtype=np.int32),
            actions=np.array(actions, dtype=np.int32),
            rewards=np.array(rewards),
            costs=np.array(costs).reshape(len(actions), spec.num_costs),
        )


def _draw_component(policy: Policy, rng: np.random.Generator) -> int:
    if not isinstance(policy, MixturePolicy):
        return 0
    return int(np.searchsorted(np.cumsum(policy.weights)[:-1], rng.random(), side="right"))


def _component(policy: Policy, i: int) -> DeterministicPolicy | StochasticPolicy:
    return policy.components[i] if isinstance(policy, MixturePolicy) else policy


def _action(
    policy: DeterministicPolicy | StochasticPolicy, stage: int, state: int, rng: np.random.Generator
) -> int:
    """The policy's action; a policy that differs by step repeats from its start."""
    if isinstance(policy, DeterministicPolicy):
        table = policy.actions
        return int(table[stage % len(table), state] if table.ndim == 2 else table[state])
    shares = policy.probabilities
    row = shares[stage % len(shares), state] if shares.ndim == 3 else shares[state]
    edges = np.cumsum(row)
    found = int(np.searchsorted(edges, rng.random() * edges[-1], side="right"))
    return min(found, int(np.flatnonzero(row)[-1]))
