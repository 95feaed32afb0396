"""The two gridworlds of [CON, Figure 1], and any map as text."""

from __future__ import annotations

import numpy as np

from tightrope.errors import ModelError
from tightrope.model.mdp import FiniteMDP
from tightrope.types import Average, Episodic, FloatArray, as_number, as_whole

MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
MOVE_NAMES = ("up", "down", "left", "right")

MARS_ROVER_MAP = """
S.......
........
...P..P.
........
........
.PP.....
.P..P.P.
...P...G
"""
MARS_ROVER_SMALL_MAP = """
S...
.P..
....
.P.G
"""
BOX_MAP = """
WWWWWW
W.SWWW
W.X..W
WW...W
WWW.GW
WWWWWW
"""


def mars_rover(
    *,
    map: str = MARS_ROVER_MAP,
    horizon: int = 30,
    slip: float = 0.1,
    capacity: float = 0.3,
) -> FiniteMDP:
    """Mars rover: reach the goal without running into rocks [CON, Figure 1].

    States are the cells, row by row; actions are up, down, left, right. With probability
    ``1 - slip`` the chosen move is made, else a uniformly random one of the four; off the grid
    means stay. Entering a rock ``P`` or the goal ``G`` pays 1 and every later step there pays 1/H
    (absorbing). Entering a rock costs 1 and every later step there 1/H.

    Optimum at capacity 0.3 on the 8x8 map: 1.53628844, multiplier 0.19298178; unconstrained
    1.81682218. `MARS_ROVER_SMALL_MAP` is a 4x4 map, `random_map` makes larger ones.

    Parameters
    ----------
    map : text, one line a row: ``.`` free, ``S`` start, ``P`` rock, ``G`` goal

    >>> mars_rover()
    FiniteMDP(S=64, A=4, m=1, Episodic(horizon=30), 904 transitions)
    """
    cells = _read_map(map, ".SPG", {"S": 1})
    height, width = cells.shape
    kinds = cells.ravel()
    reached = {"P", "G"}

    def target(state: int, move: tuple[int, int]) -> int:
        if kinds[state] in reached:
            return state
        row, column = state // width + move[0], state % width + move[1]
        return row * width + column if 0 <= row < height and 0 <= column < width else state

    def pays(state: int, after: int, kinds_that_pay: set[str]) -> float:
        if kinds[after] not in kinds_that_pay:
            return 0.0
        return 1.0 / horizon if state == after else 1.0

    return _slippery(
        num_states=kinds.size,
        target=target,
        slip=slip,
        reward=lambda s, t: pays(s, t, reached),
        cost=lambda s, t: pays(s, t, {"P"}),
        horizon=horizon,
        capacity=capacity,
        start=int(np.flatnonzero(kinds == "S")[0]),
        goal=set(np.flatnonzero(kinds == "G").tolist()),
        state_names=[f"{i // width},{i % width}" for i in range(kinds.size)],
    )


