"""A study: everything that defines a run, from a TOML file, checked before anything heavy is imported.

```toml
models = ["timm:resnet50"]
data = "folder:val"
methods = ["saliency", "rise(samples=500)", {id = "smoothgrad", of = "input_x_gradient"}]
metrics = ["sds", "abpc"]
samples = 200

[runtime]
workers = 2
budget = "2h"
```
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from heatcheck.core import catalogue, toml
from heatcheck.core.plugins import load_plugin, with_plugin_hint
from heatcheck.core.spec import Spec, SpecError, split, suggest
from heatcheck.core.toml import Keys
from heatcheck.data.catalogue import check_parameters, on_hub, sources, split_spec
from heatcheck.models.catalogue import models, source_id
from heatcheck.models.file_names import TRAINED, holds_training, holds_transformers, is_weights_file, recognised
from heatcheck.models.presets import parse_preprocess
from heatcheck.models.targets import checked_target, function_of
from heatcheck.profiles import load_profile
from heatcheck.run.runtime import Runtime, setting, wrong_value


class StudyError(SpecError):
    """A study that cannot be run as it is written; a line for each mistake, with its place."""


def _preprocess(value: Any) -> Any:
    if isinstance(value, str):
        parse_preprocess(value)
    return value


def _listed(value: Any) -> Any:
    """One thing is a list of one."""
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _some(value: Any) -> Any:
    if value in ((), []):
        raise SpecError("the list is empty; name at least one, or leave it out for the default")
    return _listed(value)


def _specs(value: Any) -> Any:
    return _some(tuple(split(value)) if isinstance(value, str) else value)


def _spec(value: Any) -> Any:
    """A component as text, from text or from a table with `id` and parameters."""
    if not isinstance(value, Mapping):
        return value
    if not isinstance(value.get("id"), str):
        raise SpecError("a method or metric written as a table needs its id, such as {id = 'rise', samples = 128}")
    params = {}
    for name, given in value.items():
        if isinstance(given, list):
            raise SpecError(
                f"{value['id']}: {name} is a list; a parameter is a number, a word, true or false, or another method or fill"
            )
        if name != "id":
            params[name] = _spec(given) if isinstance(given, Mapping) else given
    return str(Spec(value["id"], params))


def _home(value: Any) -> Any:
    """The same spec or path with `~` spelt out."""
    if not isinstance(value, str):
        return value
    start = max(value.rfind(":"), value.rfind("@")) + 1
    return value[:start] + str(Path(value[start:]).expanduser()) if value[start:].startswith("~") else value


def _path(value: Any) -> Any:
    return Path(value).expanduser() if isinstance(value, str) else value


Components = Annotated[tuple[Annotated[str, BeforeValidator(_spec)], ...], BeforeValidator(_specs)]


class Study(BaseModel):
    """What to measure. Methods and metrics that are not named, and the target, are the profile's for the data's modality.

    Args:
        models: model specs, such as `timm:resnet50`.
        data: a data spec, such as `folder:val`.
        text_column: the table's column with the text, by name or position, or the two columns of a pair of texts; found
            by usual names if None.
        label_column: the table's column with the label, likewise.
        methods: method specs; None for the profile's.
        metrics: metric specs; None for the profile's.
        profile: where parameters, methods and metrics that are not written come from.
        samples: how many samples; all if None.
        preprocess: what is done to pictures: imagenet, clip, inception or mean=…,std=…,size=…; to texts: tokens=…; None for
            what models say.
        output: the key or position of the class scores, for models that return several tensors.
        target: the class explained: predicted, label, top2 or its number; or a number made of the output: column:N or
            FILE.py:FUNCTION; None for what the profile says.
        seed: of every random stream.
        precision: in what passes are computed: fp32, tf32, bf16 or fp16; scores of different precision never mix.
        out: the run's folder.
        maps: which maps are stored: keep, gallery or none.
        plugins: Python files that declare methods, metrics or fills.
        runtime: workers, on, gpus, threads, batch, compile, device, budget, timeout, shard, numerics, maps, progress.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    models: Annotated[tuple[Annotated[str, BeforeValidator(_home)], ...], BeforeValidator(_some)] = setting("identity")
    data: Annotated[str, BeforeValidator(_home)] = setting("identity")
    text_column: Annotated[str | int | tuple[str | int, ...] | None, BeforeValidator(_frozen)] = setting(
        "identity", default=None
    )
    label_column: str | int | None = setting("identity", default=None)
    preprocess: Annotated[str, BeforeValidator(_preprocess)] | None = setting("identity", default=None)
    output: str | int | None = setting("identity", default=None)
    methods: Components | None = setting("identity", default=None)
    metrics: Components | None = setting("identity", default=None)
    profile: str = setting("identity", default="default")
    samples: int | None = setting("identity", default=None, ge=1)
    target: Annotated[str | int, BeforeValidator(checked_target)] | None = setting("identity", default=None)
    seed: int = setting("identity", default=0)
    precision: Literal["fp32", "tf32", "bf16", "fp16"] = setting("identity", default="fp32")
    out: Annotated[Path, BeforeValidator(_path)] | None = setting("runtime", default=None)
    maps: Literal["keep", "gallery", "none"] = setting("runtime", default="keep")
    plugins: Annotated[tuple[Annotated[Path, BeforeValidator(_path)], ...], BeforeValidator(_listed)] = setting(
        "identity", default=()
    )
    runtime: Runtime = setting("runtime", default=Runtime())

    @classmethod
    def load(cls, path: str | Path, **changes: Any) -> Self:
        """Read a study file, with some settings changed.

        Relative paths in the file begin at the file's folder, those in `changes` where the process is.

        Args:
            path: a TOML file.
            **changes: settings that replace the file's, those of `[runtime]` included.

        Raises:
            StudyError: the file or a change is wrong; names the line, or the option.
        """
        try:
            document = toml.read(Path(path).expanduser())
        except toml.TomlError as problem:
            raise StudyError(str(problem)) from problem
        values, changed = _rebased(document.values, document.path.parent), _nested(changes)
        if "maps" in changes:
            values.pop("maps", None)
        runtime = values.get("runtime", {})
        if isinstance(runtime, dict) and "runtime" in changed:
            values["runtime"] = {**runtime, **changed.pop("runtime")}

        def place(keys: Keys) -> str:
            setting = keys[-1:] if keys[:1] == ("runtime",) else keys[:1]
            return _option(keys) if set(setting) & set(changes) else document.at(keys)

        return cls._checked({**values, **changed}, place)

    @classmethod
    def of(cls, **values: Any) -> Self:
        """A study from settings, those of `[runtime]` included.

        Raises:
            StudyError: something is wrong; names the option.
        """
        return cls._checked(_nested(values), _option)

    @classmethod
    def _checked(cls, values: Mapping[str, Any], place: Callable[[Keys], str]) -> Self:
        try:
            return cls.model_validate(dict(values))
        except ValidationError as problem:
            found = dict.fromkeys(f"{place(keys)}{what}" for keys, what in _problems(problem))
            raise StudyError("\n".join(found)) from problem

    @model_validator(mode="after")
    def _one_runtime(self) -> Self:
        """`maps` may be written beside the other settings or under `[runtime]`; both mean the same."""
        if "maps" in self.model_fields_set:
            object.__setattr__(self, "runtime", Runtime.of(self.runtime, maps=self.maps))
        object.__setattr__(self, "maps", self.runtime.maps)
        return self

    @field_validator("profile")
    @classmethod
    def _known_profile(cls, name: str) -> str:
        return load_profile(name).name

    @model_validator(mode="after")
    def _known_components(self) -> Self:
        found = [
            *self._plugin_problems(),
            *self._unit_problems(),
            *_data_problems(self.data),
            *_model_problems(self.models),
        ]
        if found:
            raise PydanticCustomError("study", "{found}", {"found": found})
        return self

    def _plugin_problems(self) -> Iterator[tuple[Keys, str]]:
        for i, plugin in enumerate(self.plugins):
            try:
                load_plugin(plugin)
            except SpecError as problem:
                yield ("plugins", i), str(problem)

    def _unit_problems(self) -> Iterator[tuple[Keys, str]]:
        profile = load_profile(self.profile)
        for kind, written in (("method", self.methods), ("metric", self.metrics)):
            for i, spec in enumerate(written or ()):
                for path, what in catalogue.problems(kind, profile.spec(spec)):
                    unknown = what.startswith(f"no {kind} is called") and not self.plugins
                    yield (f"{kind}s", i, *path), with_plugin_hint(what) if unknown else what


