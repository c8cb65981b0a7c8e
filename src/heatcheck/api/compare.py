"""A run beside a paper: its scores where the paper printed some, and what becomes of the paper's claims."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from heatcheck.api.joined_runs import JoinedRuns, join_runs
from heatcheck.api.model_specs import factors_of_models
from heatcheck.api.patch_maps import borders
from heatcheck.api.questions import disagreements, maps_by_sample, questions
from heatcheck.api.result import Result
from heatcheck.core import catalogue
from heatcheck.core.papers import PAPERS
from heatcheck.core.spec import SpecError, parse
from heatcheck.core.types import HeatcheckError
from heatcheck.profiles import Profile, load_profile
from heatcheck.profiles.published import PublishedTable, paper_key, published_scores, published_tables
from heatcheck.stats import idsds_claims, idsds_model_claims, m4_claims, metarank_claims, perturbation_claims
from heatcheck.stats.evidence import CLAIMS, Evidence
from heatcheck.stats.meta_cases import CaseTable
from heatcheck.stats.published import beside, correlations

if TYPE_CHECKING:
    import polars as pl

_CATALOGUE = (idsds_claims, idsds_model_claims, m4_claims, metarank_claims, perturbation_claims)
THEIR_MODELS = {
    "m4": {
        "R50": r"resnet50",
        "R101": r"resnet101",
        "R152": r"resnet152",
        "MobileNet": r"mobilenetv3large",
        "VGG16": r"vgg16(?!bn)",
        "ViT/MAE": r"vit.*mae",
        "ViT/S": r"vits(mall)?(patch)?16",
        "ViT/B": r"vitb(ase)?(patch)?16",
        "ViT/L": r"vitl(arge)?(patch)?16",
    }
}
"""How names of models contain those of a paper, letters and figures only."""
_REMOVAL = ("morf", "lerf", "road")
"""Metrics whose rankings Meta-Rank's claims are about."""
_MATTERING = ("post", "of", "baseline", "fill")
"""Parameters that make another method of the same id, where a paper has both."""


@dataclass(frozen=True)
class PaperComparison:
    """A run beside a paper.

    Args:
        run: the run's name.
        paper: the name of the paper's profile.
        beside: our scores and the printed ones, a row per model, metric and method.
        correlations: how alike they rank methods.
        claims: every claim of the paper with its verdict.
        board: the leaderboard of the run, and of those beside it.
        questions: what the paper asks beside its claims, as tables by name.
        notes: what a reader must know.
        facts: of the run.
    """

    run: str
    paper: str
    beside: "pl.DataFrame" = field(repr=False)
    correlations: "pl.DataFrame" = field(repr=False)
    claims: tuple[dict[str, Any], ...] = field(repr=False)
    board: "pl.DataFrame | None" = field(default=None, repr=False)
    questions: Mapping[str, "pl.DataFrame"] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def title(self) -> str:
        """The paper, in words."""
        return PAPERS[paper_key(self.paper)]

    @property
    def sources(self) -> tuple[PublishedTable, ...]:
        """The paper's tables."""
        return published_tables(self.paper)

    @cached_property
    def tables(self) -> dict[str, "pl.DataFrame"]:
        """All tables by name: `beside`, `correlations`, `claims` and the paper's questions; empty ones are left out."""
        import polars as pl

        columns = ("claim", "says", "where", "verdict", "effect", "value", "low", "high", "n", "counted", "note")
        claims = pl.DataFrame([{c: row[c] for c in columns} for row in self.claims], infer_schema_length=None)
        named = {"beside": self.beside, "correlations": self.correlations, "claims": claims, **self.questions}
        return {name: table for name, table in named.items() if table.height}

    def record(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "run": self.run,
            "paper": self.paper,
            "title": self.title,
            "sources": [{"table": t.where, "about": t.about, "caveat": t.caveat} for t in self.sources],
            **{name: table.to_dicts() for name, table in self.tables.items() if name != "claims"},
            "claims": list(self.claims),
            "notes": list(self.notes),
        }

    def report(self, path: str | Path) -> Path:
        """Write the comparison as one HTML file."""
        from heatcheck.report.compare_page import write_comparison

        return write_comparison(self, Path(path))

    def save(self, folder: str | Path) -> Path:
        """Write the page, `compare.json`, all tables (CSV, Parquet, Markdown, LaTeX) and all figures (SVG, PNG) into a folder.

        Returns:
            The page.
        """
        from heatcheck.report.compare_page import save_comparison

        return save_comparison(self, self.record(), Path(folder))


