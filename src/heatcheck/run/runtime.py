"""How a run is computed: none of it decides a result, all of it is recorded. Nothing heavy is imported here."""

import os
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo
from pydantic_core import ErrorDetails

from heatcheck.core.spec import SpecError, suggest
from heatcheck.run.shard import Shard, shard_text

QUICK = 10.0
"""Seconds of work that one process has done before others have started and loaded the model."""

_DURATION = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m(?:in)?)?(?:(?P<s>\d+(?:\.\d+)?)s)?")

T = TypeVar("T")

_NUMBER = re.compile(r"\d+(?:\.\d+)?")

_DEVICE = re.compile(r"auto|cpu|mps|cuda(:\d+)?")

_PLACE = re.compile(r"here|processes(:[1-9]\d*)?|ray|ray://[^\s/:]+:\d+")


def seconds(value: Any) -> Any:
    """Seconds from `2h`, `1h30m`, `90s` or a number.

    >>> seconds("1h30m")
    5400.0
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    match = _DURATION.fullmatch(value.replace(" ", "")) if isinstance(value, str) else None
    if match is None or not any(match.groups()):
        raise SpecError(f"{value!r} is not a time; write it as 2h, 1h30m, 45m or 90s")
    hours, minutes, rest = (float(part or 0) for part in match.group("h", "m", "s"))
    return 3600 * hours + 60 * minutes + rest


def short_time(value: Any) -> Any:
    """A time that is a matter of seconds, so that a plain number in text means them.

    >>> short_time("30"), short_time("2m")
    (30.0, 120.0)
    """
    return seconds(f"{value}s" if isinstance(value, str) and _NUMBER.fullmatch(value) else value)


def process_count(value: Any) -> Any:
    """A number of processes, `auto` or None.

    >>> process_count(2), process_count("auto")
    (2, 'auto')
    """
    if value in (None, "auto") or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise SpecError(f"workers = {value!r} should be a whole number greater than 0, or auto")


def device_name(value: Any) -> Any:
    """The name of a device, auto or None; whether it is there, torch must say.

    >>> device_name("cuda:1")
    'cuda:1'
    """
    if value is None or (isinstance(value, str) and _DEVICE.fullmatch(value)):
        return value
    raise SpecError(f"device = {value!r} should be auto, cpu, cuda, cuda:0, cuda:1 … or mps")


def place_name(value: Any, others: ValidationInfo) -> Any:
    """Where works are computed, or None; it must agree with the number of workers, which is checked before."""
    if value is None:
        return value
    if not (isinstance(value, str) and _PLACE.fullmatch(value)):
        raise SpecError(f"on = {value!r} should be here, processes, processes:4, ray or ray://HOST:PORT")
    workers = others.data.get("workers")
    most = 1 if value == "here" else int(value.partition(":")[2]) if value.startswith("processes:") else workers
    if isinstance(workers, int) and workers != most:
        raise SpecError(f"on = {value!r} and workers = {workers} contradict each other; leave one of them out")
    return value


def gpu_share(value: Any, others: ValidationInfo) -> Any:
    """GPUs per worker, which Ray alone hands out."""
    if value is not None and not str(others.data.get("on")).startswith("ray"):
        raise SpecError(f"gpus = {value!r} is for workers on Ray: add on = 'ray', or leave it out")
    return value


def any_gpu(value: Any, others: ValidationInfo) -> Any:
    """A device's name; on Ray none of several equal ones."""
    if str(value).startswith("cuda:") and str(others.data.get("on")).startswith("ray"):
        raise SpecError(f"device = {value!r} on Ray: it decides which GPU a worker gets; write cuda")
    return device_name(value)


def setting(use: Literal["identity", "runtime"], **kwargs: Any) -> Any:
    """A setting that decides results (`identity`), or only how they are computed and kept (`runtime`)."""
    return Field(json_schema_extra={"use": use}, **kwargs)


def wrong_value(name: str, item: ErrorDetails) -> str:
    """What is wrong with the value of a setting, in words."""
    if item["type"] == "value_error":
        return str(item["ctx"]["error"])
    return f"{name} = {item['input']!r} {item['msg'].removeprefix('Input ')}"


