"""`multiverse`: one question asked in many ways."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heatcheck.cli import options as o
from heatcheck.cli.console import Json, Quiet, console, emit, note
from heatcheck.cli.run import FAILED, failures, memory, resumable, size
from heatcheck.core.spec import SpecError, split

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from heatcheck.api.expansion import Expansion
    from heatcheck.api.multiverse import Multiverse
    from heatcheck.api.study import Study
    from heatcheck.run.plan import Plan
    from heatcheck.stats import Rankings

EMBEDDED_SAMPLES = 12
"""Samples where the embedded data are used and no number is given: enough to tell methods from random, in minutes."""
DIGITS = "123456789abcdefghijklmnopqrstuvwxyz"
_NAMED = 12  # universes named per reason
_NOUNS = ("dialect", "fill", "level", "output", "sample", "sign", "step", "unit", "universe", "way")


@o.with_study_options(without=("metrics", "output", "shard"))
def multiverse(
    *,
    metric: Annotated[str, typer.Option("--metric", help="The question, such as morf, abpc or sds.")] = "morf",
    fill: Annotated[str | None, typer.Option("--fill", help="Fills, such as zero,blur,channel_mean.")] = None,
    steps: Annotated[str | None, typer.Option("--steps", help="Steps of curves, such as 8,20.")] = None,
    units: Annotated[str | None, typer.Option("--units", help="Units, such as 'pixel,grid(8),slic(50)'.")] = None,
    output: Annotated[str | None, typer.Option("--output", help="Outputs, such as prob,logit.")] = None,
    sign: Annotated[
        str | None, typer.Option("--sign", help="What becomes of maps with a sign: signed,abs,relu.")
    ] = None,
    dialect: Annotated[
        str | None,
        typer.Option("--dialect", help="own, a profile, a metric, parameter=value; such as own,m4,area=trapezoid."),
    ] = None,
    factor: Annotated[
        list[str] | None, typer.Option("--factor", help="Another parameter, such as ties=random,index; repeatable.")
    ] = None,
    model_output: Annotated[
        str | None,
        typer.Option(
            "--model-output", help="The class scores' key or position, where a model returns several; --output of run."
        ),
    ] = None,
    options: o.StudyOptions,
    plan: Annotated[bool, typer.Option("--plan", help="Say what it would ask and cost, and stop.")] = False,
    report: Annotated[
        Path | None, typer.Option("--report", help="Where the report goes; by default the run's folder.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Ask one question in many ways: does the ranking of methods survive the choice of fill, steps, units and sign?

    Every combination is a universe; all of them are one run that shares its passes and can be continued. Factors that
    are not named stay as the metric has them; without any, the usual ones vary.

    [bold]Examples[/bold]

    heatcheck multiverse

    heatcheck multiverse --plan --fill zero,blur --units "pixel,grid(8)" --sign signed,abs

    heatcheck multiverse --dialect own,m4,metarank --methods "saliency,grad_cam,rise(samples=200)"

    heatcheck multiverse --metric sds --units "grid(2),grid(4),grid(8)" --factor nan=status,zero
    """
    from heatcheck.api.expansion import enough, expand
    from heatcheck.run.runtime import Runtime

    given = {"dialect": dialect, "fill": fill, "units": units, "steps": steps, "output": output}
    factors = {name: split(levels) for name, levels in given.items() if levels is not None}
    factors |= dict(_extra(text) for text in factor or ())
    factors |= {} if sign is None else {"sign": split(sign)}
    wanted = options.study(metrics=[metric], output=model_output)
    if wanted.metrics is None or len(wanted.metrics) != 1:
        raise SpecError(f"--metric: one metric is expanded at a time, not {', '.join(wanted.metrics or ())}")
    made = expand(metric, factors, wanted.profile)
    if factors:
        enough(made)
    wanted = _with_defaults(wanted, options)
    folder = wanted.out or Path("runs/multiverse")
    runtime = Runtime.of(wanted.runtime, progress="none" if quiet else "auto")
    with resumable(folder):
        from heatcheck.api.benchmark import Benchmark
        from heatcheck.api.multiverse import Multiverse, over

        bench, made = over(Benchmark.from_study(wanted), metric, factors or None, wanted.samples)
        unsaid = runtime if plan else Runtime.of(runtime, progress="none")
        found = bench.plan(samples=wanted.samples, out=folder, runtime=unsaid, calibrate=plan)
        if plan:
            _tell_plan(made, found, json)
            return
        note(f"{', '.join(wanted.models)} on {wanted.data}, profile {wanted.profile}, into {folder}", quiet=quiet)
        for line in _announced(made, found):
            note(line, quiet=quiet)
        verse = Multiverse(bench.run(folder, samples=wanted.samples, runtime=runtime))
        page = verse.report(report.expanduser() if report else folder / "report.html")
    failed = verse.result.failed
    if json:
        emit({"run": folder, "report": page, "failed": failed, **as_record(verse)})
    else:
        show(verse)
        console().print(f"report: {page}", soft_wrap=True)
    if failed:
        note(failures(verse.result, folder))
        raise typer.Exit(FAILED)