def compare(
    run: Result | str | Path,
    paper: str,
    *,
    factors: Mapping[str, Mapping[str, float]] | None = None,
    others: Sequence[Result | str | Path] = (),
    seed: int = 0,
    resamples: int = 2000,
) -> PaperComparison:
    """Put a run beside a paper: `idsds`, `m4`, `metarank`, or `perturbation` for the meaningful perturbation metric.

    >>> print(compare("runs/idsds", "idsds").tables["claims"])  # doctest: +SKIP

    Args:
        run: a finished run, or its folder.
        paper: which.
        factors: what models differ in, by factor (depth, width, normalisation, bias): a number per model. Where none are
            given they are read from specs such as small:vgg(bias=false) and names such as resnet50.
        others: further runs, on whose scores claims are tested too: other models, other data, or, for `perturbation`, other
            fills. Where two runs have the same model, data and metric, the first counts; `metarank` refuses them.
        seed: of resamples.
        resamples: how many.

    Raises:
        SpecError: the paper is not known, or a factor names a model that the run does not have.
    """
    key = paper_key(paper)
    result = _opened(run)
    profile = load_profile(paper) if paper != "perturbation" else None
    every = [result, *(_opened(other) for other in others)]
    cases = _cases(every) if paper == "metarank" else None
    tested = list({one.store.folder.resolve(): one for one in every}.values())
    joined = join_runs(tested, side_by_side=True) if len(tested) > 1 else None
    source = joined or result
    named, differing = _named(source, profile)
    maps = maps_by_sample(tested, joined) if paper == "perturbation" else {}
    evidence = Evidence(
        scores=joined.scores if joined else result.scores(),
        run={**result.facts, **joined.facts} if joined else result.facts,
        named=named,
        right=_right(joined.answers if joined else _answers(result)),
        factors=_factors(source, factors or {}),
        along=[along for one in tested for along in one.along_training()],
        cases=cases,
        disagreement=disagreements(maps),
        borders=_borders(tested, joined) if paper == "m4" else {},
        seed=seed,
        resamples=resamples,
    )
    names = _metrics(source, profile)
    table = beside(
        evidence.board,
        published_scores(paper),
        named,
        _their_models(source, paper),
        {name: evidence.facts.sign(name) for name in names},
        names,
        differing,
    )
    return PaperComparison(
        run=result.name if joined is None else f"{result.name} and {len(tested) - 1} more",
        paper=paper,
        beside=table,
        correlations=correlations(table, evidence.scores, seed=seed, resamples=resamples),
        claims=tuple(claim.judged(evidence) for claim in CLAIMS[key]),
        board=evidence.board,
        questions=questions(paper, evidence, every, maps),
        notes=(*_notes(tested, paper, table.height), *(joined.notes if joined else ())),
        facts=evidence.run,
    )


def _cases(results: Sequence[Result]) -> CaseTable | None:
    """The rankings of all runs by MoRF and LeRF; None where no case ranks two methods."""
    found = {m["id"] for result in results for m in result.facts["metrics"]}
    metrics = [id for id in _REMOVAL if id in found]
    if not metrics:
        return None
    try:
        return join_runs(results, metrics=metrics).case_table()
    except ValueError:
        return None
    except HeatcheckError:
        if len(results) > 1:
            raise
        return None


def _opened(run: Result | str | Path) -> Result:
    return run if isinstance(run, Result) else Result.open(run)


def _notes(results: Sequence[Result], paper: str, rows: int) -> Iterator[str]:
    printed = published_scores(paper)
    if not printed:
        yield "This paper's text that is at hand prints no scores of methods: its claims alone are tested."
    elif not rows:
        yield "No method and metric of the run is in the paper's tables: run its profile to compare scores."
    for result in results:
        if str(result.facts["profile"]) != paper and paper != "perturbation":
            yield f"{result.name} has the settings of profile {result.facts['profile']}, not of {paper}."
    if len(results) > 1:
        yield f"Claims are tested on all of {', '.join(result.name for result in results)}."
    data = [(result.facts["data"]["name"], result.facts["data"]["n"]) for result in results]
    told = (f"{_range([n for d, n in data if d == name])} samples of {name}" for name in dict(data))
    yield f"{'; '.join(told)}; the paper's are others."


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _named(result: Result | JoinedRuns, profile: Profile | None) -> tuple[dict[str, str], dict[str, str]]:
    """The run's method for each of a paper's names; and, of those that are set otherwise, how they are set."""
    if profile is None:
        return {}, {}
    named: dict[str, str] = {}
    differing: dict[str, str] = {}
    methods = [(str(m["name"]), str(m["spec"])) for m in result.facts["methods"] if not m.get("control")]
    for label in profile.aliases:
        wanted = catalogue.build("method", profile.apply("method", label)).name  # as runs write it, without defaults
        exact = [name for name, spec in methods if spec == wanted]
        close = [name for name, spec in methods if _kind(spec) == _kind(wanted)]
        found = [*exact, *sorted(close, key=lambda name: name != label)]
        if found:
            named[label] = found[0]
            if found[0] not in exact:
                differing[label] = dict(methods)[found[0]]
    return named, differing


