"""Pictures of policies: what is drawn where."""

import gymnasium
import numpy as np
import pytest

import tightrope as tr
from tightrope.errors import ConfigError
from tightrope.model.policy import uniform_policy
from tightrope.pictures import _cell_kinds, _directions, draw_policy, grid_of

PNG = b"\x89PNG"
HOLES = (5, 7, 11, 12)


def lake():
    return tr.from_gymnasium(
        "FrozenLake-v1",
        criterion="discounted",
        discount=0.99,
        costs={"hole": lambda state, action, after: float(after in HOLES)},
        capacities={"hole": 0.05},
    )


def test_cells_of_the_mars_rover():
    model = tr.problems.mars_rover()
    grid = grid_of(model)
    kinds = np.array(_cell_kinds(model, grid)).reshape(8, 8)
    rocks = [[row, column] for row, column in np.argwhere(kinds == "danger").tolist()]
    assert rocks == [[2, 3], [2, 6], [5, 1], [5, 2], [6, 1], [6, 4], [6, 6], [7, 3]]
    assert np.argwhere(kinds == "goal").tolist() == [[7, 7]]
    directions, matters = _directions(model, grid)
    moves = [[-1, 0], [1, 0], [0, -1], [0, 1]]
    assert (directions.round(9) == np.array(moves)[None]).all()
    assert (~matters.reshape(8, 8) == np.isin(kinds, ["danger", "goal"])).all()


def test_cells_of_the_box_and_of_gymnasiums_grids():
    model = tr.problems.box()
    kinds = _cell_kinds(model, grid_of(model))
    assert kinds.count("goal") == 1
    assert kinds.count("wall") == 25 - 11
    model = lake()
    grid = grid_of(model)
    kinds = _cell_kinds(model, grid)
    assert [cell for cell, kind in enumerate(kinds) if kind == "danger"] == list(HOLES)
    assert kinds[15] == "goal"
    slips = _directions(model, grid)[0][10].round(9).tolist()  # left, down, right, up
    assert slips == [[0, -1], [1, 0], [0, 1], [-1, 0]]
    cliff = tr.from_gymnasium("CliffWalking-v1", criterion="total")
    kinds = _cell_kinds(cliff, grid_of(cliff))
    assert kinds[36:] == ["", *["closed"] * 10, "end"]


def test_names_of_gymnasiums_grids():
    names = tr.from_gymnasium("CliffWalking-v1", criterion="total").state_names
    assert names[13] == "13 (1,1)"
    assert names[-1] == "47 (3,11) end"
    taxi = tr.from_gymnasium(gymnasium.make("Taxi-v4"), criterion="total")
    assert taxi.state_names[328] == "328 (3,1) passenger 2 to 0"
    assert grid_of(taxi)[:2] == (5, 5)
    own = [str(i) for i in range(16)]
    model = tr.from_gymnasium("FrozenLake-v1", criterion="average", state_names=own)
    assert model.state_names == tuple(own)
    assert grid_of(model) is None


@pytest.mark.parametrize(
    ("names", "size"),
    [
        (["(0,0)", "(0,1)", "(2,0)"], (3, 2)),
        (["cell 0, 1", "cell 1, 0", "cell 1, 1"], (2, 2)),
        (["0,0", "0,1", "end"], None),
        (["0.5,1", "1.5,1", "2.5,1"], None),
        (["0,0", "0,1", "9999999,9999999"], None),
        (None, None),
    ],
)
def test_a_grid_is_found_by_the_states_names(names, size):
    model = tr.FiniteMDP(
        transitions=np.full((3, 1, 3), 1 / 3), rewards=np.ones((3, 1)), state_names=names,
        criterion="average",
    )  # fmt: skip
    grid = grid_of(model)
    assert (grid and grid[:2]) == size


@pytest.mark.parametrize("stage", [None, 5])
def test_pictures_are_drawn(tmp_path, stage):
    for name in ("mars_rover", "inventory"):
        model = getattr(tr.problems, name)()
        file = draw_policy(model, tr.plan(model).policy, tmp_path / f"{name}.png", stage=stage)
        assert file.read_bytes().startswith(PNG)
    model = lake()
    policy = tr.plan(model).policy
    if stage is None:
        draw_policy(model, policy, tmp_path / "lake.pdf", title="lake")
        assert (tmp_path / "lake.pdf").read_bytes().startswith(b"%PDF")
    else:
        with pytest.raises(ConfigError, match="stage must be a step"):
            draw_policy(model, policy, tmp_path / "lake.png", stage=stage)


def test_a_picture_follows_the_policy(tmp_path):
    model = tr.problems.mars_rover()
    files = [
        draw_policy(model, policy, tmp_path / f"{i}.png").read_bytes()
        for i, policy in enumerate([tr.plan(model).policy, uniform_policy(model.available)])
    ]
    assert files[0] != files[1]


def test_what_cannot_be_drawn_is_said(tmp_path):
    model = tr.problems.random_cmdp(80, 2, horizon=4)
    with pytest.raises(ConfigError, match=r"80 states .* too many .* on no grid"):
        draw_policy(model, uniform_policy(model.available), tmp_path / "a.png")
    model = tr.problems.mars_rover()
    with pytest.raises(ConfigError, match=r"a\.xyz: Format 'xyz' is not supported"):
        draw_policy(model, uniform_policy(model.available), tmp_path / "a.xyz")
