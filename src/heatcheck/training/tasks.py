"""The tasks that recipes name."""

from heatcheck.training.birds import BirdTask
from heatcheck.training.masked import MaskedTask
from heatcheck.training.pictures import PictureTask
from heatcheck.training.squares import SquareTask
from heatcheck.training.task import Task
from heatcheck.training.texts import TextTask

TASKS: dict[str, type[Task]] = {
    "birds": BirdTask,
    "labels": PictureTask,
    "masked": MaskedTask,
    "squares": SquareTask,
    "texts": TextTask,
}