def _extra(text: str) -> tuple[str, list[str]]:
    name, equals, levels = text.partition("=")
    if not equals or not split(levels):
        raise SpecError(f"--factor: {text!r} is not of the form parameter=level,level, such as ties=random,index")
    return name.strip(), split(levels)


def _with_defaults(study: "Study", options: o.StudyOptions) -> "Study":
    """The study with a multiverse's defaults where nothing is given."""
    changes: dict[str, Any] = {}
    embedded = options.file is None and options.given["data"] is None
    if options.given["out"] is None and study.out is not None:
        changes["out"] = study.out.with_name(f"{study.out.name}-multiverse")
    if study.samples is None and embedded:
        changes["samples"] = EMBEDDED_SAMPLES
    return study.model_copy(update=changes)


def _announced(made: "Expansion", found: "Plan") -> Iterator[str]:
    """What will be asked, in words."""
    from heatcheck.core.progress import clock

    sizes = " × ".join(_counted(len(levels), name) for name, levels in made.factors.items())
    yield f"{len(made.universes)} universes ({sizes}), {_counted(len(made.metrics), 'way')} to score"
    for reason, labels in _grouped(made.left_out):
        yield f"{len(labels)} left out: {reason} ({_some(labels)})"
    time = "" if found.seconds is None else f", about {clock(found.seconds)}"
    yield f"{found.forwards:,} forwards and {found.backwards:,} backwards on {_counted(found.samples, 'sample')}{time}"


def _counted(n: int, name: str) -> str:
    """`2 fills`, `1 step`, `3 levels of nan`."""
    stem = name.removesuffix("s")
    if stem not in _NOUNS:
        return f"{_counted(n, 'level')} of {name}"
    return f"{n} {stem}" if n == 1 else f"{n:,} {stem}s"


def _tell_plan(made: "Expansion", found: "Plan", json: bool) -> None:
    if json:
        emit({**made.record(), "metrics": dict(made.metrics), "plan": found.record()})
        return
    for name, levels in made.factors.items():
        typer.echo(f"{name}: {', '.join(levels)}")
    for line in _announced(made, found):
        typer.echo(line)
    typer.echo(f"memory about {memory(found)}, disk about {size(found.disk_bytes)}")
    for line in found.notes:
        typer.echo(line)
    for skip in found.skipped:
        typer.echo(f"skipped on {skip['model']}: {skip['component']} ({skip['reason']})")


def _grouped(left_out: Any) -> Any:
    from heatcheck.report.multiverse import grouped

    return grouped(left_out)


def _some(labels: Any) -> str:
    more = f" and {len(labels) - _NAMED} more" if len(labels) > _NAMED else ""
    return f"{', '.join(labels[:_NAMED])}{more}"


def as_record(verse: "Multiverse") -> dict[str, Any]:
    """A multiverse as plain data."""
    from heatcheck.report.multiverse import verdict

    return {
        "base": verse.record["base"],
        "factors": verse.record["factors"],
        "left_out": [{"label": label, "reason": reason} for label, reason in verse.left_out()],
        "cases": [
            {
                **case.key,
                "w": case.w,
                "w_low": case.low,
                "w_high": case.high,
                "methods_in_w": [case.methods[i] for i in case.common],
                "verdict": "".join(part.text for part in verdict(case)),
                "methods": case.by_method(),
                "random": case.by_chance(),
                "factors": case.by_factor(),
                "pairs": case.by_pair(),
                "universes": [
                    {
                        "label": u.label,
                        "metric": u.metric,
                        "levels": u.levels,
                        "ranks": dict(zip(case.methods, case.ranks[i].tolist(), strict=True)),
                        "means": dict(zip(case.methods, case.means[i].tolist(), strict=True)),
                        "random_rank": float(case.chance[i]),
                    }
                    for i, u in enumerate(case.universes)
                ],
                "unranked": {name: dict(whys) for name, whys in case.unranked.items()},
            }
            for case in verse.cases
        ],
    }