def folder_name(models: Iterable[str], data: str) -> str:
    """A folder's name for models and data.

    >>> folder_name(["./my-bert", "timm:resnet50"], "../val.csv")
    'my-bert-timm-resnet50-val.csv'
    """
    return re.sub(r"[^\w.]+(\.+[^\w.]+)*", "-", f"{'-'.join(models)}-{data}").strip("-.")[:80]


def _data_problems(data: str) -> Iterator[tuple[Keys, str]]:
    known = {id: source for id, source in sources().items() if source.has_spec}
    before, place, _ = split_spec(data)
    try:
        check_parameters(data)
    except SpecError as problem:
        yield ("data",), f"data: {problem}"
    if on_hub(data):
        return
    if before and not Path(place).exists():
        yield ("data",), f"data: there is no {place!r}"
    elif place and not Path(place).exists():
        id = data.partition(":")[0]
        forms = ", ".join(source.form for source in known.values())
        near = suggest(id, known)
        hint = near if "did you mean" in near else f"; write {forms} or a path"
        yield ("data",), f"data: {data!r} is neither a source nor a path{hint}"


def _model_problems(written: Iterable[str]) -> Iterator[tuple[Keys, str]]:
    for i, spec in enumerate(written):
        id = source_id(spec)
        if is_weights_file(spec):
            try:
                recognised(spec)
            except SpecError as problem:
                yield ("models", i), str(problem)
        elif id not in models() and not Path(spec).exists():
            yield ("models", i), f"no model is called {spec!r}{suggest(id, models())}"


