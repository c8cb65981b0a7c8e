"""The options that `run` and `plan` share, and the study they add up to."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from heatcheck.spec import split
from heatcheck.study import Study

EMBEDDED = {"models": ["efficientnet_lite0"], "data": "images"}
"""What runs where no model and no data are named: real weights and real pictures that install with pip."""

StudyFile = Annotated[Path | None, typer.Argument(metavar="STUDY", help="A TOML study file.", show_default=False)]
Models = Annotated[
    list[str] | None, typer.Option("--models", "-m", help="Models, such as timm:resnet50; commas or repeated.")
]
Data = Annotated[str | None, typer.Option("--data", "-d", help="Data, such as folder:val or csv:reviews.csv.")]
Methods = Annotated[list[str] | None, typer.Option("--methods", help="Methods, such as 'saliency,rise(samples=500)'.")]
Metrics = Annotated[list[str] | None, typer.Option("--metrics", help="Metrics, such as 'sds,abpc'.")]
Profile = Annotated[str | None, typer.Option("--profile", "-p", help="Where unwritten units and parameters come from.")]
Samples = Annotated[int | None, typer.Option("--samples", "-n", help="How many samples; all if not given.")]
Target = Annotated[str | None, typer.Option("--target", help="The class explained: predicted, label, top2, a number.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Of every random stream.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="The run's folder; an old run there is continued.")]
Workers = Annotated[int | None, typer.Option("--workers", "-j", help="Processes.")]
Threads = Annotated[int | None, typer.Option("--threads", help="Threads per process.")]
Batch = Annotated[int | None, typer.Option("--batch", help="Micro-batch; measured if not given.")]
Maps = Annotated[str | None, typer.Option("--maps", help="Maps stored: keep, gallery or none.")]
Budget = Annotated[str | None, typer.Option("--budget", help="Time to stop after, such as 2h or 90s; resumable.")]
Plugins = Annotated[list[str] | None, typer.Option("--plugin", help="A Python file with units of your own.")]


def study_of(path: Path | None, **options: Any) -> Study:
    """The study that a command line means; options beat the file, the file beats the embedded default."""
    given = {name: value for name, value in options.items() if value is not None}
    for name in {"models", "methods", "metrics"} & given.keys():
        given[name] = [part for text in given[name] for part in split(text)]
    if path is not None:
        study = Study.load(path, **given)
        return study if study.out else study.model_copy(update={"out": Path("runs", path.stem)})
    if given.keys() & EMBEDDED.keys():
        study = Study.of(**{**EMBEDDED, **given})
        return study if study.out else study.model_copy(update={"out": Path("runs", _slug(study))})
    return Study.of(**{**EMBEDDED, "profile": "quick", "out": "runs/default", **given})


def _slug(study: Study) -> str:
    """A folder's name for models and data."""
    return re.sub(r"[^\w.]+", "-", f"{'-'.join(study.models)}-{study.data}").strip("-.")[:80]