def show(verse: "Multiverse") -> None:
    """A multiverse on stdout: the verdict, methods, factors, the shakiest pairs, what is left out."""
    from rich.text import Text

    from heatcheck.report.multiverse import verdict

    screen = console()
    for case in verse.cases:
        if len(verse.cases) > 1:
            screen.print(Text(case.model, style="bold"))
        sentence = Text()
        for part in verdict(case):
            sentence.append(part.text, style="bold green" if part.name else "")
        screen.print(sentence)
        if case.universes:
            screen.print(_methods(case, screen.width))
        if case.by_factor():
            screen.print(_factors(case))
        for line in _pairs(case):
            screen.print(line)
    for reason, labels in _grouped(verse.left_out()):
        screen.print(Text(f"left out, {len(labels)}: {reason} ({_some(labels)})", style="dim"))
    for case in verse.cases:
        for method, whys in case.unranked.items():
            for why, count in whys:
                screen.print(Text(f"{method} not ranked in {_counted(count, 'universe')}: {why}", style="dim"))


def _table(*columns: tuple[str, str]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name, side in columns:
        table.add_column(name, justify=side, overflow="fold")  # type: ignore[arg-type]
    return table


def _methods(case: "Rankings", width: int) -> "Table":
    """Where each method stands; a figure per universe, alike side by side, where there is room."""
    from rich.text import Text

    from heatcheck.report.multiverse import span
    from heatcheck.report.wording import plain, rank

    order = case.arranged()
    drawn = len(order) + 75 <= width and len(case.methods) <= len(DIGITS)
    heads = [("method", "left"), ("median", "right"), ("range", "right"), ("first in", "right")]
    heads += [("not better than random in", "right")]
    table = _table(*heads, *([("rank in each universe", "left")] if drawn else []))
    for i, row in enumerate(case.by_method()):
        worse = row["not_better_than_random"]
        cells = [
            Text(plain(row["method"])),
            Text(rank(row["median"])),
            Text(span(row)),
            Text(f"{row['first']}/{row['ranked']}", style="bold green" if row["first"] else "dim"),
            Text("–" if worse is None else f"{worse}/{row['tested']}", style="red" if worse else "dim"),
        ]
        table.add_row(*cells, *([_figures(case.ranks[order, i])] if drawn else []))
    chance = case.by_chance()
    if chance is not None:
        words = ["random, if it were ranked", rank(chance["median"]), span(chance), "", ""]
        figures = [_figures(case.chance[order])] if drawn and len(case.methods) < len(DIGITS) else []
        table.add_row(*map(Text, words), *figures, style="dim")
    return table


def _figures(ranks: Any) -> "Text":
    """Ranks in every universe, one character each: 1 … 9, a, b, …; the first three stand out."""
    from rich.text import Text

    text = Text()
    for r in ranks.tolist():
        known = r == r
        style = "bold green" if known and r < 2 else "" if known and r <= 3 else "dim"
        text.append(DIGITS[int(r) - 1] if known else "·", style=style)
    return text


def _factors(case: "Rankings") -> "Table":
    from rich.text import Text

    from heatcheck.report.multiverse import percent
    from heatcheck.report.wording import number, plain

    heads = (("factor", "left"), ("pairs reversed", "right"), ("τ", "right"), ("W within", "right"))
    table = _table(*heads, ("W at each level", "left"))
    for row in case.by_factor():
        levels = ", ".join(f"{level} {number(w, 2)}" for level, w in row["w"].items())
        table.add_row(
            Text(plain(row["factor"])),
            Text("–" if row["swapped"] is None else percent(row["swapped"])),
            Text(number(row["tau"], 2)),
            Text(number(row["w_within"], 2)),
            Text(plain(levels)),
        )
    return table


def _pairs(case: "Rankings") -> Iterator["Text"]:
    from rich.text import Text

    from heatcheck.report.multiverse import percent, shakiest
    from heatcheck.report.wording import plain

    for pair in shakiest(case):
        verdict = f"depends: {pair['a']} before {pair['b']} in {percent(pair['share'])} of the universes"
        if pair["reversed"]:
            verdict += f"; significantly so in {pair['significant']}, significantly behind in {pair['against']}"
        yield Text(plain(verdict), style="" if pair["reversed"] else "dim")