def mars_rover_stream(
    *, map: str = MARS_ROVER_MAP, horizon: int = 30, slip: float = 0.1, capacity: float = 0.3
) -> FiniteMDP:
    """Mars rover as one stream without resets: rocks and the goal lead back to the start.

    Another problem than `mars_rover`: an episode is as long as the way to a rock or the goal, whose
    step back pays (and on a rock costs) 1/H. Average criterion; `capacity` is per `horizon` steps.
    Its optimum is 2.0402 per 30 steps at cost 0.3, unconstrained 4.7727 [CON, Figure 1, panel C].

    >>> mars_rover_stream()
    FiniteMDP(S=64, A=4, m=1, Average(), 904 transitions)
    """
    model = mars_rover(map=map, horizon=horizon, slip=slip, capacity=capacity)
    lengths = np.diff(model.indptr)
    row = np.repeat(np.arange(lengths.size), lengths)
    # a row that stays for sure is a rock's or the goal's
    final = (lengths == 1) & (model.indices[model.indptr[:-1]] == np.arange(lengths.size) // 4)
    indices = np.where(final[row], int(model.initial.argmax()), model.indices)
    return FiniteMDP(
        transitions_data=model.data,
        transitions_indices=indices,
        transitions_indptr=model.indptr,
        transitions_shape=(model.num_states, 4, model.num_states),
        rewards=model.rewards,
        costs=model.costs,
        rewards_next=model.rewards_next,
        costs_next=model.costs_next,
        cost_names=["cost"],
        capacities=[capacity / horizon],
        criterion=Average(),
        initial=model.initial,
        action_names=MOVE_NAMES,
        state_names=list(model.state_names or ()),
    )


def box(
    *, map: str = BOX_MAP, horizon: int = 30, slip: float = 0.1, capacity: float = 0.1
) -> FiniteMDP:
    """Box: walk to the goal, and do not leave the box in a corner [CON, Figure 1].

    A state is (agent cell, box cell). Moving into the box pushes it one cell further; if either
    would enter a wall nothing moves. The step that first enters the goal pays 1 and every later
    step there 1/H (absorbing). Every step after which the box has at least two wall neighbours
    costs 1/H.

    Optimum at capacity 0.1: 1.74967662, multiplier 0.07823317; unconstrained 1.81576884.

    Parameters
    ----------
    map : text, one line a row: ``W`` wall, ``.`` free, ``S`` agent, ``X`` box, ``G`` goal

    >>> box()
    FiniteMDP(S=121, A=4, m=1, Episodic(horizon=30), 1508 transitions)
    """
    cells = _read_map(map, "W.SXG", {"S": 1, "X": 1, "G": 1})
    free = [tuple(int(i) for i in cell) for cell in np.argwhere(cells != "W")]
    number = {cell: i for i, cell in enumerate(free)}
    goal = number[tuple(int(i) for i in np.argwhere(cells == "G")[0])]

    def wall_beside(cell: tuple[int, ...]) -> int:
        return sum((cell[0] + dr, cell[1] + dc) not in number for dr, dc in MOVES)

    corner = [wall_beside(cell) >= 2 for cell in free]
    count = len(free)

    def target(state: int, move: tuple[int, int]) -> int:
        agent, pushed = divmod(state, count)
        if agent == goal:
            return state
        step = (free[agent][0] + move[0], free[agent][1] + move[1])
        if step not in number:
            return state
        if number[step] != pushed:
            return number[step] * count + pushed
        beyond = (step[0] + move[0], step[1] + move[1])
        return number[step] * count + number[beyond] if beyond in number else state

    def reward(state: int, after: int) -> float:
        if after // count != goal:
            return 0.0
        return 1.0 / horizon if state // count == goal else 1.0

    start = number[tuple(int(i) for i in np.argwhere(cells == "S")[0])] * count
    start += number[tuple(int(i) for i in np.argwhere(cells == "X")[0])]
    return _slippery(
        num_states=count * count,
        target=target,
        slip=slip,
        reward=reward,
        cost=lambda s, t: 1.0 / horizon if corner[t % count] else 0.0,
        horizon=horizon,
        capacity=capacity,
        start=start,
        goal=set(range(goal * count, (goal + 1) * count)),
        state_names=[f"agent {free[i]} box {free[j]}" for i in range(count) for j in range(count)],
    )


def random_map(size: int, *, rocks: float = 0.15, seed: int = 0) -> str:
    """A size x size Mars rover map: start and goal in opposite corners, seeded rocks between.

    The cells beside the start and the goal stay free.

    >>> print(random_map(4, rocks=0.3, seed=3))
    S...
    ...P
    .P..
    ...G
    """
    if size < 2 or not 0.0 <= rocks < 1.0:
        raise ModelError(f"need size >= 2 and 0 <= rocks < 1, got size={size}, rocks={rocks}")
    rng = np.random.default_rng(seed)
    cells = np.where(rng.random((size, size)) < rocks, "P", ".")
    cells[:2, :2] = cells[-2:, -2:] = "."
    cells[0, 0], cells[-1, -1] = "S", "G"
    return "\n".join("".join(row) for row in cells)


def _read_map(text: str, letters: str, exactly: dict[str, int]) -> np.ndarray:
    rows = [line.strip() for line in text.strip().splitlines()]
    if len({len(row) for row in rows}) != 1 or not rows[0]:
        raise ModelError("every row of a map must have the same length, at least 1")
    for i, row in enumerate(rows):
        for j, letter in enumerate(row):
            if letter not in letters:
                raise ModelError(f"map row {i} column {j} is {letter!r}, expected one of {letters}")
    cells = np.array([list(row) for row in rows])
    for letter, wanted in exactly.items():
        found = int((cells == letter).sum())
        if found != wanted:
            raise ModelError(f"a map needs {wanted} '{letter}', this one has {found}")
    return cells


def _steps_to(goal, start, target) -> int | None:
    """Fewest chosen moves from start into the goal; None if no way leads there."""
    seen, edge, steps = {start}, {start}, 0
    while edge:
        if edge & goal:
            return steps
        edge = {target(s, move) for s in edge for move in MOVES} - seen
        seen |= edge
        steps += 1
    return None


def _slippery(
    *, num_states, target, slip, reward, cost, horizon, capacity, start, goal, state_names
) -> FiniteMDP:  # fmt: skip
    """A model whose chosen move is replaced by a uniformly random one with probability `slip`."""
    if not 0.0 <= as_number(slip, "slip") <= 1.0:
        raise ModelError(f"slip must be in [0, 1], got {slip}")
    as_whole(horizon, "horizon", 1)
    shortest = _steps_to(goal, start, target)
    if shortest is not None and shortest > horizon:
        raise ModelError(
            f"horizon {horizon} is shorter than the path to the goal: the least is {shortest} steps"
        )
    shape = (num_states, len(MOVES), num_states)
    transitions: FloatArray = np.zeros(shape)
    rewards, costs = np.zeros(shape), np.zeros(shape)
    for s in range(num_states):
        for a in range(len(MOVES)):
            for b, move in enumerate(MOVES):
                t = target(s, move)
                transitions[s, a, t] += slip / len(MOVES) + (1.0 - slip) * (a == b)
                rewards[s, a, t], costs[s, a, t] = reward(s, t), cost(s, t)
    initial = np.zeros(num_states)
    initial[start] = 1.0
    return FiniteMDP(
        transitions=transitions,
        axes="sas",
        rewards_next=rewards,
        costs_next=costs[None],
        cost_names=["cost"],
        capacities=[capacity],
        criterion=Episodic(horizon),
        initial=initial,
        action_names=MOVE_NAMES,
        state_names=state_names,
    )