def _problems(error: ValidationError) -> Iterator[tuple[Keys, str]]:
    for item in error.errors():
        if item["type"] == "study":
            yield from item["ctx"]["found"]
        else:
            yield tuple(item["loc"]), _message(item)


def _message(item: ErrorDetails) -> str:
    keys = [str(key) for key in item["loc"] if isinstance(key, str)]
    if item["type"] == "extra_forbidden":
        known = Runtime.model_fields if len(keys) > 1 else Study.model_fields
        return f"no setting is called {keys[-1]!r}{suggest(keys[-1], known)}"
    if item["type"] == "missing":
        return f"{keys[-1]} is missing; see `heatcheck list {keys[-1]}`"
    return wrong_value(keys[-1] if keys else "the study", item)


def _option(keys: Keys) -> str:
    """A setting as the command line calls it."""
    names = [key for key in keys if isinstance(key, str) and key != "runtime"]
    return f"--{names[0].removesuffix('s') if names[0] == 'plugins' else names[0].replace('_', '-')}: " if names else ""


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Flat settings with those of `[runtime]` in their table."""
    runtime = {name: value for name, value in values.items() if name in Runtime.model_fields}
    rest = {name: value for name, value in values.items() if name not in runtime}
    return {**rest, "runtime": runtime} if runtime else rest


def _rebased(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A file's settings with its relative paths made to begin at its folder."""

    def path(value: Any) -> Any:
        return str(folder / Path(value).expanduser()) if isinstance(value, str) else value

    def data(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        before, place, after = split_spec(value)
        if not place or on_hub(value) or (not before and ":" in place):
            return value
        return f"{before}{path(place)}{after}"

    def model(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if is_weights_file(value):
            return path(value)
        place, at, checkpoint = value.partition("@")
        if place.startswith(TRAINED) or (place not in models() and holds_training(folder / Path(place).expanduser())):
            return f"{TRAINED}{path(place.removeprefix(TRAINED))}{at}{checkpoint}"
        if value not in models() and holds_transformers(folder / Path(value).expanduser()):
            return path(value)
        if (named := function_of(place)) is not None:
            return f"{path(named[0])}:{named[1]}" + (f"@{path(checkpoint)}" if at else "")
        start = max(value.rfind(":"), value.rfind("@")) + 1
        local = value[start:].startswith((".", "~")) or value[start - 1 : start] == "@"
        return value[:start] + path(value[start:]) if local else value

    def target(value: Any) -> Any:
        named = function_of(value)
        return f"{path(named[0])}:{named[1]}" if named else value

    rules: dict[str, Callable[[Any], Any]] = {
        "models": lambda value: _each(model, value),
        "data": data,
        "target": target,
        "plugins": lambda value: _each(path, value),
        "out": path,
    }
    return {name: rules[name](value) if name in rules else value for name, value in values.items()}


def _each(change: Callable[[Any], Any], value: Any) -> Any:
    items: Iterable[Any] = value if isinstance(value, list) else [value]
    changed = [change(item) for item in items]
    return changed if isinstance(value, list) else changed[0]
