"""The tasks that recipes name."""

from heatcheck.training.pictures import PictureTask
from heatcheck.training.squares import SquareTask
from heatcheck.training.task import Task
from heatcheck.training.texts import TextTask

TASKS: dict[str, type[Task]] = {"labels": PictureTask, "squares": SquareTask, "texts": TextTask}