def _kind(spec: str) -> tuple[Any, ...]:
    """What a method is, without how finely it is computed."""
    try:
        parsed = parse(spec)
    except SpecError:
        return (spec,)
    inner = ((name, parsed.params.get(name)) for name in _MATTERING)
    return (parsed.id, *(_kind(str(v)) for _, v in inner if v not in (None, "none", "zero", "auto")))


def _metrics(result: Result | JoinedRuns, profile: Profile | None) -> dict[str, str]:
    """The paper's metric for each of the run's, one for one: that with the paper's own settings, else the first."""
    if profile is None:
        return {}
    found: dict[str, tuple[str, bool]] = {}
    for metric in result.facts["metrics"]:
        id = "idsds" if metric["name"] == "idsds" else str(metric["id"])
        try:
            same = str(metric["spec"]) == profile.apply("metric", str(metric["id"]))
        except (SpecError, HeatcheckError):
            same = False
        if id not in found or (same and not found[id][1]):
            found[id] = (str(metric["name"]), same)
    return {name: id for id, (name, _) in found.items()}


def _their_models(result: Result | JoinedRuns, paper: str) -> dict[str, str]:
    """The paper's model for each of ours that is the same network."""
    patterns = THEIR_MODELS.get(paper, {})
    found = {}
    for model in result.facts["models"]:
        name = re.sub(r"[^a-z0-9]", "", str(model["name"]).lower())
        hits = [theirs for theirs, pattern in patterns.items() if re.search(pattern, name)]
        if hits:
            found[str(model["name"])] = hits[0]
    return found


def _answers(result: Result) -> "pl.DataFrame":
    """Whether each model is right on each sample; null where that is not known."""
    import polars as pl

    return result.samples().select("model", correct=pl.col("label") == pl.col("predicted"))


def _right(answers: "pl.DataFrame") -> dict[str, "np.ndarray"]:
    """Whether each sample is classified right, of models whose labels are known."""
    known = answers.filter(answers["correct"].is_not_null())
    return {
        str(model): rows["correct"].to_numpy().astype(np.float64)
        for (model,), rows in known.group_by("model", maintain_order=True)
    }


def _borders(runs: Sequence[Result], joined: JoinedRuns | None) -> dict[tuple[str, str], Any]:
    """How far maps show the borders of patches, by the names that models have together; of a model, the first run's."""
    found: dict[tuple[str, str], Any] = {}
    for i, run in enumerate(runs):
        for (model, method), excess in borders(run).items():
            found.setdefault((joined.models[joined.names[i], model] if joined else model, method), excess)
    return found


def _factors(result: Result | JoinedRuns, given: Mapping[str, Mapping[str, float]]) -> dict[str, Mapping[str, float]]:
    """Given factors, those that specs tell, and depths that names tell, of the family with most of them."""
    models = [str(m["name"]) for m in result.facts["models"]]
    for factor, values in given.items():
        unknown = [model for model in values if model not in models]
        if unknown:
            raise SpecError(f"factor {factor}: the run has no model {', '.join(unknown)}; it has {', '.join(models)}")
    depths: dict[str, dict[str, float]] = {}
    for model in models:
        found = re.search(r"(wide|fixup|x)?[-_ ]?(resnet|vgg|densenet)[-_ ]?(\d+)", model.lower())
        if found and not found[1]:
            depths.setdefault(found[2], {})[model] = float(found[3])
    told = factors_of_models(result.facts)
    deepest = max((told.get("depth", {}), *depths.values()), key=lambda v: (len(set(v.values())), len(v)))
    return {**told, "depth": deepest, **given}
