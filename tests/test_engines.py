"""What is told of runs that other processes play."""

import re

from tightrope import launch
from tightrope.experiment import Arm, Experiment
from tightrope.results import jobs_of, part_path


def test_the_count_of_episodes_never_falls(tmp_path, capsys):
    """A progress file that is being rewritten, or gone before its run counts as finished."""
    arms = (Arm(problem="box", learner="uniform", episodes=50),)
    jobs = jobs_of(Experiment(name="small", arms=arms, seeds=2))
    one, other = (part_path(tmp_path, job, ".progress") for job in jobs)
    one.parent.mkdir()
    finished: set[str] = set()
    steps = [
        lambda: one.write_text("30"),
        lambda: other.write_text("20"),
        lambda: one.write_text(""),
        lambda: one.write_text("3"),
        lambda: one.unlink(),
        lambda: finished.add(jobs[0].label),
    ]

    class Stop:
        def wait(self, seconds):
            if steps:
                steps.pop(0)()
                return False
            return True

    launch._watch(jobs, finished, tmp_path, Stop(), "episodes")
    lines = capsys.readouterr().err
    assert re.findall(r"(\d+)/2 runs, (\d+)/100 ", lines) == [
        ("0", "30"), ("0", "50"), ("0", "50"), ("0", "50"), ("0", "50"), ("1", "70"),
    ]  # fmt: skip
