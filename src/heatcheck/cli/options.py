"""The options that `run`, `plan` and `multiverse` share, declared once, and the study they add up to."""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heatcheck.core.spec import split

if TYPE_CHECKING:
    from heatcheck.api.study import Study

Plugins = Annotated[
    list[str] | None, typer.Option("--plugin", help="A Python file with methods, metrics or fills of your own.")
]
Preprocess = Annotated[
    str | None,
    typer.Option(
        "--preprocess",
        help="Of pictures: imagenet, clip, inception or mean=…,std=…,size=…; of texts: tokens=…",
        show_default=False,
    ),
]
Output = Annotated[
    str | None,
    typer.Option("--output", help="The class scores' key or position, where a model returns several tensors."),
]
Device = Annotated[
    str | None, typer.Option("--device", help="auto (the best there is), cpu, cuda, cuda:1 or mps.", show_default=False)
]
Precision = Annotated[
    str | None,
    typer.Option("--precision", help="Of passes: fp32, tf32, bf16 or fp16; never mixed in one table row."),
]
_STUDY = Annotated[Path | None, typer.Argument(metavar="STUDY", help="A TOML study file.", show_default=False)]
_OPTIONS: dict[str, Any] = {
    "models": Annotated[
        list[str] | None, typer.Option("--models", "-m", help="Models, such as timm:resnet50; commas or repeated.")
    ],
    "data": Annotated[str | None, typer.Option("--data", "-d", help="Data, such as folder:val or csv:reviews.csv.")],
    "text_column": Annotated[
        str | None,
        typer.Option("--text-column", help="A table's column with the texts, two for pairs; usual names are found."),
    ],
    "label_column": Annotated[
        str | None, typer.Option("--label-column", help="A table's column with the labels; usual names are found.")
    ],
    "preprocess": Preprocess,
    "output": Output,
    "methods": Annotated[
        list[str] | None, typer.Option("--methods", help="Methods, such as 'saliency,rise(samples=500)'.")
    ],
    "metrics": Annotated[list[str] | None, typer.Option("--metrics", help="Metrics, such as 'sds,abpc'.")],
    "profile": Annotated[
        str | None, typer.Option("--profile", "-p", help="Where methods, metrics and parameters not named come from.")
    ],
    "samples": Annotated[int | None, typer.Option("--samples", "-n", help="How many samples; all if not given.")],
    "target": Annotated[
        str | None,
        typer.Option(
            "--target", help="What is explained: predicted, label, top2, a class's number, column:N, FILE.py:F."
        ),
    ],
    "seed": Annotated[int | None, typer.Option("--seed", help="Of every random stream.")],
    "out": Annotated[Path | None, typer.Option("--out", "-o", help="The run's folder; an old run there is continued.")],
    "workers": Annotated[
        int | None, typer.Option("--workers", "-j", help="Processes; by default one per core where that pays.")
    ],
    "on": Annotated[
        str | None,
        typer.Option(
            "--on", help="Where it is computed: here, processes:4, ray or ray://HOST:PORT.", show_default=False
        ),
    ],
    "gpus": Annotated[
        float | None,
        typer.Option("--gpus", help="Share of a GPU per worker on Ray, such as 0.5; 1 by default.", show_default=False),
    ],
    "threads": Annotated[int | None, typer.Option("--threads", help="Threads per process.")],
    "device": Device,
    "precision": Precision,
    "batch": Annotated[int | None, typer.Option("--batch", help="Micro-batch; measured if not given.")],
    "compile": Annotated[
        bool | None,
        typer.Option("--compile/--no-compile", help="Compile forward passes where that pays.", show_default=False),
    ],
    "shard": Annotated[
        str | None, typer.Option("--shard", help="A share of the samples, such as 3/16; `heatcheck merge` joins them.")
    ],
    "numerics": Annotated[
        str | None,
        typer.Option("--numerics", help="A run's folder: call models in its batch sizes instead of measuring them."),
    ],
    "maps": Annotated[str | None, typer.Option("--maps", help="Maps stored: keep, gallery or none.")],
    "budget": Annotated[str | None, typer.Option("--budget", help="Time to stop after, such as 2h or 90s; resumable.")],
    "timeout": Annotated[
        str | None,
        typer.Option("--timeout", help="Time one sample may take per method or metric, such as 90s; then it fails."),
    ],
    "plugins": Plugins,
}
"""The settings of a study that the command line has options for, by name."""


@dataclass(frozen=True)
class StudyOptions:
    """What a command line says about a study.

    Args:
        file: the study file, if one is named.
        given: settings by name; None where an option is not used.
    """

    file: Path | None = None
    given: Mapping[str, Any] = field(default_factory=dict)

    def study(self, **changes: Any) -> "Study":
        """The study that is meant; it is shared by one process per core where that pays, unless it says otherwise."""
        found = study_of(self.file, **{**self.given, **changes})
        workers = found.runtime.workers or "auto"
        return found.model_copy(update={"runtime": found.runtime.model_copy(update={"workers": workers})})


def with_study_options(*, without: tuple[str, ...] = ()) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of a study, in the place of its parameter `options`."""
    shared = {name: kind for name, kind in _OPTIONS.items() if name not in without}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: Any) -> None:
            own = {name: value for name, value in given.items() if name not in ("study", *shared)}
            command(**own, options=StudyOptions(given["study"], {name: given[name] for name in shared}))

        parameters = [_optional("study", _STUDY)]
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            if parameter.name == "options":
                parameters += [_optional(name, kind) for name, kind in shared.items()]
            else:
                parameters.append(parameter)
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def _optional(name: str, kind: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def study_of(path: Path | None, **options: Any) -> "Study":
    """The study that a command line means; options beat the file, the file beats the embedded default.

    Where models or data are not named, they are the embedded ones of the modality that the others have.
    """
    from heatcheck.api.defaults import with_embedded
    from heatcheck.api.study import Study, folder_name

    given = {name: value for name, value in options.items() if value is not None}
    for name in {"models", "methods", "metrics"} & given.keys():
        given[name] = [part for text in given[name] for part in split(text)]
    if path is not None:
        study = Study.load(path, **given)
        return study if study.out else study.model_copy(update={"out": Path("runs", path.stem)})
    models, data = with_embedded(given.get("models"), given.get("data"))
    given = {**given, "models": models, "data": data}
    if options.get("models") is None and options.get("data") is None:
        return Study.of(**{"profile": "quick", "out": "runs/default", **given})
    study = Study.of(**given)
    return study if study.out else study.model_copy(update={"out": Path("runs", folder_name(study.models, study.data))})