class Runtime(BaseModel):
    """How a run is computed; changes no result beyond the stated tolerance.

    Args:
        workers: processes that share the work; None for one, this one; auto for one per core, or this one where the work
            is done before others have started. On Ray None and auto mean as many as the cluster has room for.
        on: where the work is done: here, processes, processes:4, ray or ray://HOST:PORT. With ray, a cluster is started
            on this machine, or the one at RAY_ADDRESS is joined. None for here or processes, as `workers` says.
        gpus: the share of a GPU that each worker on Ray gets, such as 0.5, where models compute on CUDA devices; a whole
            one if None.
        threads: threads per process for model passes.
        batch: inputs per model call; measured if None.
        compile: compile the models' forward passes (`torch.compile`) where that takes less time than it saves; a run goes
            on as it was begun.
        budget: seconds, or a time such as `2h`, after which no new chunk is begun.
        timeout: seconds, or a time, that one sample may take under one method or metric before it fails; the next run
            tries it again. The work is then done in worker processes, since a model call cannot be stopped from inside.
        device: where models compute: cpu, cuda, cuda:1, mps or auto. With auto, and if None, a run goes on where it was
            begun, what is loaded by name goes to the best device there is, and a module stays where it lives.
        shard: the share of the samples that is computed, such as `3/16`; `heatcheck merge` joins what shards have made.
        numerics: a run's folder: models are called in the shapes that were measured there, so that scores are equal bit by
            bit on equal machines.
        maps: which maps are stored: keep, gallery (those that the report shows) or none.
        progress: auto (a bar on a terminal, lines elsewhere), bar, lines, none, or an object with begin, advance, note
            and end.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)

    workers: Annotated[int | Literal["auto"] | None, BeforeValidator(process_count)] = setting("runtime", default=None)
    on: Annotated[str | None, BeforeValidator(place_name)] = setting("runtime", default=None)
    gpus: Annotated[float | None, BeforeValidator(gpu_share)] = setting("runtime", default=None, gt=0)
    threads: int = setting("runtime", default=1, ge=1)
    batch: int | None = setting("runtime", default=None, ge=1)
    compile: bool = setting("runtime", default=False)
    budget: Annotated[float, BeforeValidator(seconds)] | None = setting("runtime", default=None, gt=0)
    timeout: Annotated[float, BeforeValidator(short_time)] | None = setting("runtime", default=None, gt=0)
    device: Annotated[str | None, BeforeValidator(any_gpu)] = setting("runtime", default=None)
    shard: Annotated[str | None, BeforeValidator(shard_text)] = setting("runtime", default=None)
    numerics: str | None = setting("runtime", default=None)
    maps: Literal["keep", "gallery", "none"] = setting("runtime", default="keep")
    progress: Any = setting("runtime", default="auto")

    def share(self, samples: Sequence[T]) -> Sequence[T]:
        """The samples that are computed: all, or a shard's.

        >>> Runtime(shard="2/3").share("abcdefgh")
        ['b', 'e', 'h']
        """
        return samples if self.shard is None else Shard.parse(self.shard).share(samples)

    def processes(self, seconds: float) -> int:
        """How many processes share a work of so many seconds.

        >>> Runtime(workers="auto").processes(1.0), Runtime(workers=2).processes(1.0), Runtime().processes(3600.0)
        (1, 2, 1)
        >>> Runtime(on="here", workers="auto").processes(3600.0), Runtime(on="processes:3").processes(1.0)
        (1, 3)
        """
        if isinstance(self.workers, int):
            return self.workers
        place, _, number = (self.on or "").partition(":")
        if place == "processes":
            return int(number) if number else os.cpu_count() or 1
        if place == "here" or self.workers is None:
            return 1
        return 1 if seconds <= QUICK else os.cpu_count() or 1

    @property
    def chooses(self) -> bool:
        """Whether the time that the work takes decides how many processes share it."""
        return self.workers == "auto" and self.on is None

    @property
    def on_ray(self) -> bool:
        """Whether works go to a Ray cluster."""
        return self.on is not None and self.on.startswith("ray")

    @classmethod
    def of(cls, runtime: "Runtime | None" = None, **options: Any) -> Self:
        """A runtime with some options changed.

        >>> Runtime.of(workers=2, budget="90s").budget
        90.0

        Raises:
            SpecError: an option that does not exist, or a value that does not fit.
        """
        unknown = sorted(options.keys() - cls.model_fields.keys())
        if unknown:
            raise SpecError(f"no runtime option is called {unknown[0]!r}{suggest(unknown[0], cls.model_fields)}")
        before = {} if runtime is None else dict(runtime)
        try:
            return cls.model_validate({**before, **options})
        except ValidationError as problem:
            first = problem.errors()[0]
            raise SpecError(wrong_value(str(first["loc"][0]), first)) from problem
