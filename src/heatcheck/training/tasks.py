"""The tasks that recipes name."""

from heatcheck.training.pictures import PictureTask
from heatcheck.training.squares import SquareTask
from heatcheck.training.task import Task

TASKS: dict[str, type[Task]] = {"labels": PictureTask, "squares": SquareTask}
